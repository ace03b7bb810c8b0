"""The options of a job, each declared once as a line of ``--help``.

The options stand in the order and the panels of ``--help``.
"""

from __future__ import annotations

import inspect

from hpcrun.cli import complete
from hpcrun.cli.options import HelpPanel, argument, options_in

SUBMISSION = HelpPanel("Submission")
JOB_SCRIPT = {
    name: inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )
    for name, annotation, default in (
        ("script", str | None, argument("SCRIPT", "A .py file, a module with -m, or any program.")),
        (
            "args",
            list[str] | None,
            argument("ARGS", "Arguments of the script, passed on unchanged."),
        ),
    )
}
"""The script of a job, and its arguments."""
JOB_OPTIONS = options_in(
    """
[Resources]
--gpus -G [TYPE:]N  GPUs of the whole job (sbatch --gpus): 4, a100:4; 0 for a CPU job. Default: 1 on
    each node.
--nodes -N N  Number of nodes (sbatch --nodes). Default: the fewest that hold the GPUs.
walltime_s: --time -t TIME  Time limit (sbatch --time): 90m, 36h, 1:30:00, 1-12:00:00. Default: the
    profile's.
~--gpus-per-node [TYPE:]N  GPUs of each node (sbatch --gpus-per-node). Default: --gpus divided by
    --nodes.
~--nproc-per-node N  Ranks on each node (torchrun --nproc-per-node). Default: one per GPU.
~--cpus N  CPUs of each node. Default: the profile's per GPU.
~--cpus-per-task -c N  CPUs of each Slurm task (sbatch --cpus-per-task). A task is a node, or a rank
    with --launcher srun.
~--cpus-per-gpu N  CPUs for each GPU (sbatch --cpus-per-gpu).
memory_mb: --mem SIZE  Memory of each node (sbatch --mem): 64G, 500M; 0 for all. Default: the
    profile's per GPU.
~cancel_idle_s: --cancel-idle TIME  End a job whose GPUs are all idle: 30m, 2h.
[Placement]
--profile -P NAME  Cluster profile, by name or path. Default: the one `profile list` marks.
--partition -p NAME  Partition (sbatch --partition). Default: the profile's.
--account -A NAME  Account (sbatch --account). Default: the profile's.
~--qos -q NAME  Quality of service (sbatch --qos). Default: the profile's.
~--constraint -C FEATURES  Node features (sbatch --constraint).
~--reservation NAME  Reservation (sbatch --reservation).
~--exclude -x NODES  Nodes to exclude (sbatch --exclude).
~--nodelist -w NODES  Nodes to use (sbatch --nodelist).
~--segment N  Nodes per network block (sbatch --segment, Slurm 23.11 or later).
~--sbatch KEY[=VALUE]  Any other option of sbatch. Repeatable.
~--no-sbatch KEY  Leave out an sbatch option of the profile. Repeatable.
[Launch]
--launcher NAME  How ranks start: torchrun (default with GPUs); srun, one task per rank (Lightning,
    MPI); python, one process per node (default without GPUs); command, a program that starts its
    own ranks (accelerate); ray, one program on a Ray cluster of the nodes.
--env NAME=VALUE  Set an environment variable. Repeatable.
~--python PATH  Python of the job. Default: that of the active virtual or conda environment.
~--uv  Install uv.lock on the disk of each node (uv sync), and use it.
~--load MODULE  Load an environment module. Repeatable.
~--setup CMD  Run a shell command before the ranks start. Repeatable.
~--srun KEY[=VALUE]  Option of the srun that starts the ranks: mpi=pmix, cpu-bind=cores. Repeatable.
~--torchrun KEY[=VALUE]  Option of torchrun: max-restarts=1, numa-binding=node. Repeatable.
~--module -m  SCRIPT is a Python module (torchrun --module).
~--workdir DIR  Working directory of the job (sbatch --chdir). Default: the current directory.
~secrets: --secret NAME  Pass this variable of your environment to the job without writing its value
    to a file. Repeatable.
~--container IMAGE  Run the ranks in a container: train.sif, docker://pytorch/pytorch. `none`
    removes the profile's.
~mounts: --mount SRC[:DST[:ro]]  Mount a folder in the container, besides the run's and the job's.
    Repeatable.
--stage SRC[:NAME]  Copy a file or folder to the disk of each node first, as $HPCRUN_STAGE/NAME.
    Default: the last part of SRC. Repeatable.
~--preflight  Check all nodes first (at most 30 s); a bad one fails the job.
~roles: --role NAME:SIZE  One of several programs of the job, with its nodes (server:1) or its GPUs
    of one node (server:1gpu): its command follows, up to the next --role. Repeatable.
[Sweeps]
--sweep NAME=VALUE,...  Run the script once per value, with --NAME VALUE, or with VALUE in place of
    {NAME} in ARGS. Repeatable: all combinations.
~--sweep-file FILE  Read parameters from YAML (product:, zip:, or a list) or from CSV with a header.
~--max-parallel N  Array elements that may run at once (sbatch --array=...%N); with --pack, tasks.
    Default: all.
~--pack N  Run N elements at once on the GPUs and CPUs of one node, as one task of the array.
~--pack-memory  Limit each element of a pack to its share of its GPU's memory (torch from 2.10 on,
    JAX).
~--elements 3,7-9  Submit only these array elements. Default: all.
[Requeue]
--requeue N  Requeue up to N times after a time limit, a preemption or a node failure. Default: the
    profile's.
~warn_s: --warn TIME  Signal the ranks this long before the time limit (SIGUSR1, should_stop()):
    120s, 5m.
~--retry-on-failure  Requeue also when the program fails; needs --requeue.
~--exclude-bad-nodes  Exclude nodes on which attempts failed (`hpcrun nodes`).
~--restarts N  Restart the ranks up to N times in the same allocation after a node failure. Default:
    the profile's.
~--spares N  Allocate N spare nodes that replace failed ones; needs --restarts. Default: the
    profile's.
[Snapshot]
--snapshot  Run a copy of the code as it is now: the git work tree, or this folder.
~snapshot_limit_mb: --snapshot-limit SIZE  Largest size of the copy. Default: 200M.
~--snapshot-include PATTERN  Copy files that look like secrets all the same: .env, certs/*.pem.
    Repeatable.
[Submission]
--name -J NAME  Job name (sbatch --job-name). Default: the script's name.
~--notify URL  Send messages there: an apprise URL (ntfys://HOST/TOPIC), '$NAME' of a variable that
    holds one, or mailto:ADDRESS. `none` removes the configured ones. Repeatable.
~--notify-on EVENTS  Events to send messages about, with commas: started, first-step, failed,
    finished, waiting, idle. Default: all.
~--mail-user ADDRESS  Send mail to this address (sbatch).
~--mail-type EVENTS  Events to mail about (sbatch): END, FAIL.
""",
    {
        "profile": complete.profile_name,
        "partition": complete.partition,
        "account": complete.account,
        "qos": complete.qos,
        "launcher": complete.launcher,
    },
)
"""One option for each field of ``JobRequest``, and the profile."""
START_OPTIONS = options_in(
    """
[Submission]
~roles_file: --roles FILE  Read the roles of the job from a YAML file, in place of SCRIPT.
~--output-dir DIR  Folder for the run. Default: one per run in the runs folder.
--after RUN[:ok|any|fail]  Start after RUN (sbatch --dependency): ok, the default, if it completed;
    fail, if it failed; any. Repeatable.
~--chain N[:any]  Submit N jobs in a row, each continuing from the checkpoints of the one before,
    until one completes. With :any, continue after any end.
~--chain-anyway  Continue the chain even if a link makes no new checkpoint and no new step.
--dry-run  Print the script and submit nothing.
--follow -f  Follow the log of rank 0 until the job ends.
--wait  Wait until the job ends. Exit status 0 if it completed, else 7.
""",
    {"after": complete.run_name},
)
"""When a job starts, which jobs follow, and what is done besides submitting it."""
