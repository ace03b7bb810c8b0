"""The options of a job, each declared once, in the order and the panels of ``--help``."""

# Annotations that are text would be compiled anew for each command that reads them.
from typing import Annotated

from hpcrun.cli import complete
from hpcrun.cli.submission_options import SUBMISSION as SUBMISSION
from hpcrun.cli.submission_options import SubmissionOptions
from hpcrun.cli.submission_options import job_option as _option

RESOURCES, PLACEMENT, LAUNCH, SWEEPS = "Resources", "Placement", "Launch", "Sweeps"
REQUEUE, SNAPSHOT = "Requeue", "Snapshot"


class JobOptions(SubmissionOptions):
    """One attribute per field of ``JobRequest``; the annotations are the command line, in the order of ``--help``.

    Those of the base class come last.
    """

    gpus: Annotated[
        str | None,
        _option(
            "--gpus",
            "-G",
            metavar="[TYPE:]N",
            panel=RESOURCES,
            help="GPUs of the whole job (sbatch --gpus): 4, a100:4; 0 for a CPU job. Default: 1 on each node.",
        ),
    ] = None
    nodes: Annotated[
        int | None,
        _option(
            "--nodes",
            "-N",
            metavar="N",
            panel=RESOURCES,
            help="Number of nodes (sbatch --nodes). Default: the fewest that hold the GPUs.",
        ),
    ] = None
    walltime_s: Annotated[
        str | None,
        _option(
            "--time",
            "-t",
            metavar="TIME",
            panel=RESOURCES,
            help="Time limit (sbatch --time): 90 (minutes), 1:30:00, 36h, 90m. Default: the profile's.",
        ),
    ] = None
    gpus_per_node: Annotated[
        str | None,
        _option(
            "--gpus-per-node",
            metavar="[TYPE:]N",
            panel=RESOURCES,
            help="GPUs of each node (sbatch --gpus-per-node). Default: --gpus divided by --nodes.",
        ),
    ] = None
    nproc_per_node: Annotated[
        int | None,
        _option(
            "--nproc-per-node",
            metavar="N",
            panel=RESOURCES,
            help="Ranks on each node (torchrun --nproc-per-node). Default: one per GPU.",
        ),
    ] = None
    cpus: Annotated[
        int | None,
        _option("--cpus", metavar="N", panel=RESOURCES, help="CPUs of each node. Default: the profile's per GPU."),
    ] = None
    cpus_per_task: Annotated[
        int | None,
        _option(
            "--cpus-per-task",
            "-c",
            metavar="N",
            panel=RESOURCES,
            help="CPUs of each Slurm task (sbatch --cpus-per-task). A task is a node, or a rank with --launcher srun.",
        ),
    ] = None
    cpus_per_gpu: Annotated[
        int | None,
        _option("--cpus-per-gpu", metavar="N", panel=RESOURCES, help="CPUs for each GPU (sbatch --cpus-per-gpu)."),
    ] = None
    memory_mb: Annotated[
        str | None,
        _option(
            "--mem",
            metavar="SIZE",
            panel=RESOURCES,
            help="Memory of each node (sbatch --mem): 64G, 500M; 0 for all. Default: the profile's per GPU.",
        ),
    ] = None
    cancel_idle_s: Annotated[
        str | None,
        _option("--cancel-idle", metavar="TIME", panel=RESOURCES, help="End a job whose GPUs are all idle: 30m, 2h."),
    ] = None

    profile: Annotated[
        str | None,
        _option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Cluster profile, by name or path. Default: the one `profile list` marks.",
            panel=PLACEMENT,
            complete=complete.profile_name,
        ),
    ] = None
    partition: Annotated[
        str | None,
        _option(
            "--partition",
            "-p",
            metavar="NAME",
            help="Partition (sbatch --partition). Default: the profile's.",
            panel=PLACEMENT,
            complete=complete.partition,
        ),
    ] = None
    account: Annotated[
        str | None,
        _option(
            "--account",
            "-A",
            metavar="NAME",
            help="Account (sbatch --account). Default: the profile's.",
            panel=PLACEMENT,
            complete=complete.account,
        ),
    ] = None
    qos: Annotated[
        str | None,
        _option(
            "--qos",
            "-q",
            metavar="NAME",
            help="Quality of service (sbatch --qos). Default: the profile's.",
            panel=PLACEMENT,
            complete=complete.qos,
        ),
    ] = None
    constraint: Annotated[
        str | None,
        _option("--constraint", "-C", metavar="FEATURES", panel=PLACEMENT, help="Node features (sbatch --constraint)."),
    ] = None
    reservation: Annotated[
        str | None,
        _option("--reservation", metavar="NAME", help="Reservation (sbatch --reservation).", panel=PLACEMENT),
    ] = None
    exclude: Annotated[
        str | None,
        _option("--exclude", "-x", metavar="NODES", help="Nodes to exclude (sbatch --exclude).", panel=PLACEMENT),
    ] = None
    nodelist: Annotated[
        str | None,
        _option("--nodelist", "-w", metavar="NODES", help="Nodes to use (sbatch --nodelist).", panel=PLACEMENT),
    ] = None
    segment: Annotated[
        int | None,
        _option(
            "--segment",
            metavar="N",
            panel=PLACEMENT,
            help="Nodes per network block (sbatch --segment, Slurm 23.11 or later).",
        ),
    ] = None
    sbatch: Annotated[
        list[str] | None,
        _option("--sbatch", metavar="KEY[=VALUE]", panel=PLACEMENT, help="Any other option of sbatch. Repeatable."),
    ] = None
    no_sbatch: Annotated[
        list[str] | None,
        _option(
            "--no-sbatch",
            metavar="KEY",
            panel=PLACEMENT,
            help="Leave out an sbatch option of the profile. Repeatable.",
        ),
    ] = None

    launcher: Annotated[
        str | None,
        _option(
            "--launcher",
            metavar="NAME",
            panel=LAUNCH,
            help="How ranks start: torchrun (default with GPUs); srun, one task per rank (Lightning, MPI); python, one "
            "process per node (default without GPUs); command, a program that starts its own ranks (accelerate).",
            complete=complete.launcher,
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        _option("--env", metavar="NAME=VALUE", panel=LAUNCH, help="Set an environment variable. Repeatable."),
    ] = None
    python: Annotated[
        str | None,
        _option(
            "--python",
            metavar="PATH",
            panel=LAUNCH,
            help="Python of the job. Default: that of the active virtual or conda environment.",
        ),
    ] = None
    uv: Annotated[
        bool,
        _option("--uv", panel=LAUNCH, help="Install uv.lock on the disk of each node (uv sync), and use it."),
    ] = False
    load: Annotated[
        list[str] | None,
        _option("--load", metavar="MODULE", panel=LAUNCH, help="Load an environment module. Repeatable."),
    ] = None
    setup: Annotated[
        list[str] | None,
        _option("--setup", metavar="CMD", panel=LAUNCH, help="Run a shell command before the ranks start. Repeatable."),
    ] = None
    srun: Annotated[
        list[str] | None,
        _option(
            "--srun",
            metavar="KEY[=VALUE]",
            panel=LAUNCH,
            help="Option of the srun that starts the ranks: mpi=pmix, cpu-bind=cores. Repeatable.",
        ),
    ] = None
    torchrun: Annotated[
        list[str] | None,
        _option(
            "--torchrun",
            metavar="KEY[=VALUE]",
            panel=LAUNCH,
            help="Option of torchrun: max-restarts=1, numa-binding=node. Repeatable.",
        ),
    ] = None
    module: Annotated[
        bool, _option("--module", "-m", panel=LAUNCH, help="SCRIPT is a Python module (torchrun --module).")
    ] = False
    workdir: Annotated[
        str | None,
        _option(
            "--workdir",
            metavar="DIR",
            panel=LAUNCH,
            help="Working directory of the job (sbatch --chdir). Default: the current directory.",
        ),
    ] = None
    secrets: Annotated[
        list[str] | None,
        _option(
            "--secret",
            metavar="NAME",
            panel=LAUNCH,
            help="Pass this variable of your environment to the job without writing its value to a file. Repeatable.",
        ),
    ] = None
    container: Annotated[
        str | None,
        _option(
            "--container",
            metavar="IMAGE",
            panel=LAUNCH,
            help="Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none` removes the profile's.",
        ),
    ] = None
    mounts: Annotated[
        list[str] | None,
        _option(
            "--mount",
            metavar="SRC[:DST[:ro]]",
            panel=LAUNCH,
            help="Mount a folder in the container, besides the run's and the job's. Repeatable.",
        ),
    ] = None
    preflight: Annotated[
        bool,
        _option("--preflight", panel=LAUNCH, help="Check all nodes first (at most 30 s); a bad one fails the job."),
    ] = False

    sweep: Annotated[
        list[str] | None,
        _option(
            "--sweep",
            metavar="NAME=VALUE,...",
            panel=SWEEPS,
            help="Run the script once per value, with --NAME VALUE, or with VALUE in place of {NAME} in ARGS. "
            "Repeatable: all combinations.",
        ),
    ] = None
    sweep_file: Annotated[
        str | None,
        _option(
            "--sweep-file",
            metavar="FILE",
            panel=SWEEPS,
            help="Read parameters from YAML (product:, zip:, or a list) or from CSV with a header.",
        ),
    ] = None
    max_parallel: Annotated[
        int | None,
        _option(
            "--max-parallel",
            metavar="N",
            panel=SWEEPS,
            help="Array elements that may run at once (sbatch --array=...%N). Default: all.",
        ),
    ] = None
    elements: Annotated[
        str | None,
        _option("--elements", metavar="3,7-9", panel=SWEEPS, help="Submit only these array elements. Default: all."),
    ] = None

    requeue: Annotated[
        int | None,
        _option(
            "--requeue",
            metavar="N",
            panel=REQUEUE,
            help="Requeue up to N times after a time limit, a preemption or a node failure. Default: the profile's.",
        ),
    ] = None
    warn_s: Annotated[
        str | None,
        _option(
            "--warn",
            metavar="TIME",
            panel=REQUEUE,
            help="Signal the ranks this long before the time limit (SIGUSR1, should_stop()): 120s, 5m.",
        ),
    ] = None
    retry_on_failure: Annotated[
        bool,
        _option("--retry-on-failure", panel=REQUEUE, help="Requeue also when the program fails; needs --requeue."),
    ] = False
    exclude_bad_nodes: Annotated[
        bool,
        _option("--exclude-bad-nodes", panel=REQUEUE, help="Exclude nodes on which attempts failed (`hpcrun nodes`)."),
    ] = False
    restarts: Annotated[
        int | None,
        _option(
            "--restarts",
            metavar="N",
            panel=REQUEUE,
            help="Restart the ranks up to N times in the same allocation after a node failure. Default: the profile's.",
        ),
    ] = None
    spares: Annotated[
        int | None,
        _option(
            "--spares",
            metavar="N",
            panel=REQUEUE,
            help="Allocate N spare nodes that replace failed ones; needs --restarts. Default: the profile's.",
        ),
    ] = None

    snapshot: Annotated[
        bool,
        _option(
            "--snapshot", panel=SNAPSHOT, help="Run a copy of the code as it is now: the git work tree, or this folder."
        ),
    ] = False
    snapshot_limit_mb: Annotated[
        str | None,
        _option("--snapshot-limit", metavar="SIZE", panel=SNAPSHOT, help="Largest size of the copy. Default: 200M."),
    ] = None
    snapshot_include: Annotated[
        list[str] | None,
        _option(
            "--snapshot-include",
            metavar="PATTERN",
            panel=SNAPSHOT,
            help="Copy files that look like secrets all the same: .env, certs/*.pem. Repeatable.",
        ),
    ] = None
