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
from hpcrun.job.batch.sbatch_input import BatchOptions, Sizes, read_batch_options, read_sizes
from hpcrun.job.launcher.launch_line import LaunchLine, UnclearError, number_of, read_launch
from hpcrun.job.request.job_request import Launcher
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
    "set -E; "
    """trap 'printf "%s %s %s\\n" "$?" "$LINENO" "$BASH_COMMAND" 2>/dev/null """
    """>|"$HPCRUN_SCRIPT_ERRORS"' ERR"""
)
"""The first line of a script for bash, in place of its #!: notes the last command that failed."""
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

    @property
    def is_complete(self) -> bool:
        """Whether the job is all that the script is, with logs per rank."""
        return not (self.missing or self.options.problems)

    def ranks(self, sizes: Sizes) -> tuple[Launcher, int]:
        """Return hpcrun's launcher and the ranks of each node for a job's sizes.

        The answer goes as far as the script says the ranks.
        """
        if not self.launches:
            return "command", 1
        line = next(
            (line for line in self.launches if line.by_srun == (sizes.nodes > 1)), self.launches[0]
        )
        if line.starter == "torchrun":
            value = line.torchrun.get("nproc-per-node", "1")
            return "torchrun", (None if value in ("gpu", "auto") else number_of(value)) or max(
                1, sizes.gpus
            )
        if line.starter == "srun":
            return "srun", _tasks(line, sizes)
        return ("python" if line.starter == "python" else "command"), 1


@dataclass(frozen=True, slots=True)
class _Launch:
    """A launch and its place."""

    node: Node
    words: list[Word]
    line: LaunchLine | None
    problem: str = ""
    rank: int = 0

    @property
    def number(self) -> int:
        return int(self.node.start_point[0]) + 1


def read_batch_script(name: str, text: str, arguments: Sequence[str]) -> BatchScript:
    """Return a batch script as hpcrun runs the script with its arguments.

    Raises:
        UsageError: sbatch does not take the script: it has CR line ends, or does not begin with
            ``#!``.
    """
    if "\r" in text:
        raise UsageError(
            f"{name} has CR line ends, which sbatch refuses", hint=f"sed -i 's/\\r$//' {name}"
        )
    if not text.startswith("#!"):
        raise UsageError(
            f"{name} does not begin with #!, which sbatch needs", hint="add the line #!/bin/bash"
        )
    first = text[2:].partition("\n")[0].strip()
    program, _, option = first.partition(" ")
    interpreter = (program, *([option.strip()] if option.strip() else []))
    shell = PurePath(
        option.split()[-1] if PurePath(program).name == "env" and option else program
    ).name
    options = read_batch_options(text.splitlines())
    sizes = read_sizes(dict(options.directives))
    root = parse_shell(text)
    source = Source(root, arguments)
    missing = []
    launches = []
    if shell not in ("bash", "sh", "dash", "ksh"):
        missing.append(f"{shell or first} runs the script: hpcrun reads only scripts for bash")
    elif (line := misread_line(root)) is not None:
        missing.append(f"line {line} is not understood")
    else:
        launches = _launches(source)
        missing += _problems(source, launches)
    secrets = list(_secrets(root)) if misread_line(root) is None else []
    if missing:
        changes = []
    else:
        changes = [change for launch in launches for change in _marks(launch)]
    changes += [(node.start_byte, node.end_byte, f'"${name}"') for node, name, _ in secrets]
    data = text.encode("utf-8", "surrogateescape")
    changed = sorted({data[:start].count(b"\n") + 1 for start, *_ in changes})
    for start, end, piece in sorted(changes, reverse=True):
        data = data[:start] + piece.encode() + data[end:]
    new = data.decode("utf-8", "surrogateescape")
    if shell == "bash":
        new = ERROR_TRAP + new[new.index("\n") if "\n" in new else len(new) :]
    lines = [launch.line for launch in launches if launch.line]
    remarks = [
        *options.remarks,
        *(remark for line in lines if not missing for remark in line.remarks),
    ]
    remarks += [
        f"as by sbatch, srun starts torchrun {_tasks(line, sizes)} times on a node, and all but "
        "one fail: "
        "request one task for each node, with its GPUs and CPUs"
        for line in lines
        if _has_idle_agents(line, sizes)
    ]
    remarks += [
        f"line {node.start_point[0] + 1}: the secret goes through the environment, not into the "
        "run's folder"
        for node, *_ in secrets
    ]
    if re.search(r"\$0\b|\$\{0\}|BASH_SOURCE", text):
        remarks.append(
            "$0 is a copy of the script in the run's folder, as by sbatch it is one in Slurm's "
            "spool"
        )
    if secret_kind(new):
        remarks.append(
            f"the script holds {secret_kind(new)}, and the run's folder has a copy of it"
        )
    return BatchScript(
        name,
        interpreter,
        new,
        options,
        sizes,
        () if missing else tuple(lines),
        tuple(changed),
        tuple((name, value) for _, name, value in secrets),
        tuple(dict.fromkeys(remarks)),
        tuple(dict.fromkeys(missing)),
    )


def _tasks(line: LaunchLine, sizes: Sizes) -> int:
    total = number_of(line.srun.get("ntasks"))
    each = number_of(line.srun.get("ntasks-per-node"))
    return each or (max(1, total // sizes.nodes) if total else sizes.tasks)


def _has_idle_agents(line: LaunchLine, sizes: Sizes) -> bool:
    """Return whether srun surely starts more torchruns than --nnodes names."""
    nnodes, *tasks = (
        line.torchrun.get("nnodes"),
        line.srun.get("ntasks"),
        line.srun.get("ntasks-per-node"),
    )
    known = (
        line.starter == "torchrun"
        and line.by_srun
        and all(number_of(text) for text in (nnodes, *tasks) if text)
    )
    return known and sizes.nodes * _tasks(line, sizes) > (number_of(nnodes) or sizes.nodes)


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
            launches.append(_Launch(node, launch[1], launch[0], rank=launch[0].rank))
    surest = min((launch.rank for launch in launches), default=0)
    return [launch for launch in launches if launch.rank == surest]


def _problems(source: Source, launches: list[_Launch]) -> Iterator[str]:
    """Yield why hpcrun does not take over the launch of a script."""
    if not launches:
        yield "no line is known to start a training"
    for launch in launches:
        if launch.problem:
            yield f"line {launch.number}: {launch.problem}"
        elif reason := _place(source.root, launch.node):
            yield f"line {launch.number}: {reason}"
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
            calls = [
                call
                for call in nodes_of(root, "command")
                if node_text(call.named_children[0]) == name
            ]
            if len(calls) != 1 or depth == 0:
                return f"it is in the function {name}, which is called {len(calls)} times"
            return _place(root, calls[0], depth - 1)
        if parent.next_sibling is not None and parent.next_sibling.type == "&":
            later = (
                call for call in nodes_of(root, "command") if call.start_byte > parent.end_byte
            )
            if all(node_text(call.named_children[0]) != "wait" for call in later):
                return (
                    "it runs in the background, and nothing waits for it: see hpcrun submit --role"
                )
    return None


def _exclude_each_other(one: Node, other: Node) -> bool:
    """Whether two launches stand in different branches of a condition."""
    mine = [one, *parents_of(one)]
    theirs = [other, *parents_of(other)]
    common = next(node for node in mine if node in theirs)
    if common.type == "case_statement":
        return True
    if common.type not in _BRANCHES:
        return False
    above = [nodes[nodes.index(common) - 1].type for nodes in (mine, theirs)]
    return bool({"elif_clause", "else_clause"} & {*above})


def _marks(launch: _Launch) -> Iterator[tuple[int, int, str]]:
    """Yield the places and the texts of the changes."""
    line = launch.line
    assert line is not None  # only launches without a problem are changed
    for number in sorted({line.at, *line.marks}):
        place = launch.words[number].start
        assert place is not None  # the reader has refused words of a variable
        mark = f"{line.marks[number]} " if number in line.marks else ""
        yield place, place, f"{PROGRAM + ' ' if number == line.at else ''}{mark}"


def _secrets(root: Node) -> Iterator[tuple[Node, str, str]]:
    """Yield each secret that the script sets a variable to.

    Each secret has its place, a variable of hpcrun for the secret, and the text.
    """
    for number, node in enumerate(nodes_of(root, "variable_assignment")):
        if len(node.named_children) < 2 or any(child.type == "+=" for child in node.children):
            continue
        name = node_text(node.named_children[0])
        value = node.named_children[1]
        text = node_text(value)
        if value.type in ("string", "raw_string"):
            plain = text[1:-1]
        else:
            plain = text
        if "$" not in text and "`" not in text and plain and is_secret(name, plain, ()):
            yield value, f"HPCRUN_SECRET_{number}", plain


def changed_lines(script: BatchScript) -> Iterator[tuple[int, str]]:
    """Yield the changed lines with their numbers, without secrets."""
    lines = script.text.splitlines()
    for number in script.changed:
        yield number, HIDER.hide(lines[number - 1])
