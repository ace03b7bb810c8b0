#!/bin/bash
# train: 2 nodes x 2 GPUs, 4 ranks by torchrun
# Written by hpcrun from profile local. Complete as it stands: `bash` this file by hand does the same.

# The environment as it came.
declare -A came=()
for variable in $(compgen -e); do came[$variable]=${!variable}; done

# Where records and logs go: hpcrun submit names the folder, bash by hand makes one here.
element=${HPCRUN_ELEMENT:-0}
attempt=${HPCRUN_ATTEMPT:-0}
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; then
  HPCRUN_JOB_ID=L$$
  HPCRUN_RUN_DIR=$PWD/hpcrun-$HPCRUN_JOB_ID
fi
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

cd -- '/data/my project' 2>/dev/null || fail 'cannot start in /data/my project on this node'

# The virtual environment that was active when this was submitted.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

# should_stop(), checkpoint_dir() ... for the training script; hpcrun submit puts the file there.
if [ -e "$HPCRUN_RUN_DIR/runtime/hpcrun_runtime.py" ]; then
  export PYTHONPATH="$HPCRUN_RUN_DIR/runtime${PYTHONPATH:+:$PYTHONPATH}"
fi
# CPUs of one rank; torchrun would set 1.
export OMP_NUM_THREADS=2
# NCCL's flight recorder: its last 2000 calls are written here when a collective times out.
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_" TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# What every rank runs.
command=(/home/me/venv/bin/python -u train.py)

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

# Each node: one torchrun agent. is_host is said outright: guessing it from host names fails where a node has
# several. --local-addr: rank 0's address is the name that Slurm knows, not one that only the node resolves.
on_task() {
  local is_host=0 status agent
  [ "$HPCRUN_NODE" = "$HPCRUN_HEAD" ] && is_host=1
  if ! getent ahosts "$HPCRUN_HEAD_ADDR" >/dev/null; then
    echo "hpcrun: $HPCRUN_NODE cannot resolve $HPCRUN_HEAD_ADDR, the host of rank 0; try --exclude=$HPCRUN_NODE" >&2
    return 1
  fi
  /home/me/venv/bin/python -m torch.distributed.run --nnodes=2 --nproc-per-node=2 \
    --rdzv-backend=c10d --rdzv-endpoint="$HPCRUN_HEAD_ADDR:$HPCRUN_PORT" --rdzv-id="$HPCRUN_JOB_ID" \
    --rdzv-conf="is_host=$is_host" --local-addr="$HPCRUN_NODE_ADDR" \
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

# The nodes are processes of this machine.
# A rendezvous port that belongs to this job: below the ephemeral range (32768), clear of the ports of
# NCCL's RAS (28028) and torchrun's defaults (29400, 29500), and not listened on at this moment.
port=$((20000 + $$ % 8000))
while grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$port") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null; do
  port=$((port + 1))
done
export HPCRUN_HEAD=local-0 HPCRUN_HEAD_ADDR=127.0.0.1 HPCRUN_NODE_ADDR=127.0.0.1 HPCRUN_PORT=$port
printf 'local-%d\n' 0 1 >"$HPCRUN_ATTEMPT_DIR/hosts"
# Fewer GPUs here than ranks: every rank runs on the CPU.
export CUDA_VISIBLE_DEVICES=

nodes=()
stop() { kill -TERM "${nodes[@]}" 2>/dev/null; }
trap 'signal=TERM; finish 143; stop' TERM INT
for ((node = 0; node < 2; node++)); do
  HPCRUN_NODE=local-$node HPCRUN_NODE_RANK=$node bash -c 'on_task "$@"' hpcrun "${command[@]}" &
  nodes+=($!)
done
status=0
while [ -n "$(jobs -rp)" ]; do
  wait -n
  ended=$?
  # the first failure ends the other nodes, as srun --kill-on-bad-exit does
  if [ "$ended" != 0 ]; then
    [ "$status" != 0 ] || status=$ended
    stop
  fi
done
for node in "${nodes[@]}"; do
  reap "$node"
  ended=$?
  [ "$status" != 0 ] || status=$ended
done
[ -z "$signal" ] || status=143
finish "$status"
exit "$status"
