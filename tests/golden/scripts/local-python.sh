#!/bin/bash
# prepare: 1 node x 8 CPUs, 1 rank by python
# Written by hpcrun from profile local. Complete as it stands: `bash` this file by hand does the same.

exec {came}<<<"$(base64 "/proc/$$/environ")" # the environment as it came, for what this job submits itself

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
mkdir -p "$HPCRUN_ATTEMPT_DIR" || { echo "hpcrun: cannot write to $HPCRUN_RUN_DIR" >&2; exit 1; }
printf '{"job_id": "%s", "host": "%s", "started": %s}\n' "$HPCRUN_JOB_ID" "$HOSTNAME" "$(date +%s.%N)" >"$HPCRUN_ATTEMPT_DIR/start"
fail() { # MESSAGE: said, and kept for hpcrun status
  echo "hpcrun: $1" >&2
  printf '{"status": 1, "signal": "", "ended": %s, "message": "%s"}\n' "$(date +%s.%N)" "${1//[\"\\]/ }" >"$HPCRUN_ATTEMPT_DIR/exit"
  exit 1
}
mkdir -p "$HPCRUN_CHECKPOINT_DIR" || fail "there is no folder of checkpoints $(readlink -m "$HPCRUN_CHECKPOINT_DIR")"

export OMP_NUM_THREADS=8 # CPUs of one rank; torchrun would set 1

# What every rank runs.
command=(python3 -u prepare.py)

# Each node runs the command once, which starts its own ranks there if it wants any. No RANK or WORLD_SIZE is set: those are its
# own to say. NODE_RANK, MASTER_ADDR and MASTER_PORT are.
export NNODES=1

# What starts the ranks, hands on signals and writes down how each of them ended: hpcrun submit puts it into the run's folder.
launch=$HPCRUN_RUN_DIR/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # by hand: that of the hpcrun that wrote this
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v python3 >/dev/null || fail 'there is no python3 on this node'
launch=(python3 -ISB "$launch/__main__.py")

# The nodes are processes of this machine.
exec "${launch[@]}" job --nodes 1 --came "$came" -- \
  "${launch[@]}" node -- "${launch[@]}" rank --once -- "${command[@]}"
