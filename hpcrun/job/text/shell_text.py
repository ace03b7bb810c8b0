"""The commands of a shell script and the values of their words, as far as the text decides them.

Pure.

tree-sitter reads the grammar of bash. Nothing is evaluated: a word has the texts that the script's
assignments may give it, and ``UNKNOWN`` where only a running shell knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from time import process_time
from typing import TYPE_CHECKING

from hpcrun.errors import UsageError

if TYPE_CHECKING:  # few jobs run a shell script
    from tree_sitter import Node, Parser

UNKNOWN = "\0"  # a piece of a text that only a running shell knows
MOST_BYTES = 200_000
# how deep a script's grammar may be nested: Python's own recursion ends at a thousand
_DEEPEST = 400
_MOST_SECONDS = 2
_MOST_CHOICES = 8
_MOST_TEXT = 20_000
_VARIABLE = re.compile(r"\$(\w+|[@*])|\$\{(\w+)(?:\[([@*])\])?\}")
_ANSI_C_STRING = re.compile(rb"\$'(?:[^'\\]|\\.)*'", re.DOTALL)
_NO_WORDS = frozenset(
    {"variable_assignment", "comment", "file_redirect", "heredoc_redirect", "herestring_redirect"}
)
_EXPANSIONS = frozenset({"simple_expansion", "expansion"})


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command."""

    text: str  # as written
    start: int | None  # its first byte in the script; None if it is a part of a variable's value
    # what it may become, each choice a list of words; None if that is not known
    choices: tuple[tuple[str, ...], ...] | None

    @property
    def known(self) -> str | None:
        """Its text, if it becomes one word without an unknown piece."""
        if self.choices is None or len(self.choices) != 1 or len(self.choices[0]) != 1:
            return None
        text = self.choices[0][0]
        return None if UNKNOWN in text else text


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of a script: its words without their quotes, and its first line."""

    line: int
    words: tuple[str, ...]


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse_shell(text: str) -> Node:
    """Return the syntax tree of a script.

    Raises:
        UsageError: if the script is too long, nested too deeply, not text, or not understood in
            time.
    """
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > MOST_BYTES or b"\0" in data:
        what = f"is larger than {MOST_BYTES // 1000} kB"
        if b"\0" in data:
            what = "has a NUL character"
        raise UsageError(f"the script {what}", hint="give a batch script: a text that sbatch takes")
    deadline = process_time() + _MOST_SECONDS
    try:
        # only a source that is a function is read with a limit; tree-sitter needs half a minute for
        # 64 KiB of "a=("
        tree = _parser().parse(
            lambda at, _: data[at : at + 4096],
            progress_callback=lambda *_: process_time() > deadline,
        )
    except ValueError:
        _parser().reset()
        raise UsageError(f"the script is not understood within {_MOST_SECONDS} s") from None
    root = tree.root_node
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.children]
        if not level:
            return root
    raise UsageError("the script is nested too deeply to be read")


def read_commands(text: str) -> list[ShellCommand]:
    """Return the commands of a shell script in their order.

    The commands have the values that the script itself assigns. A value that only a running shell
    knows is ``$``. A script that is nested too deeply has no commands.
    """
    try:
        source = Source(parse_shell(text.replace("\0", "")))
    except UsageError:
        return []
    commands = []
    for node in nodes_of(source.root, "command"):
        if any(parent.type in ("string", "heredoc_body") for parent in parents_of(node)):
            continue  # its output is a part of a text
        words: list[str] = []
        for item in source.words(node):
            words += item.choices[-1] if item.choices else (item.text,)
        if words:
            known = tuple(text.replace(UNKNOWN, "$") for text in words)
            commands.append(ShellCommand(node.start_point[0] + 1, known))
    return commands


def node_text(node: Node) -> str:
    """Return the text of a place in the grammar."""
    return (node.text or b"").decode("utf-8", "surrogateescape")


def nodes_of(root: Node, *kinds: str) -> Iterator[Node]:
    """Yield the nodes of some kinds in the order of the text."""
    todo = [root]
    while todo:
        node = todo.pop()
        if node.type in kinds:
            yield node
        todo += reversed(node.named_children)


def parents_of(node: Node) -> Iterator[Node]:
    """Yield the nodes around a node, the nearest first."""
    while (parent := node.parent) is not None:
        yield parent
        node = parent


def misread_line(root: Node) -> int | None:
    r"""Return the first line that the grammar does not understand or misreads, or None.

    To misread means to read in another way than bash. tree-sitter-bash 0.25 takes the end of an
    escaped backslash for the beginning of an escaped quote: ``$'\\'``.
    """
    misread = list(nodes_of(root, "ERROR")) if root.has_error else []
    for node in nodes_of(root, "ansi_c_string"):
        if not _ANSI_C_STRING.fullmatch(node.text or b""):
            misread.append(node)
    if root.has_error and not misread:
        misread.append(root)
    return min((node.start_point[0] + 1 for node in misread), default=None)


class Source:
    """A script with the values of its variables, and of the arguments that it gets."""

    def __init__(self, root: Node, arguments: Sequence[str] = ()) -> None:
        self.root = root
        self._arguments = tuple(arguments)
        self._assigned: dict[str, list[Node]] = {}
        self._unknown: set[str] = set()
        self._reading: set[str] = set()
        for node in nodes_of(root, "variable_assignment"):
            name = node_text(node.named_children[0]).partition("[")[0]
            self._assigned.setdefault(name, []).append(node)
        for node in nodes_of(root, "for_statement"):
            names = [child for child in node.named_children if child.type == "variable_name"]
            self._unknown.update(map(node_text, names))
        for command in nodes_of(root, "command"):
            words = [node_text(child) for child in command.named_children]
            if words and words[0] in ("read", "mapfile", "readarray", "getopts", "printf"):
                self._unknown |= {name for name in words[1:] if name.isidentifier()}

    def words(self, command: Node) -> list[Word]:
        """Return the words of a command; redirections and assignments before it are none."""
        words = []
        for node in command.named_children:
            if node.type in _NO_WORDS:
                continue
            inner = node.named_children[0] if node.type == "command_name" else node
            words.append(Word(node_text(node), node.start_byte, self._choices(inner)))
        return words

    def words_of(self, node: Node) -> tuple[str, ...] | None:
        """Return what one word becomes, None if the script leaves that open."""
        choices = self._choices(node)
        if choices is None or len(choices) != 1:
            return None
        return choices[0]

    def assignments(self, name: str) -> Sequence[Node]:
        """Return the places in the script that assign a variable."""
        return self._assigned.get(name, ())

    def assigned_text(self, assignment: Node) -> str | None:
        """Return the text that an assignment gives its variable, None if that is not known."""
        adds = any(child.type == "+=" for child in assignment.children)
        _, *values = assignment.named_children
        texts = self._texts(values[0]) if values else [""]
        if adds or texts is None or len(texts) != 1 or UNKNOWN in texts[0]:
            return None
        return texts[0]

    def _choices(self, node: Node) -> tuple[tuple[str, ...], ...] | None:
        text = node_text(node).strip()
        quoted = text.startswith('"') and text.endswith('"')
        match = _VARIABLE.fullmatch(text.strip('"') if quoted else text)
        if match and (node.type in _EXPANSIONS or quoted):
            return self._choices_of_variable(match, quoted=quoted)
        texts = self._texts(node)
        if texts is None:
            return ((UNKNOWN,),)
        if node.type == "command_substitution" and not quoted:
            return None
        return tuple((text,) for text in texts)

    def _choices_of_variable(
        self, match: re.Match[str], *, quoted: bool
    ) -> tuple[tuple[str, ...], ...] | None:
        """Return what a variable may become, None if that is not known."""
        name = match[1] or match[2]
        values = self._values(name)
        is_list = name in "@*" or match[3]
        if values is None:
            return ((UNKNOWN,),) if quoted and not is_list else None
        if is_list:
            return values
        choices = [value[:1] for value in values]
        if not quoted:
            choices = [tuple(" ".join(choice).split()) for choice in choices]
        return tuple(dict.fromkeys(choices))

    def _values(self, name: str) -> tuple[tuple[str, ...], ...] | None:
        """Return the lists of words that a variable may hold, None if that is not known."""
        if name in ("@", "*"):
            return (self._arguments,)
        if name.isdigit():
            number = int(name)
            if 0 < number <= len(self._arguments):
                return ((self._arguments[number - 1],),)
            return None
        if name in self._unknown or name in self._reading or name not in self._assigned:
            return None
        self._reading.add(name)
        choices = self._assigned_values(name)
        self._reading.discard(name)
        return tuple(choices) or None

    def _assigned_values(self, name: str) -> list[tuple[str, ...]]:
        """Return what the assignments of a variable may give it, nothing if that is not known."""
        choices: list[tuple[str, ...]] = []
        for node in self._assigned[name]:
            values = self._assignment(name, node, choices)
            if values is None:
                return []
            choices += [value for value in values if value not in choices]
            length = sum(len(text) for choice in choices for text in choice)
            if len(choices) > _MOST_CHOICES or length > _MOST_TEXT:
                return []
        return choices

    def _assignment(
        self, name: str, node: Node, before: list[tuple[str, ...]]
    ) -> list[tuple[str, ...]] | None:
        """Return the values after one assignment, from the values before the assignment.

        The result is None if the values are not known.
        """
        adds = any(child.type == "+=" for child in node.children)
        variable, *values = node.named_children
        if variable.type == "subscript":
            return None
        if values and values[0].type == "array":
            words = self._array(values[0])
            return _joined(before or [()], words[:_MOST_CHOICES]) if adds else words
        texts = self._texts(values[0], name, before) if values else [""]
        if texts is None:
            return None
        if not adds:
            return [(text,) for text in texts]
        firsts = _first_words(before) if before else [""]
        return [(first + text,) for first in firsts for text in texts]

    def _array(self, node: Node) -> list[tuple[str, ...]]:
        """Return the lists of words that an array may be."""
        words: list[tuple[str, ...]] = [()]
        for child in node.named_children:
            if child.type != "comment":
                words = _joined(words, self._choices(child) or ((UNKNOWN,),))
        return words

    def _texts(
        self, node: Node, variable: str = "", before: Sequence[tuple[str, ...]] = ()
    ) -> list[str] | None:
        """Return the texts that a word may become without being divided.

        The result is None if there are too many texts. ``before`` has the values of a variable
        before this assignment to it.
        """
        kind = node.type
        text = node_text(node)
        if kind == "raw_string":
            return [text[1:-1]]
        if kind in _EXPANSIONS:
            blank = text[: len(text) - len(text.lstrip())]  # tree-sitter-bash 0.25 takes it along
            match = _VARIABLE.fullmatch(text.strip())
            if match is None:
                return [blank + UNKNOWN]
            name = match[1] or match[2]
            values: Sequence[tuple[str, ...]] | None = before
            if name != variable:
                values = self._values(name)
            if not values:
                return [blank + UNKNOWN]
            return [blank + " ".join(value) for value in values]
        if kind in ("string", "concatenation", "command_name", "translated_string"):
            return self._joined(node, variable, before)
        if kind in ("word", "number", "variable_name", "test_operator"):
            return [re.sub(r"\\(.)", r"\1", text.replace("\\\n", ""), flags=re.DOTALL)]
        return [UNKNOWN]

    def _joined(
        self, node: Node, variable: str, before: Sequence[tuple[str, ...]]
    ) -> list[str] | None:
        """Return the texts of a word that has several pieces.

        In quotes, what stands between the expansions is text.
        """
        raw = node.text or b""
        quoted = node.type == "string"
        pieces: list[list[str]] = []
        place = 1 if quoted else 0
        for child in node.named_children:
            if quoted and child.type == "string_content":
                continue
            start = child.start_byte - node.start_byte
            pieces.append([_unescaped(raw[place:start])])
            texts = self._texts(child, variable, before)
            if texts is None:
                return None
            pieces.append(texts)
            place = child.end_byte - node.start_byte
        pieces.append([_unescaped(raw[place : len(raw) - quoted])])
        if sum(len(piece) > 1 for piece in pieces) > 3:
            return None
        return ["".join(piece) for piece in product(*pieces)][: 4 * _MOST_CHOICES]


def _first_words(values: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the first word of each list that has words."""
    return [value[0] for value in values if value]


def _joined(
    values: Sequence[tuple[str, ...]], others: Sequence[tuple[str, ...]]
) -> list[tuple[str, ...]]:
    """Return every list of words with every other one behind it."""
    return [(*value, *other) for value in values for other in others]


def _unescaped(raw: bytes) -> str:
    text = raw.decode("utf-8", "surrogateescape").replace("\\\n", "")
    return re.sub(r'\\([$`"\\])', r"\1", text)
