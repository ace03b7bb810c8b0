#!/bin/bash
# train: 2 nodes x 2 GPUs, 4 ranks by torchrun
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

# The virtual environment that was active at submission.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

export OMP_NUM_THREADS=2 # CPUs of one rank; torchrun would set 1
export CUDA_VISIBLE_DEVICES= # fewer GPUs than ranks: all ranks run on CPUs

# torch's flight recorder, which writes the last collectives of a hang for hpcrun explain.
export TORCH_FR_BUFFER_SIZE="2000"
export TORCH_NCCL_DUMP_ON_TIMEOUT="1"
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# The command of every rank.
command=(/home/me/venv/bin/python -u train.py)

# This program starts the ranks, forwards signals and records exit statuses. hpcrun submit keeps a copy for the run.
launch=$HPCRUN_RUN_DIR/programs/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # submitted by hand: use the hpcrun that wrote this script
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

# Each node of the job is a process on this machine.
exec "${launch[@]}" job --nodes 2 --came "$came" --grace 100 --requeue 1 -- \
  "${launch[@]}" node --torchrun -- \
  /home/me/venv/bin/python -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --rdzv-backend=static --max-restarts=0 --no-python \
  "${launch[@]}" rank -- "${command[@]}"
