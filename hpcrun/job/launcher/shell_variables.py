"""The variables that a shell script sets for the programs that it starts. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from hpcrun.errors import UsageError
from hpcrun.job.launcher.known_launchers import SHELLS
from hpcrun.job.text.shell_text import (
    UNKNOWN,
    Source,
    Word,
    misread_line,
    node_text,
    nodes_of,
    parse_shell,
)

if TYPE_CHECKING:
    from tree_sitter import Node

# -x: mpirun; -e: docker; --env: apptainer; --export: srun
_OPTIONS = ("--export", "--env", "-x", "-e")
_KINDS = ("variable_assignment", "unset_command", "command")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A variable that a script sets for the programs that it starts."""

    name: str
    value: str | None  # None if only a running shell knows it
    line: int
    text: str  # the value as written
    in_task: bool = False  # each task of srun evaluates it


def read_assignments(text: str, prefixes: Sequence[str]) -> list[Assignment]:
    """Return the assignments to variables whose names have these prefixes, in their order.

    A variable of the shell alone, and one that the script unsets later, are left out. A script that
    cannot be read has none.
    """
    names = re.compile(rf"(?:{'|'.join(map(re.escape, prefixes))})\w*")
    if not names.search(text):
        return []
    try:
        root = parse_shell(text)
    except UsageError:
        return []
    if misread_line(root):
        return []
    source = Source(root)
    exported = _exported(root)
    assignments: list[Assignment] = []
    for node in nodes_of(root, *_KINDS):
        if node.type == "unset_command":
            unset = {node_text(child) for child in node.named_children}
            assignments = [item for item in assignments if item.name not in unset]
        elif node.type == "command":
            assignments += _of_command(source.words(node), node, prefixes)
        elif exported is None or _is_exported(node, exported):
            name = node_text(node.named_children[0])
            raw = node_text(node).partition("=")[2]
            line = node.start_point[0] + 1
            assignments.append(Assignment(name, source.assigned_text(node), line, raw))
    return [item for item in assignments if names.fullmatch(item.name)]


def _exported(root: Node) -> set[str] | None:
    """Return the names that the script exports without a value; None if it exports every name."""
    names = set()
    for node in nodes_of(root, "declaration_command", "command"):
        if node.type == "command":
            if re.match(r"set\s+(-a|-o\s+allexport)\b", node_text(node)):
                return None
        elif _declares_exported(node):
            names |= {node_text(child) for child in node.named_children}
    return names


def _declares_exported(declaration: Node) -> bool:
    return re.match(r"(export|(declare|typeset)\s+-\w*x)\b", node_text(declaration)) is not None


def _is_exported(assignment: Node, names: set[str]) -> bool:
    parent = assignment.parent
    if parent is not None and parent.type == "command":
        return True  # NAME=VALUE program
    if parent is not None and parent.type == "declaration_command" and _declares_exported(parent):
        return True
    return node_text(assignment.named_children[0]) in names


def _of_command(words: Sequence[Word], node: Node, prefixes: Sequence[str]) -> Iterator[Assignment]:
    """Yield the variables that the words of a command set: ``env A=B``, ``srun --export=ALL,A=B``.

    The text of ``bash -c`` is a script of its own.
    """
    line = node.start_point[0] + 1
    texts = [item.choices[0][0] if item.choices and item.choices[0] else UNKNOWN for item in words]
    programs = [PurePath(text).name for text in texts]
    if programs[:1] == ["setenv"] and len(texts) > 2:  # csh
        yield _assignment(texts[1], texts[2], line)
    for at, text in enumerate(texts):
        before = texts[at - 1] if at else ""
        callers = programs[:at]
        for item in _items(text, before, callers):
            name, equals, value = item.partition("=")
            if equals:
                yield _assignment(name, value, line)
        if re.fullmatch(r"-\w*c", before) and not SHELLS.isdisjoint(callers):
            in_task = "srun" in callers
            for inner in read_assignments(text.replace(UNKNOWN, "$X"), prefixes):
                yield replace(inner, line=line + inner.line - 1, in_task=in_task or inner.in_task)


def _items(text: str, before: str, callers: Sequence[str]) -> list[str]:
    """Return what may be ``NAME=VALUE`` in a word of a command.

    Args:
        text: the word.
        before: the word before it.
        callers: the words before it, as names of programs.
    """
    option, equals, values = text.partition("=")
    if equals and option in _OPTIONS:
        return values.split(",")
    if before in _OPTIONS:
        return text.split(",")
    return [text] if "env" in callers else []


def _assignment(name: str, value: str, line: int) -> Assignment:
    return Assignment(name, None if UNKNOWN in value else value, line, value)
