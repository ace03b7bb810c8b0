"""A person's batch script as a job of hpcrun: the launch in the script calls ``hpcrun_launch``.

The script stays as it is but for the launch line. hpcrun puts ``"$HPCRUN_LAUNCH"`` and one or two
marks into that line, and bash runs the rest unchanged. A launch that hpcrun does not understand
stays unchanged, too; then the job has no logs per rank, and hpcrun says why. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpcrun.errors import UsageError
from hpcrun.job.batch.launch_habits import PlacedLaunch, launch_habits, trains_alone
from hpcrun.job.batch.sbatch_input import BatchOptions, Sizes, read_batch_options, read_sizes
from hpcrun.job.launcher.launch_line import LaunchLine, UnclearError, number_of, read_launch
from hpcrun.job.request.job_request import STDIN_NAME, Launcher
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.recognise_secrets import is_secret, secret_kind
from hpcrun.job.text.shell_text import (
    Source,
    Word,
    misread_line,
    node_text,
    nodes_of,
    parents_of,
    parse_shell,
)

if TYPE_CHECKING:
    from tree_sitter import Node

PROGRAM = '"$HPCRUN_LAUNCH"'  # what a launch line calls: in_job/launch/batch/run_script.py
ERROR_TRAP = (
    """{ trap '{ printf "%s %s %s\\n" "$?" "$LINENO" "$BASH_COMMAND" """
    """>|"$HPCRUN_SCRIPT_ERRORS"; } 2>/dev/null' ERR; } 2>/dev/null"""
)
"""The first line of a script for bash, in place of its #!: notes the last command that failed.

The braces hide it from ``set -x``.
"""
_OF_RANKS = (
    "the ranks get WANDB_TAGS, MLFLOW_RUN_CONTEXT, TORCH_FR_*, TORCH_NCCL_*, SPT_NOENV and a "
    "folder on PYTHONPATH"
)
_OWN_LOG = re.compile(r"\bslurm-[^\s;|&<>]*SLURM_")
"""The file of the output that sbatch would write, in a line of the script."""
_LOOPS = frozenset({"for_statement", "c_style_for_statement", "while_statement"})
_OUTSIDE = frozenset({"command_substitution", "process_substitution", "heredoc_body"})
_BRANCHES = frozenset({"if_statement", "elif_clause", "else_clause", "case_item"})


@dataclass(frozen=True, slots=True)
class BatchScript:
    """A batch script, as hpcrun runs it."""

    name: str  # its file name
    interpreter: tuple[str, ...]  # what runs it, from its first line
    text: str  # the script with its changed lines; secrets come from the environment
    options: BatchOptions  # what its #SBATCH lines become
    sizes: Sizes
    # those that hpcrun takes over, of which the script takes one; empty if it takes over none
    launches: tuple[LaunchLine, ...] = ()
    changed: tuple[int, ...] = ()  # the numbers of the changed lines
    secrets: tuple[tuple[str, str], ...] = ()  # name → value of the secrets in the script
    remarks: tuple[str, ...] = ()  # what is different from sbatch
    missing: tuple[str, ...] = ()  # why hpcrun does not take over the launch; empty if it does
    habits: tuple[str, ...] = ()  # likely mistakes, which sbatch would run, too

    @property
    def is_complete(self) -> bool:
        """Whether the job is all that the script is, with logs per rank."""
        return not (self.missing or self.options.problems)

    @property
    def differences(self) -> tuple[str, ...]:
        """What is different from sbatch, with what is different for every such script."""
        of_all = []
        if self.text.startswith(ERROR_TRAP):
            of_all.append("line 1 is a trap that notes what fails outside of functions")
        if self.launches:
            of_all.append(_OF_RANKS)
        if any(line.by_srun for line in self.launches):
            of_all.append("Slurm calls the step python")
        if any(line.starter == "torchrun" for line in self.launches):
            of_all.append("signals go to the ranks, not through torchrun")
        return (*self.remarks, *of_all)

    def ranks(self, sizes: Sizes) -> tuple[Launcher, int]:
        """Return hpcrun's launcher and the ranks of each node for a job's sizes.

        The number is 0 if only the script's launch decides the number.
        """
        if not self.launches:
            return "command", 0
        suited = [line for line in self.launches if line.by_srun == (sizes.nodes > 1)]
        lines = suited or self.launches
        numbers = {_known_ranks(line, sizes) for line in lines}
        return lines[0].starter, numbers.pop() if len(numbers) == 1 else 0


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch and its place."""

    node: Node
    words: list[Word]
    line: LaunchLine | None
    problem: str = ""
    doubt: int = 0

    @property
    def number(self) -> int:
        return int(self.node.start_point[0]) + 1


@dataclass(frozen=True, slots=True, order=True)
class _Change:
    """A piece of a script that is replaced: its bytes, and the new text."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class _Secret:
    """A secret in a script."""

    node: Node
    name: str  # the variable of hpcrun for it
    value: str


def read_batch_script(
    name: str, text: str, arguments: Sequence[str], *, has_directives: bool = True
) -> BatchScript:
    """Return a batch script as hpcrun runs the script with its arguments.

    Args:
        name: the name of its file, or ``STDIN_NAME``.
        text: its text.
        arguments: what its positional parameters are.
        has_directives: its #SBATCH lines are options of the job.

    Raises:
        UsageError: sbatch does not take the script: it has CR line ends, or does not begin with
            ``#!``.
    """
    _check_text(name, text)
    interpreter = _interpreter(text)
    options = read_batch_options(text.splitlines() if has_directives else [])
    sizes = read_sizes(dict(options.directives))
    root = parse_shell(text)
    source = Source(root, arguments)
    missing = []
    launches = []
    secrets: list[_Secret] = []
    unread = _why_unread(interpreter, root)
    if unread:
        missing.append(unread)
    else:
        secrets = list(_secrets(root))
        launches = _launches(source)
        missing += _problems(source, launches)
    lines = [launch.line for launch in launches if launch.line]
    remarks = [*options.remarks]
    changes: list[_Change] = []
    if not missing:
        for launch in launches:
            changes += _marks(launch)
        for line in lines:
            remarks += line.remarks
    placed = [PlacedLaunch(item.number, item.line, item.words) for item in launches if item.line]
    habits = [*remarks_on_agents(lines, sizes), *launch_habits(placed, sizes.nodes)]
    for secret in secrets:
        changes.append(_Change(secret.node.start_byte, secret.node.end_byte, f'"${secret.name}"'))
        number = secret.node.start_point[0] + 1
        remarks.append(
            f"line {number}: the secret goes through the environment, not into the run's folder"
        )
    data = text.encode("utf-8", "surrogateescape")
    changed = {data[: change.start].count(b"\n") + 1 for change in changes}
    new = _with_changes(data, changes)
    if _shell(interpreter) == "bash":
        _, line_end, rest = new.partition("\n")
        new = ERROR_TRAP + line_end + rest
    remarks += _remarks_on_copy(text, new)
    return BatchScript(
        name=name,
        interpreter=interpreter,
        text=new,
        options=options,
        sizes=sizes,
        launches=() if missing else tuple(lines),
        changed=tuple(sorted(changed)),
        secrets=tuple((secret.name, secret.value) for secret in secrets),
        remarks=tuple(dict.fromkeys(remarks)),
        missing=tuple(dict.fromkeys(missing)),
        habits=tuple(dict.fromkeys(habits)),
    )


def _remarks_on_copy(text: str, new: str) -> Iterator[str]:
    """Yield what is to know of the copy of the script in the run's folder.

    Args:
        text: the script.
        new: the copy, which hpcrun has changed.
    """
    if re.search(r"\$0\b|\$\{0\}|BASH_SOURCE", text):
        yield (
            "$0 is a copy of the script in the run's folder, as by sbatch it is one in Slurm's "
            "spool"
        )
    for number, line in enumerate(text.splitlines(), start=1):
        if _OWN_LOG.search(line) and not line.lstrip().startswith("#"):
            yield (
                f"line {number}: there is no slurm-%j.out: hpcrun logs --batch prints the output "
                "of the script"
            )
    kind = secret_kind(new)
    if kind:
        yield f"the script holds {kind}, and the run's folder has a copy of it"


def _check_text(name: str, text: str) -> None:
    """Check that sbatch takes a script.

    Raises:
        UsageError: the script has CR line ends, or does not begin with ``#!``.
    """
    is_stdin = name == STDIN_NAME
    if "\r" in text:
        hint = f"sed -i 's/\\r$//' {name}"
        if is_stdin:
            hint = "sed 's/\\r$//' SCRIPT | hpcrun submit -"
        raise UsageError(f"{name} has CR line ends, which sbatch refuses", hint=hint)
    if not text.startswith("#!"):
        hint = "add the line #!/bin/bash"
        if is_stdin:
            hint += "; a Python program must be in a file: hpcrun submit train.py"
        raise UsageError(f"{name} does not begin with #!, which sbatch needs", hint=hint)


def _with_changes(data: bytes, changes: Sequence[_Change]) -> str:
    """Return a script with its changes."""
    for change in sorted(changes, reverse=True):  # from the end: places before it stay
        data = data[: change.start] + change.text.encode() + data[change.end :]
    return data.decode("utf-8", "surrogateescape")


def remarks_on_agents(lines: Sequence[LaunchLine], sizes: Sizes) -> Iterator[str]:
    """Yield a remark for each launch by which srun starts too many torchruns."""
    for line in lines:
        if not _has_idle_agents(line, sizes):
            continue
        tasks = _tasks(line, sizes)
        if tasks > 1:
            yield (
                f"as by sbatch, srun starts torchrun {tasks} times on a node, and all but one "
                "fail: request one task for each node, with its GPUs and CPUs"
            )
        else:
            yield (
                f"as by sbatch, srun starts torchrun on {sizes.nodes} nodes, and "
                f"--nnodes={line.torchrun['nnodes']} takes no more: give torchrun "
                "--nnodes=$SLURM_NNODES"
            )


def _interpreter(text: str) -> tuple[str, ...]:
    """Return the program in the first line of a script, and its option if it has one."""
    first = text[2:].partition("\n")[0].strip()
    program, _, option = first.partition(" ")
    if option.strip():
        return program, option.strip()
    return (program,)


def _shell(interpreter: tuple[str, ...]) -> str:
    """Return the name of the program that runs a script: ``bash`` for ``/usr/bin/env bash``."""
    name = PurePath(interpreter[0]).name
    if name == "env" and len(interpreter) > 1:
        return PurePath(interpreter[1].split()[-1]).name
    return name


def _why_unread(interpreter: tuple[str, ...], root: Node) -> str | None:
    """Return why hpcrun does not read a script; None if it does."""
    shell = _shell(interpreter)
    if shell not in ("bash", "sh", "dash", "ksh"):
        program = shell or " ".join(interpreter).strip()
        return f"{program} runs the script: hpcrun reads only scripts for bash"
    misread = misread_line(root)
    if misread:
        return f"line {misread} is not understood"
    return None


def _tasks(line: LaunchLine, sizes: Sizes) -> int:
    """Return how many tasks of srun a node has."""
    each = number_of(line.srun.get("ntasks-per-node"))
    if each:
        return each
    total = number_of(line.srun.get("ntasks"))
    return max(1, total // sizes.nodes) if total else sizes.tasks


def _known_ranks(line: LaunchLine, sizes: Sizes) -> int:
    """Return how many ranks a launch has on each node; 0 if that is not known."""
    if line.starter == "command" or (sizes.nodes > 1 and not line.by_srun):
        return 0  # mpirun, deepspeed; or it is on the first node alone
    if line.starter == "python":
        return 1
    if line.starter == "torchrun":
        text = line.torchrun.get("nproc-per-node", "1")
        return sizes.gpus if text in ("gpu", "auto") else number_of(text) or 0
    counts = [line.srun[name] for name in ("ntasks", "ntasks-per-node") if name in line.srun]
    is_open = sizes.nodes_open and not counts and not sizes.tasks_given
    if is_open or any(number_of(text) is None for text in counts):
        return 0
    return _tasks(line, sizes)


def _has_idle_agents(line: LaunchLine, sizes: Sizes) -> bool:
    """Return whether srun surely starts more torchruns than --nnodes names."""
    if line.starter != "torchrun" or not line.by_srun:
        return False
    nnodes = line.torchrun.get("nnodes")
    if _tasks(line, sizes) == 1 and trains_alone(line.torchrun):
        return False
    for text in (nnodes, line.srun.get("ntasks"), line.srun.get("ntasks-per-node")):
        if text and number_of(text) is None:
            return False
    return sizes.nodes * _tasks(line, sizes) > (number_of(nnodes) or sizes.nodes)


def _launches(source: Source) -> list[_Launch]:
    """Return the surest launches of a script.

    Launches by torchrun and the like are the surest, then launches by Python, then shell scripts.
    """
    launches = []
    for node in nodes_of(source.root, "command"):
        if any(parent.type in _OUTSIDE for parent in parents_of(node)):
            continue
        words = source.words(node)
        try:
            launch = read_launch(words) if words else None
        except UnclearError as error:
            launches.append(_Launch(node, words, None, str(error)))
            continue
        if launch:
            line, known_words = launch
            launches.append(_Launch(node, known_words, line, doubt=line.doubt))
    surest = min((launch.doubt for launch in launches), default=0)
    return [launch for launch in launches if launch.doubt == surest]


def _problems(source: Source, launches: list[_Launch]) -> Iterator[str]:
    """Yield why hpcrun does not take over the launch of a script."""
    if not launches:
        yield "no line is known to start a training"
    for launch in launches:
        problem = launch.problem or _place(source.root, launch.node)
        if problem:
            yield f"line {launch.number}: {problem}"
    for one, other in pairwise(launches):
        if not _exclude_each_other(one.node, other.node):
            yield (
                f"lines {one.number} and {other.number} both start a training: "
                "hpcrun submit --role gives each of several programs its logs"
            )
            return


def _place(root: Node, node: Node, depth: int = 3) -> str | None:
    """Return why a launch at this place may be started more than once, or beside the script.

    The result is None if neither is possible.
    """
    for parent in (*parents_of(node), node):
        if parent.type in _LOOPS:
            return "it is in a loop, and would be started several times"
        if parent.type == "function_definition":
            name = node_text(parent.named_children[0])
            calls = [call for call in nodes_of(root, "command") if _called(call) == name]
            if len(calls) != 1 or depth == 0:
                return f"it is in the function {name}, which is called {len(calls)} times"
            return _place(root, calls[0], depth - 1)
        if parent.next_sibling is not None and parent.next_sibling.type == "&":
            waits = [call for call in nodes_of(root, "command") if _called(call) == "wait"]
            if all(call.start_byte <= parent.end_byte for call in waits):
                return (
                    "it runs in the background, and nothing waits for it: see hpcrun submit --role"
                )
    return None


def _called(command: Node) -> str:
    return node_text(command.named_children[0])


def _exclude_each_other(one: Node, other: Node) -> bool:
    """Whether two launches stand in different branches of a condition."""
    mine = [one, *parents_of(one)]
    theirs = [other, *parents_of(other)]
    common = next(node for node in mine if node in theirs)
    if common.type == "case_statement":
        return True
    if common.type not in _BRANCHES:
        return False
    for nodes in (mine, theirs):
        below = nodes[nodes.index(common) - 1]
        if below.type in ("elif_clause", "else_clause"):
            return True
    return False


def _marks(launch: _Launch) -> Iterator[_Change]:
    """Yield the changes of a launch line."""
    line = launch.line
    assert line is not None  # only launches without a problem are changed
    for number in sorted({line.at, *line.marks}):
        place = launch.words[number].start
        assert place is not None  # the reader has refused words of a variable
        text = ""
        if number == line.at:
            text += f"{PROGRAM} "
        if number in line.marks:
            text += f"{line.marks[number]} "
        yield _Change(place, place, text)


def _secrets(root: Node) -> Iterator[_Secret]:
    """Yield each secret that the script sets a variable to."""
    for number, node in enumerate(nodes_of(root, "variable_assignment")):
        if len(node.named_children) < 2 or any(child.type == "+=" for child in node.children):
            continue
        name = node_text(node.named_children[0])
        value = node.named_children[1]
        text = node_text(value)
        plain = text[1:-1] if value.type in ("string", "raw_string") else text
        is_fixed = "$" not in text and "`" not in text
        if is_fixed and plain and is_secret(name, plain, ()):
            yield _Secret(value, f"HPCRUN_SECRET_{number}", plain)


def changed_lines(script: BatchScript) -> Iterator[tuple[int, str]]:
    """Yield the changed lines with their numbers, without secrets."""
    lines = script.text.splitlines()
    for number in script.changed:
        yield number, HIDER.hide(lines[number - 1])
