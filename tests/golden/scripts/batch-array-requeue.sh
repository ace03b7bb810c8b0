#!/bin/bash
# old: 2 nodes x 4 a100 GPUs, 8 ranks by torchrun, 3 elements
# Written by hpcrun from profile a100. Complete as it stands: `sbatch` this file by hand does the same.
#SBATCH --job-name=old
#SBATCH --open-mode=append
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=01:00:00
#SBATCH --array=1-3%2
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --gpus-per-node=a100:4

exec {came}<<<"$(base64 "/proc/$$/environ")" # keep the original environment for jobs that this job submits

# Folder for records and logs. hpcrun submit sets it; without hpcrun, create one in the folder where sbatch was called.
element=${SLURM_ARRAY_TASK_ID:-0}
# The id of this element. SLURM_JOB_ID of the last element to start equals the id of the whole array.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
attempt=${SLURM_RESTART_COUNT:-0} attempts=${HPCRUN_RUN_DIR-}/elements/$element/attempts
# A folder with the id of another job, or started by another job, was inherited from that job: do not use it.
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -n "${HPCRUN_JOB_ID-}" ] ||
  { [ -e "$attempts/0/start" ] && { [ "$attempt" = 0 ] || ! grep -qsF "\"$job\"" "$attempts/0/start"; }; }; then
  HPCRUN_RUN_DIR=${SLURM_SUBMIT_DIR:-$PWD}/hpcrun-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
fi
HPCRUN_JOB_ID=$job
# The next free number: after restarts in the same allocation there are more attempts than requeues.
while [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; do attempt=$((attempt + 1)); done
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

# If the job's folder does not exist on this node, Slurm starts the job in /tmp.
[ "$PWD" != /tmp ] || [ -x "${SLURM_SUBMIT_DIR:-.}/." ] || fail "there is no folder $SLURM_SUBMIT_DIR on $HOSTNAME: it is gone, or this node does not have it"


# From the profile and --env.
[ -n "${HPCRUN_SECRET_0-}" ] || fail 'HPCRUN_SECRET_0 is not set: a secret stands in no script, so set it where you submit'
export HPCRUN_SECRET_0

# old.sbatch as it was at submission. Its launch calls hpcrun_launch, and its first line notes what fails.
script=$HPCRUN_ATTEMPT_DIR/old.sbatch
sed 's/^|//' >"$script" <<'END_OF_SCRIPT' || fail "cannot write $script"
|{ trap '{ printf "%s %s %s\n" "$?" "$LINENO" "$BASH_COMMAND" >|"$HPCRUN_SCRIPT_ERRORS"; } 2>/dev/null' ERR; } 2>/dev/null
|#SBATCH -J old -p gpu -N 2 --ntasks-per-node=1 --gres=gpu:a100:4 --time=4:00:00 --array=1-3%2
|#SBATCH --output=logs/%j.out
|set -e
|export HF_TOKEN="$HPCRUN_SECRET_0"
|"$HPCRUN_LAUNCH" srun ::: torchrun --nnodes 2 --nproc-per-node 4 \
|    --rdzv-endpoint "$(hostname):29500" :: train.py --seed "$SLURM_ARRAY_TASK_ID" "$@" | tee 'a b.log'
END_OF_SCRIPT
unset SLURM_OPEN_MODE # of hpcrun's own log
command=(/bin/bash -l "$script" 'a b' '$HOME')
# The arguments of each array element.
case $element in
  1) command+=() ;;
  2) command+=() ;;
  3) command+=() ;;
  *) fail "this sweep has no element $element" ;;
esac

# This program starts the ranks, forwards signals and records exit statuses. hpcrun submit keeps a copy for the run.
launch=$HPCRUN_RUN_DIR/programs/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # submitted by hand: use the hpcrun that wrote this script
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

exec "${launch[@]}" job --came "$came" --grace 100 --requeue 2 --script -- \
  "${command[@]}"
