"""The options of a job, each declared once, in the order and the panels of ``--help``."""

from hpcrun.cli import complete
from hpcrun.cli.options import HelpPanel, argument

RESOURCES, PLACEMENT, LAUNCH = HelpPanel("Resources"), HelpPanel("Placement"), HelpPanel("Launch")
SWEEPS, REQUEUE, SNAPSHOT, SUBMISSION = (
    HelpPanel("Sweeps"),
    HelpPanel("Requeue"),
    HelpPanel("Snapshot"),
    HelpPanel("Submission"),
)


class JobOptions:
    """One attribute per field of ``JobRequest``, in the order of ``--help``."""

    gpus: str | None = RESOURCES.option(
        "--gpus -G [TYPE:]N",
        "GPUs of the whole job (sbatch --gpus): 4, a100:4; 0 for a CPU job. Default: 1 on each node.",
    )
    nodes: int | None = RESOURCES.option(
        "--nodes -N N", "Number of nodes (sbatch --nodes). Default: the fewest that hold the GPUs."
    )
    walltime_s: str | None = RESOURCES.option(
        "--time -t TIME", "Time limit (sbatch --time): 90m, 36h, 1:30:00, 1-12:00:00. Default: the profile's."
    )
    gpus_per_node: str | None = RESOURCES.option(
        "--gpus-per-node [TYPE:]N", "GPUs of each node (sbatch --gpus-per-node). Default: --gpus divided by --nodes."
    )
    nproc_per_node: int | None = RESOURCES.option(
        "--nproc-per-node N", "Ranks on each node (torchrun --nproc-per-node). Default: one per GPU."
    )
    cpus: int | None = RESOURCES.option("--cpus N", "CPUs of each node. Default: the profile's per GPU.")
    cpus_per_task: int | None = RESOURCES.option(
        "--cpus-per-task -c N",
        "CPUs of each Slurm task (sbatch --cpus-per-task). A task is a node, or a rank with --launcher srun.",
    )
    cpus_per_gpu: int | None = RESOURCES.option("--cpus-per-gpu N", "CPUs for each GPU (sbatch --cpus-per-gpu).")
    memory_mb: str | None = RESOURCES.option(
        "--mem SIZE", "Memory of each node (sbatch --mem): 64G, 500M; 0 for all. Default: the profile's per GPU."
    )
    cancel_idle_s: str | None = RESOURCES.option("--cancel-idle TIME", "End a job whose GPUs are all idle: 30m, 2h.")

    profile: str | None = PLACEMENT.option(
        "--profile -P NAME",
        "Cluster profile, by name or path. Default: the one `profile list` marks.",
        complete=complete.profile_name,
    )
    partition: str | None = PLACEMENT.option(
        "--partition -p NAME", "Partition (sbatch --partition). Default: the profile's.", complete=complete.partition
    )
    account: str | None = PLACEMENT.option(
        "--account -A NAME", "Account (sbatch --account). Default: the profile's.", complete=complete.account
    )
    qos: str | None = PLACEMENT.option(
        "--qos -q NAME", "Quality of service (sbatch --qos). Default: the profile's.", complete=complete.qos
    )
    constraint: str | None = PLACEMENT.option("--constraint -C FEATURES", "Node features (sbatch --constraint).")
    reservation: str | None = PLACEMENT.option("--reservation NAME", "Reservation (sbatch --reservation).")
    exclude: str | None = PLACEMENT.option("--exclude -x NODES", "Nodes to exclude (sbatch --exclude).")
    nodelist: str | None = PLACEMENT.option("--nodelist -w NODES", "Nodes to use (sbatch --nodelist).")
    segment: int | None = PLACEMENT.option(
        "--segment N", "Nodes per network block (sbatch --segment, Slurm 23.11 or later)."
    )
    sbatch: list[str] | None = PLACEMENT.option("--sbatch KEY[=VALUE]", "Any other option of sbatch. Repeatable.")
    no_sbatch: list[str] | None = PLACEMENT.option(
        "--no-sbatch KEY", "Leave out an sbatch option of the profile. Repeatable."
    )

    launcher: str | None = LAUNCH.option(
        "--launcher NAME",
        "How ranks start: torchrun (default with GPUs); srun, one task per rank (Lightning, MPI); python, one process "
        "per node (default without GPUs); command, a program that starts its own ranks (accelerate).",
        complete=complete.launcher,
    )
    env: list[str] | None = LAUNCH.option("--env NAME=VALUE", "Set an environment variable. Repeatable.")
    python: str | None = LAUNCH.option(
        "--python PATH", "Python of the job. Default: that of the active virtual or conda environment."
    )
    uv: bool = LAUNCH.flag("--uv", "Install uv.lock on the disk of each node (uv sync), and use it.")
    load: list[str] | None = LAUNCH.option("--load MODULE", "Load an environment module. Repeatable.")
    setup: list[str] | None = LAUNCH.option("--setup CMD", "Run a shell command before the ranks start. Repeatable.")
    srun: list[str] | None = LAUNCH.option(
        "--srun KEY[=VALUE]", "Option of the srun that starts the ranks: mpi=pmix, cpu-bind=cores. Repeatable."
    )
    torchrun: list[str] | None = LAUNCH.option(
        "--torchrun KEY[=VALUE]", "Option of torchrun: max-restarts=1, numa-binding=node. Repeatable."
    )
    module: bool = LAUNCH.flag("--module -m", "SCRIPT is a Python module (torchrun --module).")
    workdir: str | None = LAUNCH.option(
        "--workdir DIR", "Working directory of the job (sbatch --chdir). Default: the current directory."
    )
    secrets: list[str] | None = LAUNCH.option(
        "--secret NAME",
        "Pass this variable of your environment to the job without writing its value to a file. Repeatable.",
    )
    container: str | None = LAUNCH.option(
        "--container IMAGE",
        "Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none` removes the profile's.",
    )
    mounts: list[str] | None = LAUNCH.option(
        "--mount SRC[:DST[:ro]]", "Mount a folder in the container, besides the run's and the job's. Repeatable."
    )
    preflight: bool = LAUNCH.flag("--preflight", "Check all nodes first (at most 30 s); a bad one fails the job.")

    sweep: list[str] | None = SWEEPS.option(
        "--sweep NAME=VALUE,...",
        "Run the script once per value, with --NAME VALUE, or with VALUE in place of {NAME} in ARGS. Repeatable: all "
        "combinations.",
    )
    sweep_file: str | None = SWEEPS.option(
        "--sweep-file FILE", "Read parameters from YAML (product:, zip:, or a list) or from CSV with a header."
    )
    max_parallel: int | None = SWEEPS.option(
        "--max-parallel N", "Array elements that may run at once (sbatch --array=...%N). Default: all."
    )
    elements: str | None = SWEEPS.option("--elements 3,7-9", "Submit only these array elements. Default: all.")

    requeue: int | None = REQUEUE.option(
        "--requeue N",
        "Requeue up to N times after a time limit, a preemption or a node failure. Default: the profile's.",
    )
    warn_s: str | None = REQUEUE.option(
        "--warn TIME", "Signal the ranks this long before the time limit (SIGUSR1, should_stop()): 120s, 5m."
    )
    retry_on_failure: bool = REQUEUE.flag("--retry-on-failure", "Requeue also when the program fails; needs --requeue.")
    exclude_bad_nodes: bool = REQUEUE.flag(
        "--exclude-bad-nodes", "Exclude nodes on which attempts failed (`hpcrun nodes`)."
    )
    restarts: int | None = REQUEUE.option(
        "--restarts N",
        "Restart the ranks up to N times in the same allocation after a node failure. Default: the profile's.",
    )
    spares: int | None = REQUEUE.option(
        "--spares N", "Allocate N spare nodes that replace failed ones; needs --restarts. Default: the profile's."
    )

    snapshot: bool = SNAPSHOT.flag(
        "--snapshot", "Run a copy of the code as it is now: the git work tree, or this folder."
    )
    snapshot_limit_mb: str | None = SNAPSHOT.option("--snapshot-limit SIZE", "Largest size of the copy. Default: 200M.")
    snapshot_include: list[str] | None = SNAPSHOT.option(
        "--snapshot-include PATTERN", "Copy files that look like secrets all the same: .env, certs/*.pem. Repeatable."
    )

    name: str | None = SUBMISSION.option("--name -J NAME", "Job name (sbatch --job-name). Default: the script's name.")
    notify: list[str] | None = SUBMISSION.option(
        "--notify URL",
        "Send messages there: an apprise URL (ntfys://HOST/TOPIC), '$NAME' of a variable that holds one, or "
        "mailto:ADDRESS. `none` removes the configured ones. Repeatable.",
    )
    notify_on: str | None = SUBMISSION.option(
        "--notify-on EVENTS",
        "Events to send messages about, with commas: started, first-step, failed, finished, waiting, idle. Default: "
        "all.",
    )
    mail_user: str | None = SUBMISSION.option("--mail-user ADDRESS", "Send mail to this address (sbatch).")
    mail_type: str | None = SUBMISSION.option("--mail-type EVENTS", "Events to mail about (sbatch): END, FAIL.")


class JobScript:
    """The script of a job, and its arguments."""

    script: str = argument("SCRIPT", "A .py file, a module with -m, or any program.", default=...)
    args: list[str] | None = argument("ARGS", "Arguments of the script, passed on unchanged.")


class StartOptions:
    """When a job starts, which jobs follow, and what is done besides submitting it."""

    after: list[str] | None = SUBMISSION.option(
        "--after RUN[:ok|any|fail]",
        "Start after RUN (sbatch --dependency): ok, the default, if it completed; fail, if it failed; any. Repeatable.",
        complete=complete.run_name,
    )
    chain: str | None = SUBMISSION.option(
        "--chain N[:any]",
        "Submit N jobs in a row, each continuing from the checkpoints of the one before, until one completes. With "
        ":any, continue after any end.",
    )
    dry_run: bool = SUBMISSION.flag("--dry-run", "Print the script and submit nothing.")
    follow: bool = SUBMISSION.flag("--follow -f", "Follow the log of rank 0 until the job ends.")
    wait: bool = SUBMISSION.flag("--wait", "Wait until the job ends. Exit status 0 if it completed, else 7.")
