"""The options of a job, each declared once, in the order and the panels of ``--help``."""

from hpcrun.cli import complete
from hpcrun.cli.help_panel import HelpPanel

SUBMISSION = "Submission"
_resources, _placement, _launch = HelpPanel("Resources"), HelpPanel("Placement"), HelpPanel("Launch")
_sweeps, _requeue, _snapshot = HelpPanel("Sweeps"), HelpPanel("Requeue"), HelpPanel("Snapshot")
_submission = HelpPanel(SUBMISSION)


class JobOptions:
    """One attribute per field of ``JobRequest``, in the order of ``--help``."""

    gpus = _resources.text(
        "--gpus",
        "-G",
        metavar="[TYPE:]N",
        help="GPUs of the whole job (sbatch --gpus): 4, a100:4; 0 for a CPU job. Default: 1 on each node.",
    )
    nodes = _resources.number(
        "--nodes", "-N", metavar="N", help="Number of nodes (sbatch --nodes). Default: the fewest that hold the GPUs."
    )
    walltime_s = _resources.text(
        "--time",
        "-t",
        metavar="TIME",
        help="Time limit (sbatch --time): 90m, 36h, 1:30:00, 1-12:00:00. Default: the profile's.",
    )
    gpus_per_node = _resources.text(
        "--gpus-per-node",
        metavar="[TYPE:]N",
        help="GPUs of each node (sbatch --gpus-per-node). Default: --gpus divided by --nodes.",
    )
    nproc_per_node = _resources.number(
        "--nproc-per-node", metavar="N", help="Ranks on each node (torchrun --nproc-per-node). Default: one per GPU."
    )
    cpus = _resources.number("--cpus", metavar="N", help="CPUs of each node. Default: the profile's per GPU.")
    cpus_per_task = _resources.number(
        "--cpus-per-task",
        "-c",
        metavar="N",
        help="CPUs of each Slurm task (sbatch --cpus-per-task). A task is a node, or a rank with --launcher srun.",
    )
    cpus_per_gpu = _resources.number("--cpus-per-gpu", metavar="N", help="CPUs for each GPU (sbatch --cpus-per-gpu).")
    memory_mb = _resources.text(
        "--mem",
        metavar="SIZE",
        help="Memory of each node (sbatch --mem): 64G, 500M; 0 for all. Default: the profile's per GPU.",
    )
    cancel_idle_s = _resources.text("--cancel-idle", metavar="TIME", help="End a job whose GPUs are all idle: 30m, 2h.")

    profile = _placement.text(
        "--profile",
        "-P",
        metavar="NAME",
        help="Cluster profile, by name or path. Default: the one `profile list` marks.",
        complete=complete.profile_name,
    )
    partition = _placement.text(
        "--partition",
        "-p",
        metavar="NAME",
        help="Partition (sbatch --partition). Default: the profile's.",
        complete=complete.partition,
    )
    account = _placement.text(
        "--account",
        "-A",
        metavar="NAME",
        help="Account (sbatch --account). Default: the profile's.",
        complete=complete.account,
    )
    qos = _placement.text(
        "--qos",
        "-q",
        metavar="NAME",
        help="Quality of service (sbatch --qos). Default: the profile's.",
        complete=complete.qos,
    )
    constraint = _placement.text("--constraint", "-C", metavar="FEATURES", help="Node features (sbatch --constraint).")
    reservation = _placement.text("--reservation", metavar="NAME", help="Reservation (sbatch --reservation).")
    exclude = _placement.text("--exclude", "-x", metavar="NODES", help="Nodes to exclude (sbatch --exclude).")
    nodelist = _placement.text("--nodelist", "-w", metavar="NODES", help="Nodes to use (sbatch --nodelist).")
    segment = _placement.number(
        "--segment", metavar="N", help="Nodes per network block (sbatch --segment, Slurm 23.11 or later)."
    )
    sbatch = _placement.texts("--sbatch", metavar="KEY[=VALUE]", help="Any other option of sbatch. Repeatable.")
    no_sbatch = _placement.texts(
        "--no-sbatch", metavar="KEY", help="Leave out an sbatch option of the profile. Repeatable."
    )

    launcher = _launch.text(
        "--launcher",
        metavar="NAME",
        help="How ranks start: torchrun (default with GPUs); srun, one task per rank (Lightning, MPI); python, one "
        "process per node (default without GPUs); command, a program that starts its own ranks (accelerate).",
        complete=complete.launcher,
    )
    env = _launch.texts("--env", metavar="NAME=VALUE", help="Set an environment variable. Repeatable.")
    python = _launch.text(
        "--python", metavar="PATH", help="Python of the job. Default: that of the active virtual or conda environment."
    )
    uv = _launch.flag("--uv", help="Install uv.lock on the disk of each node (uv sync), and use it.")
    load = _launch.texts("--load", metavar="MODULE", help="Load an environment module. Repeatable.")
    setup = _launch.texts("--setup", metavar="CMD", help="Run a shell command before the ranks start. Repeatable.")
    srun = _launch.texts(
        "--srun",
        metavar="KEY[=VALUE]",
        help="Option of the srun that starts the ranks: mpi=pmix, cpu-bind=cores. Repeatable.",
    )
    torchrun = _launch.texts(
        "--torchrun", metavar="KEY[=VALUE]", help="Option of torchrun: max-restarts=1, numa-binding=node. Repeatable."
    )
    module = _launch.flag("--module", "-m", help="SCRIPT is a Python module (torchrun --module).")
    workdir = _launch.text(
        "--workdir",
        metavar="DIR",
        help="Working directory of the job (sbatch --chdir). Default: the current directory.",
    )
    secrets = _launch.texts(
        "--secret",
        metavar="NAME",
        help="Pass this variable of your environment to the job without writing its value to a file. Repeatable.",
    )
    container = _launch.text(
        "--container",
        metavar="IMAGE",
        help="Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none` removes the profile's.",
    )
    mounts = _launch.texts(
        "--mount",
        metavar="SRC[:DST[:ro]]",
        help="Mount a folder in the container, besides the run's and the job's. Repeatable.",
    )
    preflight = _launch.flag("--preflight", help="Check all nodes first (at most 30 s); a bad one fails the job.")

    sweep = _sweeps.texts(
        "--sweep",
        metavar="NAME=VALUE,...",
        help="Run the script once per value, with --NAME VALUE, or with VALUE in place of {NAME} in ARGS. "
        "Repeatable: all combinations.",
    )
    sweep_file = _sweeps.text(
        "--sweep-file",
        metavar="FILE",
        help="Read parameters from YAML (product:, zip:, or a list) or from CSV with a header.",
    )
    max_parallel = _sweeps.number(
        "--max-parallel", metavar="N", help="Array elements that may run at once (sbatch --array=...%N). Default: all."
    )
    elements = _sweeps.text("--elements", metavar="3,7-9", help="Submit only these array elements. Default: all.")

    requeue = _requeue.number(
        "--requeue",
        metavar="N",
        help="Requeue up to N times after a time limit, a preemption or a node failure. Default: the profile's.",
    )
    warn_s = _requeue.text(
        "--warn",
        metavar="TIME",
        help="Signal the ranks this long before the time limit (SIGUSR1, should_stop()): 120s, 5m.",
    )
    retry_on_failure = _requeue.flag("--retry-on-failure", help="Requeue also when the program fails; needs --requeue.")
    exclude_bad_nodes = _requeue.flag(
        "--exclude-bad-nodes", help="Exclude nodes on which attempts failed (`hpcrun nodes`)."
    )
    restarts = _requeue.number(
        "--restarts",
        metavar="N",
        help="Restart the ranks up to N times in the same allocation after a node failure. Default: the profile's.",
    )
    spares = _requeue.number(
        "--spares",
        metavar="N",
        help="Allocate N spare nodes that replace failed ones; needs --restarts. Default: the profile's.",
    )

    snapshot = _snapshot.flag(
        "--snapshot", help="Run a copy of the code as it is now: the git work tree, or this folder."
    )
    snapshot_limit_mb = _snapshot.text(
        "--snapshot-limit", metavar="SIZE", help="Largest size of the copy. Default: 200M."
    )
    snapshot_include = _snapshot.texts(
        "--snapshot-include",
        metavar="PATTERN",
        help="Copy files that look like secrets all the same: .env, certs/*.pem. Repeatable.",
    )

    name = _submission.text(
        "--name", "-J", metavar="NAME", help="Job name (sbatch --job-name). Default: the script's name."
    )
    notify = _submission.texts(
        "--notify",
        metavar="URL",
        help="Send messages there: an apprise URL (ntfys://HOST/TOPIC), '$NAME' of a variable that holds one, or "
        "mailto:ADDRESS. `none` removes the configured ones. Repeatable.",
    )
    notify_on = _submission.text(
        "--notify-on",
        metavar="EVENTS",
        help="Events to send messages about, with commas: started, first-step, failed, finished, waiting, idle. "
        "Default: all.",
    )
    mail_user = _submission.text("--mail-user", metavar="ADDRESS", help="Send mail to this address (sbatch).")
    mail_type = _submission.text("--mail-type", metavar="EVENTS", help="Events to mail about (sbatch): END, FAIL.")
