#!/bin/bash
# preflight: 2 nodes x 2 GPUs, 4 ranks by torchrun
# Written by hpcrun from profile local. Needs its run's folder (preflight): submit it with hpcrun.

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

# The virtual environment that was active when this was submitted.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

# should_stop(), checkpoint_dir() ... for the training script; hpcrun submit puts the file there.
if [ -e "$HPCRUN_RUN_DIR/runtime/hpcrun_runtime.py" ]; then
  export PYTHONPATH="$HPCRUN_RUN_DIR/runtime${PYTHONPATH:+:$PYTHONPATH}"
fi
# CPUs of one rank; torchrun would set 1.
export OMP_NUM_THREADS=4
# NCCL's flight recorder: its last 2000 calls are written here when a collective times out.
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_" TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# The nodes are processes of this machine.
# A rendezvous port that belongs to this job: below the ephemeral range (32768), clear of the ports of
# NCCL's RAS (28028) and torchrun's defaults (29400, 29500), and not listened on at this moment.
port=$((20000 + $$ % 8000))
while grep -qi "^ *[0-9]*: [0-9A-F]*:$(printf %04X "$port") [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null; do
  port=$((port + 1))
done
export HPCRUN_HEAD=local-0 HPCRUN_HEAD_ADDR=127.0.0.1 HPCRUN_NODE_ADDR=127.0.0.1 HPCRUN_PORT=$port
printf 'local-%d\n' 0 1 >"$HPCRUN_ATTEMPT_DIR/hosts"
gpus=('0,1' '2,GPU-3f') # of each node, without overlap

# What every node and GPU can do, in half a minute at most.
preflight="$HPCRUN_ATTEMPT_DIR/preflight"
[ -r "$HPCRUN_RUN_DIR/preflight/node.py" ] \
  || fail 'the programs of the preflight are put beside the script by hpcrun submit: submit it so, or render it without --preflight'
mkdir -p "$preflight"
check_node() {
  local status
  /home/me/venv/bin/python -u "$HPCRUN_RUN_DIR/preflight/node.py" 2 2
  status=$?
  # a Python that is not there, or does not run: say so in the node's place
  [ -e "$HPCRUN_ATTEMPT_DIR/preflight/$HPCRUN_NODE.json" ] \
    || echo "{\"node\": \"$HPCRUN_NODE\", \"failed\": $status}" >"$HPCRUN_ATTEMPT_DIR/preflight/$HPCRUN_NODE.json"
}
export -f check_node
judge() {
  local message
  if message=$(/home/me/venv/bin/python "$HPCRUN_RUN_DIR/preflight/judge.py"); then
    echo "hpcrun: $message"
  else
    fail "${message:-the preflight was not judged: the Python of the job does not run here}"
  fi
}
trap 'signal=TERM; finish 143; kill -TERM "${nodes[@]}" 2>/dev/null' TERM INT
nodes=()
for ((node = 0; node < 2; node++)); do
  CUDA_VISIBLE_DEVICES=${gpus[node]} HPCRUN_NODE=local-$node HPCRUN_NODE_ADDR=127.0.0.1 HPCRUN_NODE_RANK=$node check_node >>"$preflight/nodes.log" 2>&1 &
  nodes+=($!)
done
for node in "${nodes[@]}"; do reap "$node"; done
[ -z "$signal" ] || exit 143
judge
finish 0
