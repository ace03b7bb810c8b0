#!/bin/bash
# train: 1 node x 2 a100 GPUs, 1 rank by python, 5 elements, 2 tasks of 3
# Written by hpcrun from profile a100. Complete as it stands: `sbatch` this file by hand does the same.
#SBATCH --job-name=train
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gres=gpu:a100:2
#SBATCH --mem=240G
#SBATCH --time=01:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@120
#SBATCH --array=0-1

exec {came}<<<"$(base64 "/proc/$$/environ")" # keep the original environment for jobs that this job submits

# Folder for records and logs. hpcrun submit sets it; without hpcrun, create one in the folder where sbatch was called.
# The elements of this task.
elements=(0 1 2 4 5) task=${SLURM_ARRAY_TASK_ID:-0}
elements=("${elements[@]:task * 3:3}") element=${elements[0]:?"this sweep has no task $task"}
# The id of this task. SLURM_JOB_ID of the last task to start equals the id of the whole array.
job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_}${SLURM_ARRAY_TASK_ID:-$SLURM_JOB_ID}
attempt=${SLURM_RESTART_COUNT:-0} attempts=${HPCRUN_RUN_DIR-}/elements/$element/attempts
# A folder with the id of another job, or started by another job, was inherited from that job: do not use it.
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -n "${HPCRUN_JOB_ID-}" ] ||
  { [ -e "$attempts/0/start" ] && { [ "$attempt" = 0 ] || ! grep -qsF "\"$job\"" "$attempts/0/start"; }; }; then
  HPCRUN_RUN_DIR=${SLURM_SUBMIT_DIR:-$PWD}/hpcrun-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}
fi
HPCRUN_JOB_ID=$job
# Each element that has not ended begins an attempt; one that was cancelled before does not. One that was killed before it
# knew why it was terminated has not ended.
pack=() tries=() checkpoints=() failed="" # the elements that begin; the status of the first that failed in an earlier start
for element in "${elements[@]}"; do
  folder=$HPCRUN_RUN_DIR/elements/$element attempt=0 ended=""
  while [ -e "$folder/attempts/$attempt/start" ]; do attempt=$((attempt + 1)); done
  if [ "$attempt" -gt 0 ]; then ended=$(cat "$folder/attempts/$((attempt - 1))/exit" 2>/dev/null); fi
  if [ -e "$folder/cancelled" ] || [[ -n $ended && $ended != *'"again": true'* && $ended != *'"signal": "TERM"'*'"reason": ""'* ]]; then
    if [[ $ended =~ \"status\":\ ([1-9][0-9]*) ]]; then failed=${failed:-${BASH_REMATCH[1]}}; fi
    continue
  fi
  (umask go-w && mkdir -p "$folder/attempts/$attempt") || { echo "hpcrun: cannot write to $HPCRUN_RUN_DIR" >&2; exit 1; }
  (umask go-w && printf '{"job_id": "%s", "host": "%s", "started": %s}\n' "$HPCRUN_JOB_ID" "$HOSTNAME" "$(date +%s.%N)" >"$folder/attempts/$attempt/start")
  pack+=("$element") tries+=("$attempt") checkpoints+=("$(readlink -m "$folder/checkpoints")")
done
fail() { # MESSAGE: print it, and record it of each element for hpcrun status
  echo "hpcrun: $1" >&2
  for place in "${!pack[@]}"; do
    (umask go-w && printf '{"status": 1, "signal": "", "ended": %s, "message": "%s"}\n' "$(date +%s.%N)" "${1//[\"\\]/ }" >"$HPCRUN_RUN_DIR/elements/${pack[place]}/attempts/${tries[place]}/exit")
  done
  exit 1
}
[ -n "${pack[*]}" ] || exit "${failed:-0}"
# The set-up runs once, with the folders of the first of them; each element gets its own.
element=${pack[0]} attempt=${tries[0]}
export HPCRUN_RUN_DIR HPCRUN_JOB_ID HPCRUN_ELEMENT=$element HPCRUN_ATTEMPT=$attempt
export HPCRUN_ATTEMPT_DIR="$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt"
export HPCRUN_CHECKPOINT_DIR="$HPCRUN_RUN_DIR/elements/$element/checkpoints" # shared by all attempts
(umask go-w && mkdir -p "${checkpoints[@]}") || fail "there is no folder of checkpoints ${checkpoints[*]}"

# If the job's folder does not exist on this node, Slurm starts the job in /tmp.
[ "$PWD" != /tmp ] || [ -x "${SLURM_SUBMIT_DIR:-.}/." ] || fail "there is no folder $SLURM_SUBMIT_DIR on $HOSTNAME: it is gone, or this node does not have it"

# The virtual environment that was active at submission.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

export OMP_NUM_THREADS=10 # CPUs of one rank; torchrun would set 1

# torch's flight recorder, which writes the last collectives of a hang for hpcrun explain.
export TORCH_FR_BUFFER_SIZE="2000"
export TORCH_NCCL_DUMP_ON_TIMEOUT="1"
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# From the profile and --env.
export NCCL_DEBUG=WARN
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# The share of an element in the memory of its GPU, for torch (from 2.10 on) and JAX.
allocator=${PYTORCH_ALLOC_CONF-${PYTORCH_CUDA_ALLOC_CONF-}}
export PYTORCH_ALLOC_CONF="${allocator:+$allocator,}per_process_memory_fraction:0.45"
export XLA_PYTHON_CLIENT_MEM_FRACTION=0.45

# The command of every rank.
command=(/home/me/venv/bin/python -u train.py)
# The elements that begin: each with its attempt, the number of its own arguments, and these.
words=()
add() { words+=("${pack[place]}" "${tries[place]}" $# "$@"); }
for place in "${!pack[@]}"; do
  case ${pack[place]} in
    0) add --lr 1 --text 'a b' ;;
    1) add --lr 2 --text 'a b' ;;
    2) add --lr 3 --text 'a b' ;;
    4) add --lr 5 --text 'a b' ;;
    5) add --lr 6 --text 'a b' ;;
  esac
done

# Each node runs the command once. The command may start its own ranks, so RANK and WORLD_SIZE are not set. NODE_RANK,
# MASTER_ADDR and MASTER_PORT are set.
export NNODES=1

# This program starts the ranks, forwards signals and records exit statuses. hpcrun submit keeps a copy for the run.
launch=$HPCRUN_RUN_DIR/programs/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # submitted by hand: use the hpcrun that wrote this script
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

exec "${launch[@]}" pack "${failed:-0}" "${words[@]}" -- --came "$came" --grace 100 --requeue 1 -- \
  "${launch[@]}" node -- "${launch[@]}" rank --once -- "${command[@]}"
