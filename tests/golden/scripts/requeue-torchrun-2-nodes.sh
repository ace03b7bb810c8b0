#!/bin/bash
# train: 2 nodes x 2 a100 GPUs, 4 ranks by torchrun
# Written by hpcrun from profile a100. Complete as it stands: `sbatch` this file by hand does the same.
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gres=gpu:a100:2
#SBATCH --mem=240G
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300

exec {came}<<<"$(base64 "/proc/$$/environ")" # keep the original environment for jobs that this job submits

# Folder for records and logs. hpcrun submit sets it; without hpcrun, create one in the folder where sbatch was called.
element=${SLURM_ARRAY_TASK_ID:-0}
job=$SLURM_JOB_ID
attempt=${SLURM_RESTART_COUNT:-0} attempts=${HPCRUN_RUN_DIR-}/elements/$element/attempts
# A folder with the id of another job, or started by another job, was inherited from that job: do not use it.
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -n "${HPCRUN_JOB_ID-}" ] ||
  { [ -e "$attempts/0/start" ] && { [ "$attempt" = 0 ] || ! grep -qsF "\"$job\"" "$attempts/0/start"; }; }; then
  HPCRUN_RUN_DIR=${SLURM_SUBMIT_DIR:-$PWD}/hpcrun-$SLURM_JOB_ID
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

# The virtual environment that was active at submission.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

export OMP_NUM_THREADS=16 # CPUs of one rank; torchrun would set 1

# torch's flight recorder, which writes the last collectives of a hang for hpcrun explain.
export TORCH_FR_BUFFER_SIZE="2000"
export TORCH_NCCL_DUMP_ON_TIMEOUT="1"
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# From the profile and --env.
export NCCL_DEBUG=WARN
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# The command of every rank.
command=(/home/me/venv/bin/python -u train.py)

# This program starts the ranks, forwards signals and records exit statuses. hpcrun submit keeps a copy for the run.
launch=$HPCRUN_RUN_DIR/programs/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # submitted by hand: use the hpcrun that wrote this script
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

# --kill-on-bad-exit: a failed task ends all tasks; they would wait 300 s in torchrun's exit barrier. --wait=0: no limit for slow
# ranks at the end. --cpus-per-task: since Slurm 22.05, srun does not inherit it.
exec "${launch[@]}" job --came "$came" --grace 280 --requeue 3 --retry-on-failure --exclude-bad-nodes -- \
  srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32 --wait=0 --export=ALL --kill-on-bad-exit=1 \
  "${launch[@]}" node --torchrun -- \
  /home/me/venv/bin/python -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --rdzv-backend=static --max-restarts=0 --no-python \
  "${launch[@]}" rank -- "${command[@]}"
