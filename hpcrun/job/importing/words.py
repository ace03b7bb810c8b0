"""The values of a script's words, as far as its text decides them; the rest stays as text for a shell. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from tree_sitter import Node

from hpcrun.errors import UsageError
from hpcrun.job.importing.source import ansi_c_value, node_text
from hpcrun.job.quoting import quote_bash
from hpcrun.job.secrets import is_secret, secret_kind

Moment = Literal["submit", "job"]
"""When a value is known: in the shell that submits, or only in the job."""
_BRACES = re.compile(r"\$\{(?P<name>\w+|[@*])(?:(?P<with>:?[-=])(?P<default>[^{}`\\]*))?\}")
_ITEM = re.compile(r"\$\{(?P<name>\w+)\[(?P<index>[^\]]*)\]\}")
_LENGTH = re.compile(r"\$\{#(?P<name>\w+)\[[@*]\]\}")
_PLAIN = re.compile(r"\$(?P<name>\w+|[@*#?$!])")
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*|\{[A-Za-z_]\w*(:?[-=][\w.,:/@%+ =-]*)?\})", re.ASCII)
"""The expansions that a person's own shell may make: none of them can run a command."""
_IN_QUOTES = re.compile(r'[ "-~]*')  # printable ASCII without !, which an interactive shell expands there
# What the shell of the submission has as well, whatever modules and environments the job loads.
OF_PERSON = frozenset("HOME USER LOGNAME SCRATCH WORK PROJECT STORE DATA GROUP_SCRATCH PSCRATCH".split())
_ONLY_IN_JOB = frozenset("TMPDIR HOSTNAME RANDOM SECONDS MASTER_ADDR MASTER_PORT RANK LOCAL_RANK WORLD_SIZE NODE_RANK "
                         "NNODES LOCAL_WORLD_SIZE CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES".split())  # fmt: skip
_EXPANSIONS = frozenset({"simple_expansion", "expansion", "arithmetic_expansion", "command_substitution"})
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod,
               ast.USub, ast.Load)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """A piece of a word whose text is known."""

    text: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """A piece of a word that a shell has to replace.

    Attributes:
        text: in the shell's own syntax: ``$HOME``.
        quoted: the shell does not split its value into words.
    """

    text: str
    when: Moment = "job"
    quoted: bool = True


Word = tuple[Known | Unknown, ...]
Value = Word | list[Word]
"""A variable's: one word, or the list of an array."""


def known(word: Word) -> str | None:
    """Return the text of a word, None if a shell has to replace a piece of it."""
    return "".join(part.text for part in word if isinstance(part, Known)) if _all_known(word) else None


def _all_known(word: Word) -> bool:
    return all(isinstance(part, Known) for part in word)


def in_job(word: Word) -> bool:
    """Return whether only the job knows the whole text of a word, or only its shell may replace a piece of it."""
    return not can_be_pasted(word) or any(isinstance(part, Unknown) and part.when == "job" for part in word)


def can_be_pasted(word: Word) -> bool:
    """Return whether a shell that replaces the pieces of a word runs nothing: they are plain variables."""
    return all(isinstance(part, Known) or _VARIABLE.fullmatch(part.text) for part in word)


def secret_of(word: Word) -> str | None:
    """Return the name of the secret that ``NAME=value`` sets, None if it sets none."""
    name, equals, text = word[0].text.partition("=") if word and isinstance(word[0], Known) else ("", "", "")
    value = (Known(text), *word[1:])
    return name if equals and is_secret_value(name, value) else None


def is_secret_value(name: str, value: Value | None) -> bool:
    """Return whether a variable is a secret; where a shell finds a piece of its value, its name decides."""
    if not isinstance(value, tuple):
        return value is None and is_secret(name)
    texts = (part.text for part in value if isinstance(part, Known))
    return is_secret(name, known(value), ()) or any(secret_kind(text) for text in texts)


def shell_text(word: Word, *, escape: bool = False) -> str:
    """Return a word as one word for bash, in which the shell replaces the unknown pieces.

    Args:
        escape: keep ``{name}`` from being taken for a parameter of a sweep.
    """
    if (text := known(word)) is not None:
        return _quoted(_escaped(text) if escape else text)
    found, within = "", ""
    for part in word:
        text = _escaped(part.text) if escape else part.text
        if isinstance(part, Unknown) and not part.quoted and part.when == "job":  # the shell splits its value
            found += (f'"{within}"' if within else "") + text
            within = ""
        elif isinstance(part, Known) and not _IN_QUOTES.fullmatch(text):
            found += (f'"{within}"' if within else "") + _quoted(text)
            within = ""
        else:
            within += text if isinstance(part, Unknown) else re.sub(r'([\\"$`])', r"\\\1", text)
    return found + (f'"{within}"' if within else "")


def _quoted(text: str) -> str:
    """Return a word that an interactive shell, too, takes literally: in ``$'...'`` old ones expand ``!``."""
    word = quote_bash(text)
    return word.replace("!", "\\x21") if word.startswith("$'") else word


def _escaped(text: str) -> str:
    return re.sub(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}", r"{{\1}}", text)


@dataclass(slots=True)
class Scope:
    """The variables of a script at one of its lines.

    Attributes:
        facts: what Slurm's own variables will be, as far as the directives decide it.
        arguments: the arguments of the script, ``$1`` and so on.
        loaded: modules or an environment may have set any variable.
        missing: the arguments that the script used, and that were not given.
        room: how many characters and words the values of all words may still have: variables that hold one another
            grow without end.
        outputs: commands whose output a word needs, in the shell's syntax.
    """

    facts: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)
    loaded: bool = False
    missing: set[str] = field(default_factory=set)
    room: int = 2_000_000

    def variable(self, name: str, text: str, default: str | None = None) -> Value:
        """Return the value of a variable.

        Args:
            text: how the script writes it.
            default: the value if it is not set.
        """
        if name in ("@", "*"):
            return [(Known(argument),) for argument in self.arguments]
        if name == "#":
            return (Known(str(len(self.arguments))),)
        if name.isdigit():
            return self._argument(name, text, default)
        if name in self.values:
            value = self.values[name]
            return (Known(default),) if default and value == () else value
        if name in self.facts:
            return (Known(self.facts[name]),)
        if name in ("SLURM_SUBMIT_DIR", "PWD"):
            return (Unknown("$PWD", "submit"),)
        if not name.isidentifier():  # $? and the like
            return (Unknown(text),)
        late = name in _ONLY_IN_JOB or name.startswith("SLURM") or (self.loaded and name not in OF_PERSON)
        return (Unknown(text if default is not None else f"${{{name}}}", "job" if late else "submit"),)

    def _argument(self, name: str, text: str, default: str | None) -> Value:
        if name != "0" and 0 < int(name[:4]) <= len(self.arguments):
            return (Known(self.arguments[int(name[:4]) - 1]),)
        if default is not None:
            return (Known(default),)
        self.missing.add(text)
        return (Unknown(text),)

    def fields(self, node: Node) -> list[Word]:
        """Return the words that one word of the script becomes: none, one, or several."""
        fields: list[list[Known | Unknown]] = [[]]
        for piece, splits in self._pieces(node, quoted=False):
            self._use_room(piece)
            for index, word in enumerate(piece if isinstance(piece, list) else [piece]):
                if index:
                    fields.append([])
                for part in word:
                    if splits and isinstance(part, Known):
                        self._split(part.text, fields)
                    else:
                        fields[-1].append(part)
        empty = node_text(node) in ('""', "''")
        return [word for parts in fields if (word := _joined(parts)) and (empty or known(word) != "")]

    def _use_room(self, piece: Value) -> None:
        for word in piece if isinstance(piece, list) else [piece]:
            self.room -= 1 + sum(1 + len(part.text) for part in word)
        if self.room < 0:
            raise UsageError("the values of the script's variables are too long: 2 MB together",
                             hint="convert it by hand: docs/import.md")  # fmt: skip

    @staticmethod
    def _split(text: str, fields: list[list[Known | Unknown]]) -> None:
        words = re.split(r"[ \t\n]+", text)
        for index, word in enumerate(words):
            if index:
                fields.append([])
            if word:
                fields[-1].append(Known(word))

    def word(self, node: Node) -> Word:
        """Return the value of a word that is not split, as in an assignment."""
        parts: list[Known | Unknown] = []
        for piece, _ in self._pieces(node, quoted=True):
            self._use_room(piece)
            words = piece if isinstance(piece, list) else [piece]
            for index, word in enumerate(words):
                parts += [Known(" "), *word] if index else word
        return _joined(parts)

    def items(self, node: Node) -> list[Word]:
        """Return the words of ``( ... )``."""
        return [word for child in node.named_children if child.type != "comment" for word in self.fields(child)]

    def _pieces(self, node: Node, *, quoted: bool) -> list[tuple[Value, bool]]:
        """Return the pieces of a word, each with whether the shell splits it into words."""
        kind, text = node.type, node_text(node)
        if (
            kind in _EXPANSIONS and text[:1] in " \t\n"
        ):  # tree-sitter-bash 0.25 takes a blank before $ in a string along
            blank, text = text[: len(text) - len(text.lstrip())], text.lstrip()
            return [((Known(blank),), False), *self._expanded(kind, text, quoted=quoted)]
        if kind in _EXPANSIONS:
            return self._expanded(kind, text, quoted=quoted)
        if kind == "string":
            return self._within(node)
        if kind == "raw_string":
            return [((Known(text[1:-1]),), False)]
        if kind == "ansi_c_string":
            value = ansi_c_value(text[2:-1])
            return [((Unknown(text, quoted=False) if value is None else Known(value),), False)]
        if kind in ("concatenation", "command_name", "translated_string"):
            if kind == "translated_string":  # $"...": without a catalogue of messages, the string itself
                return self._within(node.named_children[0])
            return [piece for child in node.children for piece in self._pieces(child, quoted=quoted)]
        if kind in ("process_substitution", "brace_expression", "extglob_pattern"):
            return [((Unknown(text, quoted=False),), False)]
        return self._literal(text)

    def _expanded(self, kind: str, text: str, *, quoted: bool) -> list[tuple[Value, bool]]:
        """Return the pieces that a ``$`` becomes."""
        if kind in ("simple_expansion", "expansion"):
            value = self._expansion(text)
            if not quoted and not isinstance(value, list):
                value = tuple(_unquoted(part) for part in value)
            return [(value, not quoted)]
        if kind == "arithmetic_expansion":
            number = self.arithmetic(text[3:-2])
            return [((Known(str(number)) if number is not None else Unknown(self.filled(text)),), False)]
        return [(self._output(text, quoted=quoted), not quoted)]

    def _within(self, node: Node) -> list[tuple[Value, bool]]:
        """Return the pieces of a double-quoted word: what stands between its expansions is text."""
        pieces: list[tuple[Value, bool]] = []
        start, end = 1, 1
        raw = node.text or b""
        for child in node.named_children:
            if child.type == "string_content":
                continue
            end = child.start_byte - node.start_byte
            pieces.append(((Known(_unescaped(raw[start:end])),), False))
            pieces += [(piece, False) for piece, _ in self._pieces(child, quoted=True)]
            start = child.end_byte - node.start_byte
        pieces.append(((Known(_unescaped(raw[start:-1])),), False))
        return pieces

    def _literal(self, text: str) -> list[tuple[Value, bool]]:
        text = text.replace("\\\n", "")
        home = text == "~" or text.startswith("~/")
        rest = re.sub(r"\\(.)", r"\1", text[1:] if home else text, flags=re.DOTALL)
        if re.search(r"[*?]|\[[^\]]+\]", text) and "\\" not in text and "=" not in text:
            return [((Unknown(text, "job", quoted=False),), False)]
        return [((Unknown("$HOME", "submit"), Known(rest)) if home else (Known(rest),), False)]

    def _expansion(self, text: str) -> Value:
        if match := _LENGTH.fullmatch(text):
            value = self.values.get(match["name"])
            return (Known(str(len(value))),) if isinstance(value, list) else (Unknown(text),)
        if match := _ITEM.fullmatch(text):
            return self._item(match["name"], match["index"], text)
        match = _PLAIN.fullmatch(text) or _BRACES.fullmatch(text)
        if match is None:
            return (Unknown(self.filled(text)),)
        default = match["default"] if "default" in match.groupdict() else None
        if default and "$" in default:
            return (Unknown(text),)
        value = self.variable(match["name"], text, None if default is None else default.strip("\"'"))
        if isinstance(value, list) and match["name"] not in ("@", "*"):
            return value[0] if value else ()  # an array's plain name is its first item
        return value

    def _item(self, name: str, index: str, text: str) -> Value:
        value = self.values.get(name)
        if not isinstance(value, list):
            return (Unknown(text),)
        if index in ("@", "*"):
            return value
        number = self.arithmetic(index)
        return value[number] if number is not None and -len(value) <= number < len(value) else (Unknown(text),)

    def _output(self, text: str, *, quoted: bool) -> Word:
        command = text[2:-1].strip() if text.startswith("$(") else text[1:-1].strip()
        if command == "pwd":
            value = self.variable("PWD", "$PWD")
            return value if isinstance(value, tuple) else ()
        if match := re.fullmatch(r"(?:which|command -v|type -p)\s+([\w.-]+)", command):
            return (Known(match[1]),)
        if command == "whoami":
            return (Unknown("$USER", "submit"),)
        if re.search(r"scontrol\s+show\s+host|SLURM_(JOB_)?NODELIST|^hostname\b|^nodeset\b", command):
            return (Unknown("$MASTER_ADDR"),)
        return (Unknown(text, quoted=quoted),)

    def filled(self, text: str) -> str:
        """Return an expression in which known numbers replace their variables."""

        def number(match: re.Match[str]) -> str:
            value = self.values.get(match[1], (Known(self.facts[match[1]]),) if match[1] in self.facts else None)
            words = known(value) if isinstance(value, tuple) else None
            return words if words and re.fullmatch(r"-?\d{1,12}", words) else match[0]

        return re.sub(r"\$\{?(\w+)\}?", number, text) if text.startswith("$((") else text

    def arithmetic(self, text: str) -> int | None:
        """Return the value of an arithmetic expression, None if it is not known."""
        if len(text) > 200:
            return None

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2]
            found = known(word) if isinstance(word := self.variable(name, match[0]), tuple) else None
            return found if found and re.fullmatch(r"\d{1,12}", found) else "?"

        text = text.replace("$((", "((")
        plain = re.sub(r"\$\{?(\w+)\}?|\b([A-Za-z_]\w*)\b", value, text)
        try:
            tree = ast.parse(plain.strip().replace("/", "//"), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        if not all(isinstance(node, _ARITHMETIC) for node in ast.walk(tree)):
            return None
        try:
            result = _calculated(tree.body)
        except (ArithmeticError, ValueError):
            return None
        return result if abs(result) < 10**15 else None


def _calculated(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp):
        return -_calculated(node.operand)
    if not isinstance(node, ast.BinOp):
        raise ValueError
    left, right = _calculated(node.left), _calculated(node.right)
    if max(abs(left), abs(right)) > 10**15:
        raise ValueError
    if isinstance(node.op, ast.FloorDiv):  # C's division, which bash has, rounds to zero
        return abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
    if isinstance(node.op, ast.Mod):
        return left - right * (abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1))
    return (
        left + right if isinstance(node.op, ast.Add) else left - right if isinstance(node.op, ast.Sub) else left * right
    )


def _unquoted(part: Known | Unknown) -> Known | Unknown:
    return Unknown(part.text, part.when, quoted=False) if isinstance(part, Unknown) else part


def _unescaped(raw: bytes) -> str:
    return re.sub(r"\\([$`\"\\\n])", lambda match: "" if match[1] == "\n" else match[1],
                  raw.decode("utf-8", "surrogateescape"))  # fmt: skip


def _joined(parts: Iterable[Known | Unknown]) -> Word:
    """Return the pieces of a word, neighbours that are known as one."""
    found: list[Known | Unknown] = []
    for part in parts:
        if isinstance(part, Known) and found and isinstance(found[-1], Known):
            found[-1] = Known(found[-1].text + part.text)
        elif isinstance(part, Unknown) or part.text or not found:
            found.append(part)
    if len(found) > 1:
        found = [part for part in found if isinstance(part, Unknown) or part.text]
    return tuple(found)
