#!/bin/bash
# train-me: 1 node x 1 a100 GPUs, 1 rank by torchrun
# Written by hpcrun from profile a100. Needs its run's folder (snapshot): submit it with hpcrun.
#SBATCH --job-name=train-me
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:a100:1
#SBATCH --mem=125G
#SBATCH --time=01:00:00
#SBATCH --no-requeue
#SBATCH --open-mode=append

# The environment as it came.
declare -A came=()
for variable in $(compgen -e); do came[$variable]=${!variable}; done

# Where records and logs go: hpcrun submit names the folder, sbatch by hand makes one where it was called.
element=${SLURM_ARRAY_TASK_ID:-0}
attempt=${SLURM_RESTART_COUNT:-0}
# A folder that comes with another job's id, or in which one has already started, was only inherited from that job.
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -n "${HPCRUN_JOB_ID-}" ] || [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; then
  HPCRUN_RUN_DIR=${SLURM_SUBMIT_DIR:-$PWD}/hpcrun-$SLURM_JOB_ID
fi
HPCRUN_JOB_ID=$SLURM_JOB_ID
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

# The code as it was when this was submitted: hpcrun submit copied it into the run's folder.
code=$HPCRUN_RUN_DIR/code
cd "$code"/tools 2>/dev/null || fail "there is no copy of the code in $code: hpcrun submit --snapshot makes it"
code=$(cd "$code" && pwd -P) # a link where several jobs share it

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

# Before all that an editable install in the environment points to.
export PYTHONPATH="$code"/tools:"$code"/src:"$code"/'a b'"${PYTHONPATH:+:$PYTHONPATH}"
# What runs, and where Python finds the packages that the copy has, without importing them: hpcrun status --verbose.
script=$code/'tools/train me.py'
imports=$(/home/me/venv/bin/python -c '
import importlib.util, json, os, sys
code, script, found = sys.argv[1], sys.argv[2], {}
sys.path[0] = os.path.dirname(script) or os.getcwd()
for folder in sys.argv[3:]:
    folder = os.path.join(code, folder)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        package = name[:-3] if name.endswith(".py") else name
        if name == "setup.py" or not package.isidentifier() or package in found:
            continue
        if package == name and not os.path.exists(os.path.join(folder, name, "__init__.py")):
            continue
        try:
            found[package] = os.path.realpath(importlib.util.find_spec(package).origin)
        except (AttributeError, ImportError, TypeError, ValueError):
            continue
        if not found[package].startswith(code + os.sep):
            sys.stderr.write(f"hpcrun: {package} is imported from {found[package]}, not from the copy of the code\n")
print(json.dumps(found))
' "$code" "$script" tools src 'a b')
record code "{\"folder\": \"${code//[\"\\]/ }\", \"script\": \"${script//[\"\\]/ }\", \"imports\": ${imports:-null}}"

# What every rank runs.
command=(/home/me/venv/bin/python -u 'train me.py')

# One rank: its output goes to files of its own, its exit status (128 + n for signal n) into a record.
on_rank() {
  local rank=$1 child status
  shift
  if [ "${LOCAL_RANK:-0}" = 0 ]; then
    record "node-$HPCRUN_NODE.start" \
      "{\"node\": \"$HPCRUN_NODE\", \"first_rank\": $rank, \"ranks\": ${LOCAL_WORLD_SIZE:-1}, \"started\": $(date +%s.%N)}"
  fi
  "$@" >"$HPCRUN_ATTEMPT_DIR/rank-$rank.out" 2>"$HPCRUN_ATTEMPT_DIR/rank-$rank.err" &
  child=$!
  trap 'kill -TERM "$child" 2>/dev/null' TERM
  reap "$child"
  status=$?
  record "rank-$rank.exit" \
    "{\"rank\": $rank, \"node\": \"$HPCRUN_NODE\", \"status\": $status, \"ended\": $(date +%s.%N)}"
  return "$status"
}

torch=$(/home/me/venv/bin/python -c 'from importlib.metadata import version; print(version("torch"))') \
  || fail '/home/me/venv/bin/python has no torch on this node'
case $torch in 2.[0-7].*) export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 ;; esac # the flight recorder's older name

# The node: torchrun alone on it needs no rendezvous port of its own.
on_task() {
  local status agent
  /home/me/venv/bin/python -m torch.distributed.run --standalone --nproc-per-node=1 \
    --max-restarts=0 --no-python bash -c 'on_rank "$RANK" "$@"' hpcrun-rank "$@" &
  agent=$!
  trap 'kill -TERM "$agent" 2>/dev/null' TERM
  reap "$agent"
  status=$?
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

# scancel, the time limit and preemption send TERM: say so before KILL comes.
trap 'signal=TERM; finish 143' TERM
# --cpus-per-task: srun has not inherited it since Slurm 22.05. --kill-on-bad-exit: one failed task ends them
# all; the others would wait 300 s in torchrun's exit barrier. --wait=0: a rank may take its time at the end.
srun --nodes=1 --ntasks=1 --ntasks-per-node=1 \
  --cpus-per-task=16 --kill-on-bad-exit=1 --wait=0 --export=ALL \
  bash -c 'HPCRUN_NODE=$SLURMD_NODENAME HPCRUN_NODE_ADDR=$SLURMD_NODENAME HPCRUN_NODE_RANK=$SLURM_NODEID on_task "$@"' hpcrun "${command[@]}" &
reap $!
status=$?
finish "$status"
exit "$status"
