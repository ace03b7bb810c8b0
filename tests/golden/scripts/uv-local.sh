#!/bin/bash
# train: 1 node x 8 CPUs, 1 rank by python
# Written by hpcrun from profile local. Complete as it stands: `bash` this file by hand does the same.

exec {came}<<<"$(base64 "/proc/$$/environ")" # keep the original environment for jobs that this job submits

# Folder for records and logs. hpcrun submit sets it; without hpcrun, create one here.
element=${HPCRUN_ELEMENT:-0}
attempt=${HPCRUN_ATTEMPT:-0}
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; then
  HPCRUN_JOB_ID=L$$
  HPCRUN_RUN_DIR=$PWD/hpcrun-$HPCRUN_JOB_ID
fi
export HPCRUN_RUN_DIR HPCRUN_JOB_ID HPCRUN_ELEMENT=$element HPCRUN_ATTEMPT=$attempt
export HPCRUN_ATTEMPT_DIR="$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt"
export HPCRUN_CHECKPOINT_DIR="$HPCRUN_RUN_DIR/elements/$element/checkpoints" # shared by all attempts
(umask go-w && mkdir -p "$HPCRUN_ATTEMPT_DIR") || { echo "hpcrun: cannot write to $HPCRUN_RUN_DIR" >&2; exit 1; }
(umask go-w && printf '{"job_id": "%s", "host": "%s", "started": %s}\n' "$HPCRUN_JOB_ID" "$HOSTNAME" "$(date +%s.%N)" >"$HPCRUN_ATTEMPT_DIR/start")
fail() { # MESSAGE: print it, and record it for hpcrun status
  echo "hpcrun: $1" >&2
  (umask go-w && printf '{"status": 1, "signal": "", "ended": %s, "message": "%s"}\n' "$(date +%s.%N)" "${1//[\"\\]/ }" >"$HPCRUN_ATTEMPT_DIR/exit")
  exit 1
}
(umask go-w && mkdir -p "$HPCRUN_CHECKPOINT_DIR") || fail "there is no folder of checkpoints $(readlink -m "$HPCRUN_CHECKPOINT_DIR")"

# The uv.lock of /p x, installed on each node.
export VIRTUAL_ENV=/tmp/hpcrun-uv-7/1f
export PATH=/tmp/hpcrun-uv-7/1f/bin:"$PATH"

export OMP_NUM_THREADS=8 # CPUs of one rank; torchrun would set 1
export CUDA_VISIBLE_DEVICES= # no GPUs requested: all ranks run on CPUs

# torch's flight recorder, which writes the last collectives of a hang for hpcrun explain.
export TORCH_FR_BUFFER_SIZE="2000"
export TORCH_NCCL_DUMP_ON_TIMEOUT="1"
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# Install the locked packages on the local disk of each node. uv installs nothing if a job with the same lock was here;
# what no job has used for a month goes. Another user may have made this folder in /tmp: then stop.
export UV_PROJECT_ENVIRONMENT="$VIRTUAL_ENV" UV_LINK_MODE=${UV_LINK_MODE:-copy}
install='umask 077; mkdir -p "$1" && [ -O "$1" ] && [ ! -h "$1" ] || { echo "hpcrun: $1 on $HOSTNAME is not your folder; submit with HPCRUN_UV_DIR=/path, a folder that each node has or can make" >&2; exit 1; }
touch -c "$UV_PROJECT_ENVIRONMENT"; find "$1" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
exec uv sync --frozen --project "$2"'
command -v uv >/dev/null || fail "there is no uv on $HOSTNAME: load its module (--load), or put it on PATH"
bash -c "$install" install /tmp/hpcrun-uv-7 '/p x' || fail 'uv sync --frozen failed'

# The command of every rank.
command=(/tmp/hpcrun-uv-7/1f/bin/python -u train.py)

# Each node runs the command once. The command may start its own ranks, so RANK and WORLD_SIZE are not set. NODE_RANK,
# MASTER_ADDR and MASTER_PORT are set.
export NNODES=1

# This program starts the ranks, forwards signals and records exit statuses. hpcrun submit keeps a copy for the run.
launch=$HPCRUN_RUN_DIR/programs/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # submitted by hand: use the hpcrun that wrote this script
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /tmp/hpcrun-uv-7/1f/bin/python >/dev/null || fail 'there is no /tmp/hpcrun-uv-7/1f/bin/python on this node'
launch=(/tmp/hpcrun-uv-7/1f/bin/python -ISB "$launch/__main__.py")

# Each node of the job is a process on this machine.
exec "${launch[@]}" job --nodes 1 --came "$came" -- \
  "${launch[@]}" node -- "${launch[@]}" rank --once -- "${command[@]}"
