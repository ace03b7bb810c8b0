#!/bin/bash
# bash: 2 nodes x 2 a100 GPUs, 2 ranks by command
# Written by hpcrun from profile a100. Complete as it stands: `sbatch` this file by hand does the same.
#SBATCH --job-name=bash
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gres=gpu:a100:2
#SBATCH --mem=250G
#SBATCH --time=01:00:00
#SBATCH --no-requeue
#SBATCH --open-mode=append

exec {came}<<<"$(base64 "/proc/$$/environ")" # the environment as it came, for what this job submits itself

# Where records and logs go: hpcrun submit names the folder, sbatch by hand makes one where it was called.
element=${SLURM_ARRAY_TASK_ID:-0}
job=$SLURM_JOB_ID
attempt=${SLURM_RESTART_COUNT:-0} attempts=${HPCRUN_RUN_DIR-}/elements/$element/attempts
# A folder that comes with another job's id, or in which another job has started, was only inherited from that job.
if [ -z "${HPCRUN_RUN_DIR-}" ] || [ -n "${HPCRUN_JOB_ID-}" ] ||
  { [ -e "$attempts/0/start" ] && { [ "$attempt" = 0 ] || ! grep -qsF "\"$job\"" "$attempts/0/start"; }; }; then
  HPCRUN_RUN_DIR=${SLURM_SUBMIT_DIR:-$PWD}/hpcrun-$SLURM_JOB_ID
fi
HPCRUN_JOB_ID=$job
# The next that is free: without the queue the job may have had others.
while [ -e "$HPCRUN_RUN_DIR/elements/$element/attempts/$attempt/start" ]; do attempt=$((attempt + 1)); done
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

# Slurm starts a job in /tmp where its own folder is gone, or is not on this node.
[ "$PWD" != /tmp ] || [ -x "${SLURM_SUBMIT_DIR:-.}/." ] || fail "there is no folder $SLURM_SUBMIT_DIR on $HOSTNAME: it is gone, or this node does not have it"

# The virtual environment that was active when this was submitted.
export VIRTUAL_ENV=/home/me/venv
export PATH=/home/me/venv/bin:"$PATH"

export OMP_NUM_THREADS=16 # CPUs of one rank; torchrun would set 1

# From the profile and --env.
export NCCL_DEBUG=WARN
export CUDA_DEVICE_ORDER=PCI_BUS_ID

# What every rank runs.
command=(bash -c 'accelerate launch --machine_rank $NODE_RANK train.py')

# Each node runs the command once, which starts its own ranks there if it wants any. No RANK or WORLD_SIZE is set: those are its
# own to say. NODE_RANK, MASTER_ADDR and MASTER_PORT are.
export NNODES=2 NPROC_PER_NODE=2
# An mpirun starts its ranks on this node alone. Left to itself, or as newer Slurms set it, it calls srun (MPICH's and Intel's
# Hydra, Open MPI's plm), which waits without end for the CPUs and GPUs that this step holds.
if [[ ${HYDRA_BOOTSTRAP:-slurm} == slurm ]]; then export HYDRA_BOOTSTRAP=fork; fi
if [[ ${I_MPI_HYDRA_BOOTSTRAP:-slurm} == slurm ]]; then export I_MPI_HYDRA_BOOTSTRAP=fork; fi # Intel MPI
export HYDRA_RMK=${HYDRA_RMK-user}
export OMPI_MCA_plm=${OMPI_MCA_plm-^slurm} OMPI_MCA_ras=${OMPI_MCA_ras-^slurm} # Open MPI 4
export PRTE_MCA_plm=${PRTE_MCA_plm-^slurm} PRTE_MCA_ras=${PRTE_MCA_ras-^slurm} # Open MPI 5

# What starts the ranks, hands on signals and writes down how each of them ended: hpcrun submit puts it into the run's folder.
launch=$HPCRUN_RUN_DIR/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # by hand: that of the hpcrun that wrote this
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

# --kill-on-bad-exit: one failed task ends them all; the others would wait 300 s in torchrun's exit barrier. --wait=0: a rank may
# take its time at the end. --cpus-per-task: srun has not inherited it since Slurm 22.05.
exec "${launch[@]}" job --came "$came" -- \
  srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=32 --wait=0 --export=ALL --kill-on-bad-exit=1 \
  "${launch[@]}" node -- "${launch[@]}" rank --once -- "${command[@]}"
