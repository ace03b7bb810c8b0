"""The table of commands: the module of each, and its panel and examples in the help.

A module is loaded when its command is typed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, NamedTuple, cast

GROUP = "hpcrun.commands"
"""The group of entry points with which another package adds commands, as git and kubectl find
theirs.
"""
_SCRIPT_LAST = {"allow_interspersed_args": False}
"""Of a command with a script: everything behind it is the script's own, as with sbatch, srun and
torchrun.
"""


class Command(NamedTuple):
    """Where a command is."""

    module: str
    panel: str  # the heading of its line in the list of commands
    help: str  # that line: the first one of its docstring
    function: str = ""  # empty for the last word of the command's name
    settings: Mapping[str, Any] = MappingProxyType({})
    package: str = ""  # another package that adds the command


COMMANDS: dict[str, Command] = {
    "init": Command(
        "hpcrun.cli.init",
        "Start",
        "Set hpcrun up on this cluster: write your profile and make it the default.",
    ),
    "submit": Command(
        "hpcrun.cli.submit", "Start", "Submit a training script as a job.", settings=_SCRIPT_LAST
    ),
    "resubmit": Command(
        "hpcrun.cli.submit", "Start", "Submit a run again; it continues from its checkpoints."
    ),
    "import": Command(
        "hpcrun.cli.import_script",
        "Start",
        "Show what `hpcrun submit` makes of an sbatch script.",
        "import_",
    ),
    "dev": Command(
        "hpcrun.features.dev.command",
        "Start",
        "Work on a node: open a shell in a new job, or in one that runs.",
    ),
    "where": Command(
        "hpcrun.features.where.command", "Start", "Show on which profile a job could start first."
    ),
    "status": Command(
        "hpcrun.cli.status",
        "Watch",
        "Show the newest runs and all that have not ended, newest last.",
    ),
    "top": Command(
        "hpcrun.features.top.command",
        "Watch",
        "Show all runs on the whole terminal, live, with keys to look closer and to cancel.",
    ),
    "logs": Command(
        "hpcrun.cli.logs", "Watch", "Show the output of a run's ranks, stdout and stderr."
    ),
    "explain": Command(
        "hpcrun.cli.explain",
        "Watch",
        "Explain why a run failed: the cause, the evidence, what to do.",
    ),
    "metrics": Command(
        "hpcrun.cli.metrics", "Watch", "Show the metrics of a run, such as its loss."
    ),
    "sweep": Command(
        "hpcrun.features.sweep.command",
        "Watch",
        "Show parameters and metrics of a sweep's elements, best first.",
    ),
    "compare": Command(
        "hpcrun.features.compare.command",
        "Watch",
        "Compare runs: what differs between them, and what came of each.",
    ),
    "history": Command(
        "hpcrun.features.history.command",
        "Watch",
        "Show the GPU-hours of your runs, how many of them succeeded, and how long they waited.",
    ),
    "share": Command(
        "hpcrun.features.share.command",
        "Watch",
        "Write one HTML page about a run, to send to others.",
    ),
    "fetch": Command(
        "hpcrun.features.remote.fetch",
        "Watch",
        "Copy files of a run from a cluster to this machine, with --on HOST.",
    ),
    "open": Command(
        "hpcrun.features.trackers.command",
        "Watch",
        "Open the page of a run in wandb, MLflow or another tracker.",
        "open_",
    ),
    "note": Command(
        "hpcrun.cli.note",
        "Control",
        "Write a note on a run, or replace it; `status --filter` finds its words.",
        "note_",
    ),
    "wait": Command(
        "hpcrun.cli.wait", "Watch", "Wait until runs end, or are known to never start."
    ),
    "cancel": Command(
        "hpcrun.cli.control",
        "Control",
        "Cancel runs: terminate running jobs and remove pending ones (scancel).",
    ),
    "hold": Command(
        "hpcrun.cli.control",
        "Control",
        "Keep pending runs from starting until they are released (scontrol hold).",
    ),
    "release": Command(
        "hpcrun.cli.control", "Control", "Let runs that were held start (scontrol release)."
    ),
    "shell": Command(
        "hpcrun.cli.control", "Control", "Open a shell inside the allocation of a running job."
    ),
    "notify": Command(
        "hpcrun.features.notify.command",
        "Control",
        "Send a test message, or the messages about a run that were not sent.",
    ),
    "clean": Command("hpcrun.cli.clean", "Control", "Remove the folders of runs that have ended."),
    "scale plan": Command(
        "hpcrun.features.scaling.command",
        "Scale",
        "Forecast the time and cost of a training on more GPUs. Nothing runs.",
        "forecast",
    ),
    "scale run": Command(
        "hpcrun.features.scaling.command",
        "Scale",
        "Measure how a training scales: run it on several numbers of GPUs.",
        "scale",
        settings=_SCRIPT_LAST,
    ),
    "scale report": Command(
        "hpcrun.features.scaling.command",
        "Scale",
        "Report how a training scales, and how many GPUs to request.",
    ),
    "login": Command(
        "hpcrun.features.remote.login",
        "Cluster",
        "Connect to a cluster, for commands with --on HOST.",
    ),
    "doctor": Command(
        "hpcrun.features.doctor.command",
        "Cluster",
        "Check this machine's setup for jobs, without a job.",
    ),
    "preflight": Command(
        "hpcrun.features.preflight.command",
        "Cluster",
        "Check the nodes of a job: run a short job that tests network and GPUs.",
    ),
    "nodes": Command(
        "hpcrun.features.preflight.command",
        "Cluster",
        "List the nodes on which your runs failed in the last 24 hours.",
    ),
    "skill": Command(
        "hpcrun.features.skill.command",
        "Cluster",
        "Print instructions for coding agents, or install them in a project.",
    ),
    "profile list": Command(
        "hpcrun.cli.profile", "Cluster", "List the profiles; * marks the default profile.", "list_"
    ),
    "profile show": Command(
        "hpcrun.cli.profile", "Cluster", "Show the values of a profile, with those it inherits."
    ),
    "profile path": Command(
        "hpcrun.cli.profile",
        "Cluster",
        "List the folders of profiles and templates, in order of precedence.",
    ),
    "profile new": Command(
        "hpcrun.cli.profile_edit", "Cluster", "Write a profile of your own that extends another."
    ),
    "profile set": Command(
        "hpcrun.cli.profile_edit", "Cluster", "Set values in your copy of a profile.", "set_"
    ),
    "profile unset": Command(
        "hpcrun.cli.profile_edit",
        "Cluster",
        "Remove keys from your copy of a profile; inherited values apply again.",
    ),
    "profile edit": Command(
        "hpcrun.cli.profile_edit", "Cluster", "Edit your copy of a profile in $VISUAL or $EDITOR."
    ),
    "profile use": Command(
        "hpcrun.cli.profile_edit",
        "Cluster",
        "Make a profile your default, for commands without --profile.",
    ),
    "profile validate": Command(
        "hpcrun.cli.profile",
        "Cluster",
        "Check profiles and list all errors, each with its file, line and key.",
    ),
    "profile diff": Command(
        "hpcrun.cli.profile", "Cluster", "Show the values that differ between two profiles."
    ),
    "profile detect": Command(
        "hpcrun.cli.profile",
        "Cluster",
        "Write a profile of this cluster from its Slurm configuration.",
    ),
    "profile env": Command(
        "hpcrun.cli.profile",
        "Cluster",
        "Explain the environment variables of NCCL, torch and CUDA.",
    ),
    "profile schema": Command(
        "hpcrun.cli.profile",
        "Cluster",
        "Print the JSON Schema of a profile file, for completion in editors.",
    ),
    "profile trust": Command(
        "hpcrun.cli.profile_edit",
        "Cluster",
        "Trust the profiles, templates, rules and configuration of a project.",
    ),
}
"""In the order of the help; a name of two words is a command of a group."""
GROUPS = {
    "scale": "Forecast, measure and report how a training scales.",
    "profile": "Show, write and check cluster profiles.",
}
"""The help of each group of commands."""


_EXAMPLES = """
hpcrun submit --gpus 4 --nodes 2 --time 2h train.py --lr 1e-3  # 4 GPUs on 2 nodes for 2 hours
hpcrun submit --dry-run --gpus 1 train.py >train.sh  \
# Write the script that would be submitted to a file
hpcrun submit --gpus 1 --sweep lr=0.1,0.01,0.001 train.py  \
# An array of three jobs, each with its own --lr
hpcrun import train.sbatch  # Show what submit makes of train.sbatch
hpcrun import train.sbatch config.yaml  # Show it for a script with an argument
hpcrun scale run --gpus 1,2,4 --batch-size 256 train.py --bs {batch_size}  \
# Run on 1, 2 and 4 GPUs, global batch 256
hpcrun scale run --gpus 1,2,4 --weak --batch-size 64 train.py {batch_size}  \
# Batch 64 for each GPU (weak scaling)
hpcrun scale run --show last  # Show how far the newest study is
hpcrun where --gpus 8 --time 4h  # Compare all profiles for a job of 8 GPUs
hpcrun where --gpus 8 --time 4h -P a100 -P h100  # Compare two of them
hpcrun scale plan --samples 1M --batch-size 256 --epoch-time 36m -G 2,4,8  \
# An epoch takes 36 min on 1 GPU: what to measure
hpcrun scale plan --from last  # From the newest scaling study
hpcrun dev --gpus 1 --time 4h  # A shell on a node with one GPU, for 4 hours
hpcrun dev --gpus 1 --time 4h --jupyter  # Jupyter there, in the browser here
hpcrun dev 4711 --code  # VS Code on the node of job 4711
hpcrun status --watch  # The newest runs, refreshed until Ctrl-C
hpcrun status -v 4711  # All about one run
hpcrun status 4711 --gpus --watch  # The load of its GPUs, refreshed until Ctrl-C
hpcrun top  # All runs, live; ? shows the keys
hpcrun top --filter 'train failed'  # Only runs with these words: the filter of key /
hpcrun logs -f  # Follow rank 0 of the newest run
hpcrun logs 4711 --all-ranks --grep Error  # Errors of all ranks of job 4711
hpcrun logs 4711 --rank 0-3 -n 50  # The last 50 lines of ranks 0 to 3
hpcrun explain  # The newest run
hpcrun explain 4711 --stacks  # Where each rank of a running job is
hpcrun explain --log slurm-4711.out  # Log files, without a run
hpcrun metrics --plot  # Draw all metrics of the newest run
hpcrun metrics 4711 --metric loss --all-ranks --csv  # The loss of every rank as CSV
hpcrun sweep  # The elements of the newest sweep, best first
hpcrun sweep 4711 --sort accuracy:max --csv  # By accuracy, largest first, as CSV
hpcrun sweep 4711 --best loss  # The command of the element with the smallest loss
hpcrun compare 4711 4712  # What differs between two runs, and what came of each
hpcrun compare 4711 4712 --code  # How their code differs
hpcrun compare 4711/0 4711/3 last --plot  # The curves of three runs, in the terminal
hpcrun scale report last  # Report the newest study into report-NAME
hpcrun scale report --from-csv times.csv --out report  # Report measurements from a table
hpcrun history  # GPU-hours, success and waits, week by week
hpcrun history --by project --since 2026-10-01  # By project, since a day
hpcrun history --since 30d --all-jobs --plot use.pdf  \
# With all your jobs of the last 30 days, as a figure
hpcrun share  # Write the newest run to RUN.html, to send to others
hpcrun share 4711/3 -o report.html  # Element 3 of a sweep, to a file of this name
hpcrun share 4711 --no-logs --no-code  # Without logs, and without script and changed code
hpcrun fetch --on cluster last  # Logs, metrics and record of the newest run there
hpcrun fetch --on cluster 4711 'checkpoints/last.pt'  # With a checkpoint of job 4711
hpcrun open  # The page of the newest run in wandb or MLflow
hpcrun open --tensorboard 4711 4712  # TensorBoard over two runs
hpcrun open --upload  # Upload the offline wandb runs of the newest run
hpcrun shell  # On the first node of the newest run
echo nvidia-smi | hpcrun shell 4711 --node a100-2  # One command on a node of job 4711
hpcrun note 4711 '#paper baseline'  # Note it, with a tag
hpcrun note 4711 --remove  # Remove the note
hpcrun wait 4711 --timeout 100s  # 100 seconds at most; exit status 8 if it still goes on
hpcrun wait --any 4711 4712  # For the first of two jobs to end
hpcrun cancel 4711  # One run
hpcrun cancel 4711/3  # Element 3 of a sweep
hpcrun cancel --state pending  # All pending runs, after a question
hpcrun hold 4711  # Let others go first
hpcrun hold lr  # The elements of a sweep that have not started
hpcrun release 4711  # Let a job that was held start
hpcrun release lr/3  # One element of a sweep
hpcrun resubmit last  # Continue the newest run from its checkpoints
hpcrun resubmit 4711 --time 8h -- --lr 1e-4  # With more time and another learning rate
hpcrun resubmit 4711 --failed  # Only the failed elements of a sweep
hpcrun init  # Answer questions
hpcrun init --yes --account lab --gpu-type a100  # Without a terminal
hpcrun init --dry-run  # See what it would write
hpcrun login cluster  # Connect once; then begin commands with --on cluster
hpcrun login cluster --install  # And install this version there
hpcrun doctor  # Check the default profile
hpcrun doctor --profile a100  # Check another profile
hpcrun preflight --nodes 4 --gpus-per-node 8 --profile a100  # Check 4 nodes
hpcrun preflight --nodelist a100-2 --profile a100  # Check one node
hpcrun nodes  # List the nodes
hpcrun nodes forget a100-3  # Use a100-3 again
hpcrun nodes forget  # Use all of them again
hpcrun skill  # Print the instructions
hpcrun skill --install  # Write them into the current project, and print permissions
hpcrun skill --schema status  # The JSON Schema of what status --json prints
hpcrun clean  # Runs that ended more than 30 days ago, after a question
hpcrun clean --state failed --older-than 2d  # Failed runs that ended more than 2 days ago
hpcrun clean --keep 20  # All but the newest 20
hpcrun profile trust  # Review and trust the project of this folder
hpcrun profile trust --list  # List the trusted projects
hpcrun profile trust --revoke  # Stop trusting this project
hpcrun notify --test ntfys://ntfy.sh/my-runs  # Send a test message to a topic of ntfy
srun -n1 hpcrun notify --test  # Test the configured destinations from a compute node
hpcrun notify last  # Send what the last run could not send
hpcrun profile list  # List all profiles
hpcrun profile list --json  # The same as JSON
hpcrun profile show a100  # All values of a profile
hpcrun profile show a100 --origin  # With the file and line of each value
hpcrun profile path  # List the folders
HPCRUN_SITE=/proj/hpcrun hpcrun profile path  # Use another folder for one command
hpcrun profile new mine  # Answer questions
hpcrun profile new mine --from a100 partition=gpu account=ab12  # Give the values
hpcrun profile set mine gpu.per_node=8  # Change one value
hpcrun profile set mine modules+=cuda/12.4  # Add a module to the list
hpcrun profile unset mine partition  # Return to the inherited partition
hpcrun profile unset mine time.default time.max  # Two keys at once
hpcrun profile edit a100  # Edit your copy of a100
EDITOR=nano hpcrun profile edit a100  # With another editor
hpcrun profile use mycluster  # Use a profile without -P from now on
hpcrun profile use detected  # Use the detected profile again
hpcrun profile validate  # All profiles
hpcrun profile validate ./mine.yaml  # One file
hpcrun profile diff a100 h100  # Two profiles
hpcrun profile diff a100 ./mine.yaml  # A profile and a file
hpcrun profile detect  # Print the profile
hpcrun profile detect --write mycluster  # Save it
hpcrun profile env a100  # What a profile sets, and why
hpcrun profile env NCCL_SOCKET_IFNAME  # One variable
hpcrun profile schema > profile.schema.json  # Save the schema for an editor
hpcrun profile schema --config > config.schema.json  # The one of config.yaml
"""
"""Of each command two or three: the line to type, of which 76 characters fit a terminal, and what
it does.
"""


def _read_examples() -> dict[str, list[tuple[str, str]]]:
    examples: dict[str, list[tuple[str, str]]] = {}
    first_of_group: dict[str, list[tuple[str, str]]] = {}
    for row in _EXAMPLES.strip().splitlines():
        line, _, purpose = row.partition("  # ")
        words = line.rpartition("hpcrun ")[2].split()
        name = words[0]
        if name in GROUPS:
            group = name
            name = f"{group} {words[1]}"
            if name not in examples:
                first_of_group.setdefault(group, []).append((line, purpose))
        examples.setdefault(name, []).append((line, purpose))
    for group, firsts in first_of_group.items():
        examples[group] = firsts[:3]
    return examples


EXAMPLES = _read_examples()
"""Name of a command or a group → its examples: the line to type, and what it does.

A group has the first examples of its first three commands.
"""


def epilog(name: str) -> str:
    """Return the examples of a command, as the end of its help."""
    lines = ["Examples:"]
    for line, purpose in EXAMPLES[name]:
        lines += [f"  # {purpose}", f"  {line}"]
    return "\n".join(lines)


def commands_of_others() -> dict[str, Command]:
    """Return the commands that other installed packages add.

    None of these commands can replace one of hpcrun's.
    """
    if not any(map(_has_commands, sys.path)):
        return {}
    from importlib.metadata import entry_points  # it reads the files of all packages: 18 ms

    commands = {}
    for point in entry_points(group=GROUP):
        if point.name not in COMMANDS:
            help_line = _first_line(point.module, point.attr)
            package = point.dist.name if point.dist else point.module
            commands[point.name] = Command(
                point.module, "Other packages", help_line, point.attr, package=package
            )
    return commands


def _has_commands(folder: str) -> bool:
    """Return whether a package that is installed in a folder may add commands."""
    try:
        names = os.listdir(folder or ".")
    except OSError:  # a zip file, or nothing
        return False
    for name in names:
        if name.endswith((".dist-info", ".egg-info")):
            path = os.path.join(folder, name, "entry_points.txt")
            with suppress(OSError), open(path, "rb") as file:
                if GROUP.encode() in file.read():
                    return True
    return False


def _first_line(module: str, function: str) -> str:
    """Return the first line of a function's docstring, from the source: the import may be slow."""
    import ast

    source = None
    with suppress(Exception):  # it imports the packages above the module
        spec = find_spec(module)
        if spec is not None and spec.origin is not None:
            source = cast(Any, spec.loader).get_source(module)
    with suppress(SyntaxError, ValueError):
        for statement in ast.parse(source or "").body:
            if isinstance(statement, ast.FunctionDef) and statement.name == function:
                return (ast.get_docstring(statement) or "").partition("\n")[0]
    return ""
