#!/bin/bash
# train: 1 node x 2 GPUs, 2 ranks by torchrun, 2 elements
# Written by hpcrun from profile local. Complete as it stands: `HPCRUN_ELEMENT=0 bash` this file by hand does the same.

exec {came}<<<"$(base64 "/proc/$$/environ")" # the environment as it came, for what this job submits itself

# Where records and logs go: hpcrun submit names the folder, bash by hand makes one here.
element=${HPCRUN_ELEMENT:?"say which element of the sweep: HPCRUN_ELEMENT=0 bash $0"}
attempt=${HPCRUN_ATTEMPT:-0}
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; then
  HPCRUN_JOB_ID=L$$
  HPCRUN_RUN_DIR=$PWD/hpcrun-$HPCRUN_JOB_ID
fi
export HPCRUN_RUN_DIR HPCRUN_JOB_ID HPCRUN_ELEMENT=$element HPCRUN_ATTEMPT=$attempt
export HPCRUN_ATTEMPT_DIR="$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt"
export HPCRUN_CHECKPOINT_DIR="$HPCRUN_RUN_DIR/elements/$element/checkpoints" # of all attempts
mkdir -p "$HPCRUN_ATTEMPT_DIR" || { echo "hpcrun: cannot write to $HPCRUN_RUN_DIR" >&2; exit 1; }
printf '{"job_id": "%s", "host": "%s", "started": %s}\n' "$HPCRUN_JOB_ID" "$HOSTNAME" "$(date +%s.%N)" >"$HPCRUN_ATTEMPT_DIR/start"
fail() { # MESSAGE: said, and kept for hpcrun status
  echo "hpcrun: $1" >&2
  printf '{"status": 1, "signal": "", "ended": %s, "message": "%s"}\n' "$(date +%s.%N)" "${1//[\"\\]/ }" >"$HPCRUN_ATTEMPT_DIR/exit"
  exit 1
}
mkdir -p "$HPCRUN_CHECKPOINT_DIR" || fail "there is no folder of checkpoints $(readlink -m "$HPCRUN_CHECKPOINT_DIR")"

# The virtual environment that was active when this was submitted.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

export OMP_NUM_THREADS=4 # CPUs of one rank; torchrun would set 1
export CUDA_VISIBLE_DEVICES= # fewer GPUs here than ranks: every rank runs on the CPU

# What every rank runs.
command=(/home/me/venv/bin/python -u train.py)
# The arguments that each element has of its own.
case $element in
  0) command+=(--lr 1) ;;
  2) command+=(--lr 3) ;;
  *) fail "this sweep has no element $element" ;;
esac

# What starts the ranks, hands on signals and writes down how each of them ended: hpcrun submit puts it into the run's folder.
launch=$HPCRUN_RUN_DIR/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # by hand: that of the hpcrun that wrote this
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

# The nodes are processes of this machine.
exec "${launch[@]}" job --nodes 1 --came "$came" -- \
  "${launch[@]}" node --torchrun -- \
  /home/me/venv/bin/python -m torch.distributed.run --nnodes=1 --nproc-per-node=2 --standalone --max-restarts=0 --no-python \
  "${launch[@]}" rank -- "${command[@]}"
