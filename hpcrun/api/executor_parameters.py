"""The parameters of ``hpcrun.Executor``, with their types.

Generated: make golden, from the options of ``hpcrun submit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from hpcrun.api.own_parameters import OwnParameters, SubmititParameters


class ExecutorParameters(OwnParameters, SubmititParameters, total=False):
    """The parameters beside ``profile``; None resets one."""

    # Resources
    gpus: int | str | None
    """GPUs of the whole job (sbatch --gpus): 4, a100:4; 0 for a CPU job. Default: 1 on each node.
    """
    nodes: int | str | None
    """Number of nodes (sbatch --nodes); of 2-4 Slurm chooses. Default: the fewest that hold the
    GPUs.
    """
    time: int | str | None
    """Time limit (sbatch --time): minutes, 36h, 1:30:00, 1-12:00:00. Default: the profile's."""
    gpus_per_node: int | str | None
    """GPUs of each node (sbatch --gpus-per-node). Default: --gpus divided by --nodes."""
    tasks_per_node: int | None
    """Processes on each node that call the function. Default: 1."""
    cpus: int | None
    """CPUs of each node. Default: the profile's per GPU."""
    cpus_per_task: int | None
    """CPUs of each process that calls the function."""
    cpus_per_gpu: int | None
    """CPUs for each GPU (sbatch --cpus-per-gpu)."""
    mem: int | str | None
    """Memory of each node (sbatch --mem): 64G, 500M; 0 for all. Default: the profile's per GPU."""
    cancel_idle: str | None
    """End a job whose GPUs are all idle: 30m, 2h."""
    # Placement
    partition: str | None
    """Partition (sbatch --partition). Default: the profile's."""
    account: str | None
    """Account (sbatch --account). Default: the profile's."""
    qos: str | None
    """Quality of service (sbatch --qos). Default: the profile's."""
    constraint: str | None
    """Node features (sbatch --constraint)."""
    reservation: str | None
    """Reservation (sbatch --reservation)."""
    begin: str | None
    """Start no earlier than TIME (sbatch --begin): 20:00, now+2hours, 2026-12-24T08:00."""
    exclude: str | None
    """Nodes to exclude (sbatch --exclude)."""
    nodelist: str | None
    """Nodes to use (sbatch --nodelist)."""
    segment: int | None
    """Nodes per network block (sbatch --segment, Slurm 23.11 or later)."""
    sbatch: Mapping[str, Any] | Sequence[str] | str | None
    """Any other option of sbatch."""
    no_sbatch: Sequence[str] | str | None
    """Leave out an sbatch option of the profile."""
    # Launch
    env: Mapping[str, Any] | Sequence[str] | str | None
    """Set an environment variable."""
    python: str | PathLike[str] | None
    """Python of the job. Default: the one that submits."""
    load: Sequence[str] | str | None
    """Load an environment module."""
    setup: Sequence[str] | str | None
    """Run a shell command before the ranks start."""
    srun: Mapping[str, Any] | Sequence[str] | str | None
    """Option of the srun that starts the ranks, also in a batch script: mpi=pmix, cpu-bind=cores.
    """
    workdir: str | PathLike[str] | None
    """Working directory of the job (sbatch --chdir). Default: the current directory."""
    secrets: Sequence[str] | str | None
    """Pass this variable of your environment to the job without writing its value to a file."""
    container: str | PathLike[str] | None
    """Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none` removes the
    profile's.
    """
    mounts: Sequence[str] | str | None
    """Mount a folder in the container, besides the run's and the job's."""
    stage: Sequence[str | PathLike[str]] | str | None
    """Copy a file or folder to the disk of each node first, as $HPCRUN_STAGE/NAME. Default: the
    last part of SRC.
    """
    keep: int | None
    """Leave the copies of --stage, read-only, for your later jobs on the node; those older than
    DAYS give way first. Default: the job removes them.
    """
    warm: bool | None
    """Keep what compilers make (torch.compile, Triton) for the next job of this program."""
    no_warm: bool | None
    """Compile anew, in spite of the profile's launch.warm."""
    preflight: bool | None
    """Check all nodes first (at most 30 s); a bad one fails the job."""
    # Requeue
    requeue: int | None
    """Requeue up to N times after a time limit, a preemption or a node failure. Default: the
    profile's.
    """
    warn: str | None
    """Signal the ranks this long before the time limit (SIGUSR1, should_stop()): 120s, 5m."""
    retry_on_failure: bool | None
    """Requeue also when the function fails; needs requeue."""
    exclude_bad_nodes: bool | None
    """Exclude nodes on which attempts failed (`hpcrun nodes`)."""
    restarts: int | None
    """Restart the ranks up to N times in the same allocation after a node failure. Default: the
    profile's.
    """
    spares: int | None
    """Allocate N spare nodes that replace failed ones; needs restarts."""
    # Snapshot
    snapshot: bool | None
    """Run a copy of the code as it is now: the git work tree, or this folder."""
    snapshot_limit_mb: int | str | None
    """Largest size of the copy. Default: 200M."""
    snapshot_include: Sequence[str] | str | None
    """Copy files that look like secrets all the same: .env, certs/*.pem."""
    # Submission
    name: str | None
    """Job name (sbatch --job-name). Default: the function's name."""
    notify: Sequence[str] | str | None
    """Send messages there: an apprise URL (ntfys://HOST/TOPIC), '$NAME' of a variable that holds
    one, or mailto:ADDRESS. `none` removes the configured ones.
    """
    notify_on: Sequence[str] | str | None
    """Events to send messages about, with commas: started, first-step, failed, finished, waiting,
    idle. Default: all.
    """
    mail_user: str | None
    """Send mail to this address (sbatch)."""
    mail_type: str | None
    """Events to mail about (sbatch): END, FAIL."""


class ChangedParameters(ExecutorParameters, total=False):
    """The parameters that an executor may change later."""

    profile: str | None
