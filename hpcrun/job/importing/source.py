"""The statements of a batch script, with their lines. Text → statements; tree-sitter reads the shell's grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from tree_sitter import Language, Node, Parser

from hpcrun.errors import UsageError
from hpcrun.job.secrets import hide_secrets, is_secret

StatementKind = Literal["assignment", "command", "compound", "function", "broken"]
_ASSIGNED = re.compile(
    r"""\b([A-Za-z_]\w{0,99})=((?:\$'(?:\\[\s\S]|[^'\\])*'|\$?"(?:\\[\s\S]|[^"\\])*"|'[^']*'|\$\([^()\n]*\)|`[^`\n]*`|[^\s;"'])+)"""
)
MOST_BYTES = 200_000
_DEEPEST = 400
"""How deep a script's grammar may be nested: Python's own recursion ends at a thousand."""
_ASSIGNMENTS = frozenset({"variable_assignment", "declaration_command", "variable_assignments"})
_REDIRECTS = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})

_NAME = re.compile(r"\$\{?[#!]?(\w+)")
_IN_ARITHMETIC = re.compile(r"\(\(([^()]{0,300})")
_ANSI_C = re.compile(
    r"\\(?:[0-7]{1,3}|x[0-9A-Fa-f]{0,2}(?!\{)|u[0-9A-Fa-f]{0,4}|U[0-9A-Fa-f]{0,8}|c(?:\\\\|[^\\'])|[^0-7xuUc])|[^\\']",
    re.DOTALL,
)
_ESCAPES = {"a": b"\a", "b": b"\b", "e": b"\x1b", "E": b"\x1b", "f": b"\f", "n": b"\n", "r": b"\r", "t": b"\t",
            "v": b"\v", "\\": b"\\", "'": b"'", '"': b'"', "?": b"?"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a script.

    Attributes:
        first, last: its lines, counted from 1.
        text: the statement as written.
        node: its place in the grammar: of a redirected command or of the first part of a pipe, the command itself.
        output: the redirection, and the programs of the pipe behind the command, as written; empty if there are none.
        either: what follows behind ``||``.
        background: it ends with ``&``.
    """

    kind: StatementKind
    first: int
    last: int
    text: str
    node: Node
    output: str = ""
    either: str = ""
    background: bool = False


_ANSI_C_STRING = re.compile(rb"\$'(?:[^'\\]|\\.)*'", re.DOTALL)


@cache
def _parser() -> Parser:
    import tree_sitter_bash

    return Parser(Language(tree_sitter_bash.language()))


def parse_shell(text: str) -> Node:
    """Return the syntax tree of a shell text.

    Raises:
        UsageError: it is too long, nested too deeply, or not text.
    """
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > MOST_BYTES or b"\0" in data:
        what = "has a NUL character" if b"\0" in data else f"is larger than {MOST_BYTES // 1000} kB"
        raise UsageError(f"the script {what}", hint="give a batch script: a text that sbatch takes")
    root = _parser().parse(data).root_node
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.children]
        if not level:
            return root
    raise UsageError("the script is nested too deeply to be read")


def node_text(node: Node) -> str:
    """Return the text of a place in the grammar."""
    return (node.text or b"").decode("utf-8", "surrogateescape")


def read_statements(text: str) -> list[Statement]:
    """Return the statements of a script in their order; comments are none."""
    found: list[Statement] = []
    root = parse_shell(text)
    trusted = _misread_from(root)
    for node in root.children:
        if node.end_byte > trusted and node.is_named:
            found.append(_statement("broken", node))
        elif node.type == "&" and found:
            found[-1] = replace(found[-1], background=True)
        elif node.is_named and node.type != "comment":
            found += _statements(node)
        elif not node.is_named and node.type not in (";", "\n", "&"):
            found.append(_statement("broken", node))
    return found


def _misread_from(root: Node) -> float:
    """Return the byte at which the grammar ends a ``$'text'`` elsewhere than bash, infinity if nowhere.

    tree-sitter-bash 0.25 takes the end of an escaped backslash for the beginning of an escaped quote: ``$'\\\\'``.
    """
    todo, begins = [root] if b"\\\\" in (root.text or b"") else [], [float("inf")]
    while todo:
        node = todo.pop()
        todo += node.named_children
        if node.type == "ansi_c_string" and not _ANSI_C_STRING.fullmatch(node.text or b""):
            begins.append(node.start_byte)
    return min(begins)


def _statement(
    kind: StatementKind, node: Node, inner: Node | None = None, output: str = "", either: str = ""
) -> Statement:
    last = node.end_point[0] + (node.end_point[1] > 0 or node.end_point[0] == node.start_point[0])
    return Statement(kind, node.start_point[0] + 1, last, node_text(node).strip(), inner or node, output, either)


def _statements(node: Node) -> Iterator[Statement]:
    """Yield the statements of a list ``a && b`` one by one; of all else one statement."""
    if node.type == "list" and not node.has_error:
        left, operator, right = node.children[0], node.children[1].type, node.children[-1]
        if operator == "&&":
            yield from _statements(left)
            yield from _statements(right)
            return
        inner = list(_statements(left))
        if operator == "||" and len(inner) == 1 and inner[0].kind in ("command", "assignment"):
            yield _statement(inner[0].kind, node, inner[0].node, output=inner[0].output, either=node_text(right))
            return
    yield _one(node)


def _one(node: Node) -> Statement:
    if node.has_error:
        return _statement("broken", node)
    if node.type in _ASSIGNMENTS:
        return _statement("assignment", node)
    if node.type == "function_definition":
        return _statement("function", node)
    body = node
    if node.type == "redirected_statement":
        body = node.child_by_field_name("body") or node
    if body.type == "pipeline":
        body = body.named_children[0]
        if body.type == "redirected_statement":
            body = body.child_by_field_name("body") or body
    if body.type in ("command", "test_command", "unset_command"):
        behind = node_text(node)[body.end_byte - node.start_byte :].strip()
        return _statement("command", node, body, output=behind)
    return _statement("compound", node)


def commands_in(node: Node) -> Iterator[Node]:
    """Yield the commands anywhere within a statement."""
    todo = [node]
    while todo:
        here = todo.pop()
        if here.type == "command":
            yield here
        todo += reversed(here.named_children)


def words_of(node: Node) -> tuple[list[Node], list[Node]]:
    """Return the assignments before a command, and its words; a redirection is neither."""
    before = [child for child in node.named_children if child.type == "variable_assignment"]
    words = [
        child for child in node.named_children if child.type not in ("variable_assignment", "comment", *_REDIRECTS)
    ]
    return before, words


def ansi_c_value(text: str) -> str | None:
    """Return what ``$'text'`` means in bash, None if it cannot be read (strtrans.c, ansicstr)."""
    if _ANSI_C.sub("", text):
        return None
    found = b""
    for match in _ANSI_C.finditer(text):
        piece = _ansi_c_piece(match[0])
        if piece is None:
            return None
        if piece == b"\0":  # the string ends there
            break
        found += piece
    return found.decode("utf-8", "surrogateescape")


def _ansi_c_piece(text: str) -> bytes | None:
    kind, rest = text[1:2], text[2:]
    if text[0] != "\\":
        return text.encode("utf-8", "surrogateescape")
    if kind in _ESCAPES:
        return _ESCAPES[kind]
    if kind in "01234567":
        return bytes([int(text[1:], 8) & 0xFF])
    if kind == "c":
        return b"\x7f" if rest == "?" else bytes([ord(rest[0].upper()) & 0x1F]) if rest.isascii() else None
    if kind in "xuU" and rest:
        number = int(rest, 16)
        if kind == "x":
            return bytes([number])
        return chr(number).encode("utf-8", "surrogatepass") if number <= 0x10FFFF else None
    return text.encode("utf-8", "surrogateescape") if kind not in "xuU" else None


def names_in(text: str) -> set[str]:
    """Return the names that a shell text may use as variables."""
    bare = (name for inner in _IN_ARITHMETIC.findall(text) for name in re.findall(r"[A-Za-z_]\w*", inner))
    return {*_NAME.findall(text), *bare}


def without_secrets(text: str) -> str:
    """Return a text of the script in which the values of secrets are masked."""
    return hide_secrets(_ASSIGNED.sub(_masked, text))


def _masked(match: re.Match[str]) -> str:
    return f"{match[1]}=***" if is_secret(match[1], match[2].strip("\"'"), ()) else match[0]
