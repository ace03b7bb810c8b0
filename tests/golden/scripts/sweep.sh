#!/bin/bash
# train: 1 node x 4 a100 GPUs, 4 ranks by torchrun, 6 elements
# Written by hpcrun from profile a100. Complete as it stands: `sbatch` this file by hand does the same.
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=64
#SBATCH --gres=gpu:a100:4
#SBATCH --mem=500G
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --array=0-5%2

# The environment as it came.
declare -A came=()
for variable in $(compgen -e); do came[$variable]=${!variable}; done

# Where records and logs go: hpcrun submit names the folder, sbatch by hand makes one where it was called.
element=${SLURM_ARRAY_TASK_ID:-0}
attempt=${SLURM_RESTART_COUNT:-0}
# A folder that comes with another job's id, or in which one has already started, was only inherited from that job.
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -n "${HPCRUN_JOB_ID-}" ] || [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; then
  HPCRUN_RUN_DIR=${SLURM_SUBMIT_DIR:-$PWD}/hpcrun-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
fi
# An element's own id: the id of the last element to start (SLURM_JOB_ID) is that of the whole array too.
HPCRUN_JOB_ID=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
export HPCRUN_RUN_DIR HPCRUN_JOB_ID HPCRUN_ELEMENT=$element HPCRUN_ATTEMPT=$attempt
export HPCRUN_ATTEMPT_DIR="$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt"
export HPCRUN_CHECKPOINT_DIR="$HPCRUN_RUN_DIR/elements/$element/checkpoints" # of all attempts
mkdir -p "$HPCRUN_ATTEMPT_DIR"/{flight,stop} || { echo "hpcrun: cannot write to $HPCRUN_RUN_DIR" >&2; exit 1; }

# A record is written aside and renamed: whole or not at all, on a network file system too.
record() {
  printf '%s\n' "$2" >"$HPCRUN_ATTEMPT_DIR/.$1.$$" && mv -f "$HPCRUN_ATTEMPT_DIR/.$1.$$" "$HPCRUN_ATTEMPT_DIR/$1"
}
finish() { # STATUS [MESSAGE [REASON [true|false: is it started again?]]]
  local message=${2-}
  record exit "{\"status\": $1, \"signal\": \"$signal\", \"ended\": $(date +%s.%N),
    \"message\": \"${message//[\"\\]/ }\", \"reason\": \"${3-}\", \"again\": ${4-false}}"
}
fail() {
  echo "hpcrun: $1" >&2
  finish 1 "$1"
  exit 1
}
# bash's wait returns early when a signal arrives: go on until the process is really gone. Where it goes in that very
# moment bash 5.2 has lost its status and says -1: the signal was TERM.
reap() {
  local status
  while kill -0 "$1" 2>/dev/null; do wait "$1"; done
  wait "$1"
  status=$?
  [ "$status" -ge 0 ] || status=143
  return "$status"
}
signal=
record start "{\"job_id\": \"$HPCRUN_JOB_ID\", \"host\": \"$HOSTNAME\", \"started\": $(date +%s.%N)}"
mkdir -p "$HPCRUN_CHECKPOINT_DIR" || fail "there is no folder of checkpoints $(readlink -m "$HPCRUN_CHECKPOINT_DIR")"
# A sign of life, for hpcrun status where nobody else knows of this job.
(while sleep 30 && kill -0 $$; do record heartbeat "$(date +%s)"; done >/dev/null 2>&1 &)

# Being told to stop. The file in stop/ is what counts: hpcrun_runtime.should_stop() reads it, and no rank can miss it.
# Signals come on top: a rank that has a handler gets them, a rank that has none does not die of them.
ask_to_stop() {
  (set -o noclobber && echo "$HOSTNAME $(date +%s.%N)" >"$HPCRUN_ATTEMPT_DIR/stop/$1") 2>/dev/null || return 0
  # The first to hear of it asks whether it is a preemption: Slurm has forgotten once it starts the job again by itself.
  [ "$1" != terminated ] || (is_preempted && : >"$HPCRUN_ATTEMPT_DIR/preempted") &
}
# A field of `scontrol show job`, such as JobState.
slurm_says() { scontrol --oneliner show job "$HPCRUN_JOB_ID" | sed -n "s/.* $1=\([^ ]*\).*/\1/p"; }
is_preempted() { # the field is there for jobs that can be
  local since
  since=$(slurm_says PreemptTime)
  [ "${since:-None}" != None ]
}
# Bash 5.2 loses the status of a process that ends in the moment of a signal. So a shell that ignores signals waits for it,
# and says its id and then its status to the one that hears them. The process writes to 3 and 4; it starts with both
# signals ignored too, which a handler of its own replaces.
keep() {
  "$@" >&3 2>&4 3>&- 4>&- &
  echo "$!"
  wait "$!"
  echo "$?"
}
# From here on signals are heard, by function $1. Bash 5.2 gives up where one comes while it reads $( ), so they are
# ignored while anything else is done: the file in stop/ says it to whoever missed one.
listen() {
  listener=$1
  trap '"$listener" USR1 10 time_limit' USR1
  trap '"$listener" TERM 15 terminated' TERM
}
# Whether process $1 has a handler for signal number $2: proc(5), SigCgt.
catches() {
  local mask
  mask=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
  (((0x${mask:-0} >> ($2 - 1)) & 1))
}
a_rank_failed() { grep -qs '"status": [1-9]' "$HPCRUN_ATTEMPT_DIR"/rank-*.exit; }
# What a rank's wrapper does with a signal. After another rank has failed TERM comes from torchrun or srun, which clear away.
rank_told() {
  trap '' USR1 TERM
  if [ "$1" = TERM ] && a_rank_failed; then
    cleared=1
    kill -TERM "$child" 2>/dev/null
    catches "$child" 15 || kill -KILL "$child" 2>/dev/null
  else
    ask_to_stop "$3"
    # one that is gone already had a handler, and the signal straight from Slurm
    if catches "$child" "$2" || grep -qs '^State:[[:space:]]*Z' "/proc/$child/status" || ! kill -0 "$child" 2>/dev/null; then
      : >"$HPCRUN_ATTEMPT_DIR/heard-$rank"
    fi
    kill -"$1" "$child" 2>/dev/null
  fi
  listen rank_told
}
# What a node's wrapper does: tell the wrappers of its ranks. Which signals reach whom depends on how Slurm tracks
# processes: with cgroups only the step's own tasks get them.
node_told() {
  local wrapper
  trap '' USR1 TERM
  if [ "$1" != TERM ] || ! a_rank_failed; then ask_to_stop "$3"; fi
  for wrapper in "$HPCRUN_RANKS"/*; do kill -"$1" "${wrapper##*/}" 2>/dev/null; done
  listen node_told
}
trap 'ask_to_stop time_limit' USR1
export -f ask_to_stop keep listen catches a_rank_failed rank_told node_told slurm_says is_preempted

# The first attempt is 0: this job may be started 1 more time.
if [ "$attempt" -gt 1 ]; then
  fail 'started once more than --requeue 1 allows'
fi

# Slurm starts a job in /tmp where its own folder is gone, or is not on this node.
[ "$PWD" != /tmp ] || [ -x "${SLURM_SUBMIT_DIR:-.}/." ] || fail "there is no folder $SLURM_SUBMIT_DIR on $HOSTNAME: it is gone, or this node does not have it"

# The virtual environment that was active when this was submitted.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

# should_stop(), checkpoint_dir() ... for the training script; hpcrun submit puts the file there.
if [ -e "$HPCRUN_RUN_DIR/runtime/hpcrun_runtime.py" ]; then
  export PYTHONPATH="$HPCRUN_RUN_DIR/runtime${PYTHONPATH:+:$PYTHONPATH}"
fi
# CPUs of one rank; torchrun would set 1.
export OMP_NUM_THREADS=16
# NCCL's flight recorder: its last 2000 calls are written here when a collective times out.
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_" TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# From the profile and --env.
export NCCL_DEBUG=WARN
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# What every rank runs.
command=(/home/me/venv/bin/python -u train.py --epochs 3 --out)
# The arguments that each element has of its own.
case $element in
  0) command+=(runs/1e-3 --text 'a b') ;;
  1) command+=(runs/1e-3 --text 'it'\''s') ;;
  2) command+=(runs/1e-3 --text '$HOME') ;;
  3) command+=(runs/1e-4 --text 'a b') ;;
  4) command+=(runs/1e-4 --text 'it'\''s') ;;
  5) command+=(runs/1e-4 --text '$HOME') ;;
  *) fail "this sweep has no element $element" ;;
esac

# One rank: its output goes to files of its own, its exit status (128 + n for signal n) into a record.
on_rank() {
  local rank=$1 child status cleared='' kept
  shift
  trap '' USR1 TERM
  if [ "${LOCAL_RANK:-0}" = 0 ]; then
    record "node-$HPCRUN_NODE.start" \
      "{\"node\": \"$HPCRUN_NODE\", \"first_rank\": $rank, \"ranks\": ${LOCAL_WORLD_SIZE:-1}, \"started\": $(date +%s.%N)}"
  fi
  { exec {kept}< <(keep "$@"); } 3>"$HPCRUN_ATTEMPT_DIR/rank-$rank.out" 4>"$HPCRUN_ATTEMPT_DIR/rank-$rank.err"
  read -r child <&"$kept"
  [ -z "${HPCRUN_RANKS-}" ] || : >"$HPCRUN_RANKS/$BASHPID"
  listen rank_told
  read -r status <&"$kept" || status=137 # whoever kept it was killed
  trap '' USR1 TERM
  [ -z "$cleared" ] || status=143 # it did not fail by itself
  record "rank-$rank.exit" \
    "{\"rank\": $rank, \"node\": \"$HPCRUN_NODE\", \"status\": $status, \"ended\": $(date +%s.%N)}"
  return "$status"
}

torch=$(/home/me/venv/bin/python -c 'from importlib.metadata import version; print(version("torch"))') \
  || fail '/home/me/venv/bin/python has no torch on this node'
case $torch in 2.[0-7].*) export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 ;; esac # the flight recorder's older name
# torchrun's agent: it stays when Slurm or a person signals the job, since without it the ranks would be killed. torch's own
# handler of SIGTERM would end it; --signals-to-handle (here by its variable, which an older torch ignores) leaves it out.
export PET_SIGNALS_TO_HANDLE=SIGINT,SIGHUP,SIGQUIT
export agent_program='
import runpy, signal
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda *_: None)
runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
'

# The node: torchrun alone on it needs no rendezvous port of its own.
on_task() {
  trap '' USR1 TERM
  HPCRUN_RANKS=$(mktemp -d) && export HPCRUN_RANKS # a file for each rank's wrapper: its process id
  local status kept
  { exec {kept}< <(keep /home/me/venv/bin/python -c "$agent_program" --standalone --nproc-per-node=4 \
    --max-restarts=0 --no-python bash -c 'on_rank "$RANK" "$@"' hpcrun-rank "$@"); } 3>&1 4>&2
  read -r _ <&"$kept"
  listen node_told
  read -r status <&"$kept" || status=137 # whoever kept it was killed
  trap '' USR1 TERM
  rm -rf "$HPCRUN_RANKS"
  record "node-$HPCRUN_NODE.exit" "{\"node\": \"$HPCRUN_NODE\", \"status\": $status, \"ended\": $(date +%s.%N)}"
  return "$status"
}
export -f record reap on_rank on_task

# What was changed in the environment since, and how it came: hpcrun submit inside this job hands on what came.
for variable in "${!came[@]}" $(compgen -e); do
  case $variable in HPCRUN_* | SLURM_* | PWD | OLDPWD | SHLVL | _) continue ;; esac
  [ "${!variable+=}${!variable-}" != "${came[$variable]+=}${came[$variable]-}" ] || continue
  [ -z "${came[$variable]+=}" ] || export "HPCRUN_CAME_$variable=${came[$variable]}"
  [ -z "${!variable+=}" ] || export "HPCRUN_PUT_$variable=${!variable}"
done

# The allocation is Slurm's. Rank 0's host is the first node, where this script runs; every node resolves
# its name for itself.
scontrol show hostnames "$SLURM_JOB_NODELIST" >"$HPCRUN_ATTEMPT_DIR/hosts" || fail 'scontrol cannot list the nodes of this job'
read -r HPCRUN_HEAD <"$HPCRUN_ATTEMPT_DIR/hosts"
# A rendezvous port that belongs to this job: below the ephemeral range (32768), clear of the ports of
# NCCL's RAS (28028) and torchrun's defaults (29400, 29500), and not listened on at this moment.
port=$((20000 + SLURM_JOB_ID % 8000))
while grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$port") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null; do
  port=$((port + 1))
done
export HPCRUN_HEAD HPCRUN_HEAD_ADDR=$HPCRUN_HEAD HPCRUN_PORT=$port
echo "hpcrun: job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, rendezvous $HPCRUN_HEAD:$HPCRUN_PORT"

# Slurm's own requeues count as well: none after the last attempt.
if [ "$attempt" = 1 ]; then scontrol update JobId="$HPCRUN_JOB_ID" Requeue=0; fi

# Slurm has started this job again already, and this attempt was cut off from that.
moved_on() {
  local restarts
  restarts=$(slurm_says Restarts)
  [ "${restarts:-$attempt}" != "$attempt" ]
}
# The nodes that do not answer: Slurm has noticed (a star, down, fail), or nobody is at slurmd's port.
dead_nodes() {
  local port
  port=$(scontrol show config | sed -n 's/^SlurmdPort *= *//p')
  sinfo --noheader --Node --nodes="$SLURM_JOB_NODELIST" --format='%N %t' | sort -u | {
    while read -r node state; do
      case $state in
        *'*' | down* | fail*) echo "$node" ;;
        *) timeout 5 bash -c "exec 3<>/dev/tcp/$node/${port:-6818}" 2>/dev/null || echo "$node" & ;;
      esac
    done
    wait
  }
}
# Why the ranks ended with status $1; nothing where that was their own end.
why_it_ended() {
  if [ -n "$signal" ] || [ -e "$HPCRUN_ATTEMPT_DIR/stop/terminated" ]; then
    why_told "$1"
  elif [ -e "$HPCRUN_ATTEMPT_DIR/stop/time_limit" ]; then
    was_done_anyway "$1" || echo time_limit
  elif [ "$1" != 0 ]; then
    if [ -n "$(dead_nodes)" ]; then echo node_failure; else echo failure; fi
  fi
}
# TERM comes when the job is preempted, cancelled, requeued or out of time, and only Slurm knows which. scontrol hides the
# state of a job that is being ended behind COMPLETING. What cannot be told is taken for cancelled: that must stay ended.
why_told() {
  local state
  state=$(slurm_says JobState)
  if [ -e "$HPCRUN_RUN_DIR/cancelled" ] || [ -e "$HPCRUN_RUN_DIR/elements/$element/cancelled" ]; then # by hpcrun cancel
    echo cancelled
  elif [ "$state" = RUNNING ]; then
    if [ -e "$HPCRUN_ATTEMPT_DIR/preempted" ] || is_preempted; then
      was_done_anyway "$1" || echo preemption
    elif moved_on || [ -n "$(dead_nodes)" ]; then
      echo node_failure # moved on: it runs elsewhere, this node was cut off and is back
    elif [ -e "$HPCRUN_ATTEMPT_DIR/stop/time_limit" ]; then
      was_done_anyway "$1" || echo time_limit
    else
      echo terminated
    fi
  elif [ -z "$state" ]; then
    echo terminated # Slurm is away, and can start nothing
  elif moved_on; then # Slurm has requeued it, by itself or for somebody with scontrol
    if [ -e "$HPCRUN_ATTEMPT_DIR/preempted" ]; then
      echo preemption
    elif [ -n "$(dead_nodes)" ]; then
      echo node_failure
    else
      echo requeued
    fi
  else
    case $state/$(slurm_says Reason) in
      TIMEOUT/* | */TimeLimit) echo time_limit ;;
      NODE_FAIL/* | */NodeDown) echo node_failure ;;
      PREEMPTED/*) echo preemption ;;
      *) echo cancelled ;;
    esac
  fi
}
start_again() { # WHY
  local said
  # unless Slurm has done it by itself
  moved_on || said=$(scontrol requeue "$HPCRUN_JOB_ID" 2>&1) || [[ $said == *'pending execution'* ]] || {
    echo "$said" >&2
    return 1
  }
}
# The ranks ended well, and none of them had heard that it should stop.
was_done_anyway() { [ "$1" = 0 ] && [ -z "$late" ] && ! ls "$HPCRUN_ATTEMPT_DIR"/heard-* >/dev/null 2>&1; }
# The rank that failed first: when, its exit status, its node. 143 are ranks that were told to end.
first_failed() {
  sed -n 's/.*"node": "\([^"]*\)", "status": \([0-9]*\), "ended": \([0-9.]*\).*/\3 \2 \1/p' "$HPCRUN_ATTEMPT_DIR"/rank-*.exit 2>/dev/null |
    awk '$2 != 0 && $2 != 143' | sort -n | head -n 1
}
end_or_start_again() { # STATUS of the ranks
  local status=$1 why message='' try
  trap '' TERM USR1 ALRM
  why=$(why_it_ended "$status")
  # srun says the highest status of its tasks, which is that of those it then told to end
  if [ "$status" = 143 ] && [ "$why" = failure ]; then read -r _ status _ < <(first_failed) || status=143; fi
  case $why in
    '' | cancelled | terminated | failure) ;;
    *)
      # Stopped, and not done: not the good end that status 0 would mean. 124 is that of timeout(1).
      [ "$status" != 0 ] || status=124
      message='not started again: --requeue 1 is used up'
      if [ "$attempt" -lt 1 ]; then
        echo "hpcrun: attempt $attempt ended by $why; it is started again"
        finish "$status" '' "$why" true # noted first: Slurm forgets why, and is about to end this script
        for try in 1 2 3 4 5; do
          start_again "$why" && exit "$status"
          sleep "$try"
        done
        message='scontrol requeue failed; hpcrun resubmit starts it again'
      fi
      ;;
  esac
  finish "$status" "$message" "$why"
  # Slurm 24.11 takes a job that was preempted before for preempted again when it ends, and starts it once more.
  if [ "$attempt" -gt 0 ]; then
    case $why in '' | failure) scontrol update JobId="$HPCRUN_JOB_ID" Requeue=0 ;; esac
  fi
  exit "$status"
}

late=
# Slurm warns before the time limit (--signal). Ranks that go on for 100 s more are given up, so that time is left.
trap 'ask_to_stop time_limit; kill -USR1 "$step" 2>/dev/null; (sleep 100 && kill -ALRM $$ 2>/dev/null &)' USR1
trap 'late=1' ALRM
trap 'signal=TERM late=1' TERM
# --cpus-per-task: srun has not inherited it since Slurm 22.05. --kill-on-bad-exit: one failed task ends them
# all; the others would wait 300 s in torchrun's exit barrier. --wait=0: a rank may take its time at the end.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 \
  --cpus-per-task=64 --kill-on-bad-exit=1 --wait=0 --export=ALL \
  bash -c 'HPCRUN_NODE=$SLURMD_NODENAME HPCRUN_NODE_ADDR=$SLURMD_NODENAME HPCRUN_NODE_RANK=$SLURM_NODEID on_task "$@"' hpcrun "${command[@]}" &
step=$!
while kill -0 "$step" 2>/dev/null && [ -z "$late" ]; do wait "$step"; done
status=143
[ -n "$late" ] || { reap "$step"; status=$?; }
end_or_start_again "$status"
