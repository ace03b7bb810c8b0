#!/bin/bash
# train: 1 node x 4 GPUs, 4 ranks in 2 roles, 2 elements
# Written by hpcrun from profile local. Complete as it stands: `HPCRUN_ELEMENT=0 bash` this file by hand does the same.

exec {came}<<<"$(base64 "/proc/$$/environ")" # keep the original environment for jobs that this job submits

# Folder for records and logs. hpcrun submit sets it; without hpcrun, create one here.
element=${HPCRUN_ELEMENT:?"say which element of the sweep: HPCRUN_ELEMENT=0 bash $0"}
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

export OMP_NUM_THREADS=4 # CPUs of one rank; torchrun would set 1

# torch's flight recorder, which writes the last collectives of a hang for hpcrun explain.
export TORCH_FR_BUFFER_SIZE="2000"
export TORCH_NCCL_DUMP_ON_TIMEOUT="1"
export TORCH_FR_DUMP_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE="$HPCRUN_ATTEMPT_DIR/flight/rank_"

# The command of every rank of role trainer.
command=(/home/me/venv/bin/python -u train.py)
# The arguments of each array element.
case $element in
  0) command+=('{my-server.host}:{my-server.port}' --lr 1) ;;
  1) command+=('{my-server.host}:{my-server.port}' --lr 2) ;;
  *) fail "this sweep has no element $element" ;;
esac

# Let mpirun start its ranks on this node only. By default, or as newer Slurms set it, it calls srun (MPICH's and Intel's
# Hydra, Open MPI's plm), which hangs: this step holds the CPUs and GPUs.
if [[ ${HYDRA_BOOTSTRAP:-slurm} == slurm ]]; then export HYDRA_BOOTSTRAP=fork; fi
if [[ ${I_MPI_HYDRA_BOOTSTRAP:-slurm} == slurm ]]; then export I_MPI_HYDRA_BOOTSTRAP=fork; fi # Intel MPI
export HYDRA_RMK=${HYDRA_RMK-user}
export OMPI_MCA_plm=${OMPI_MCA_plm-^slurm} OMPI_MCA_ras=${OMPI_MCA_ras-^slurm} # Open MPI 4
export PRTE_MCA_plm=${PRTE_MCA_plm-^slurm} PRTE_MCA_ras=${PRTE_MCA_ras-^slurm} # Open MPI 5

# This program starts the ranks, forwards signals and records exit statuses. hpcrun submit keeps a copy for the run.
launch=$HPCRUN_RUN_DIR/programs/launch
[ -e "$launch" ] || launch=/opt/hpcrun/launch # submitted by hand: use the hpcrun that wrote this script
[ -e "$launch" ] || fail "there is no $launch on $HOSTNAME: submit this with hpcrun submit"
command -v /home/me/venv/bin/python >/dev/null || fail 'there is no /home/me/venv/bin/python on this node'
launch=(/home/me/venv/bin/python -ISB "$launch/__main__.py")

# The roles: `launch role` starts that of its node, with the addresses {port}, {NAME.host}, {NAME.port} and {NAME.url}
# filled in when the roles before it are ready.
role_my_server=(my-server --task 0 --tasks 1 --first-rank 0 --ranks 1 --launcher command --on-exit fail --ready 'tcp:{port}' --ready-timeout 600 --gpus 0:1:4 --env NPROC_PER_NODE=1 --env OMP_NUM_THREADS=4 --
  "${launch[@]}" rank --once -- serve '{port}')
role_trainer=(trainer --task 1 --tasks 1 --first-rank 1 --ranks 3 --launcher torchrun --on-exit end --after my-server --gpus 1:3:4 --env OMP_NUM_THREADS=4 --
  /home/me/venv/bin/python -m torch.distributed.run --nnodes=1 --nproc-per-node=3 --standalone --max-restarts=0 --no-python
  "${launch[@]}" rank -- "${command[@]}")

# Each node of the job is a process on this machine.
exec "${launch[@]}" job --nodes 2 --gpus '0;1,2,GPU-3f' --came "$came" -- \
  "${launch[@]}" role -- "${#role_my_server[@]}" "${role_my_server[@]}" "${#role_trainer[@]}" "${role_trainer[@]}"
