"""The commands that a shell script or the text of ``sh -c`` calls, as far as its text shows them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""
    (?P<blank>\\\n|[ \t\r]+)
  | (?P<heredoc><<-?[ \t]*(?P<delimiter>\\?[\w.-]+|'[^'\n]*'|"[^"\n]*"))
  | (?P<substitution>\$\((?!\()|[<>]\()
  | (?P<redirect>\d*(?:&>>|&>|>>|>&|>\||<&|<<<|<>|>|<))
  | (?P<end>\n|;;|;|&&|\|\||\|&|\||&)
  | (?P<open>\()
  | (?P<close>\))
  | (?P<backquote>`)
  | (?P<part>'[^']*'|\$'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"
      |\$\{[^}\n]{0,200}\}|\$\(\([^\n]{0,200}?\)\)|\\.|[^\s'"\\;&|()<>`$]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)(?:\[[@*]\])?\}?")
_KEYWORDS = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "{", "}", "fi", "done"})


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """One command of a script: its words without their quotes, and its first line."""

    line: int
    words: tuple[str, ...]


@dataclass(slots=True)
class _Open:
    """An unfinished command, and what opened it: a word with ``$(`` continues after the ``)``, ``(`` does not."""

    opened: str = ""
    line: int = 1
    words: list[str] = field(default_factory=list)
    word: list[str] = field(default_factory=list)
    array: str = ""

    def end_word(self) -> None:
        if self.word:
            self.words.append("".join(self.word))
            self.word = []


class _Tokenizer:
    """Reads a text token by token. Comments, here documents and quoted text are not commands."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._delimiters: list[str] = []
        self._stack = [_Open()]
        self._variables: dict[str, tuple[str, ...]] = {}

    def commands(self) -> Iterator[ShellCommand]:
        position = 0
        while position < len(self._text):
            now = self._stack[-1]
            if self._text[position] == "#" and not now.word:
                position = _end_of_line(self._text, position)
                continue
            match = _TOKEN.match(self._text, position)
            assert match is not None  # the last alternative matches any character
            if not now.words and not now.word:
                now.line = self._line
            yield from self._take(match)
            position = match.end()
            self._line += match[0].count("\n")
            if match[0] == "\n" and self._delimiters:
                position = self._behind_documents(position)
        while self._stack:
            yield from self._finish(self._stack.pop())

    def _take(self, match: re.Match[str]) -> Iterator[ShellCommand]:
        now, kind, text = self._stack[-1], match.lastgroup, match[0]
        if match["delimiter"] is not None:
            self._delimiters.append(match["delimiter"].strip("\\'\""))
        elif kind == "part":
            now.word.append(_unquoted(text))
        elif kind in ("blank", "redirect"):
            now.end_word()
        elif kind == "substitution":
            self._stack.append(_Open(opened="$("))
        elif kind == "backquote" and now.opened == "`":
            yield from self._close()
        elif kind == "backquote":
            self._stack.append(_Open(opened="`"))
        elif kind == "open":
            yield from self._open(now)
        elif kind == "close":
            yield from self._close()
        elif kind == "end" and not now.array:
            yield from self._finish(now)

    def _open(self, now: _Open) -> Iterator[ShellCommand]:
        assigned = _ASSIGNMENT.fullmatch("".join(now.word))
        if assigned and not assigned[2]:  # NAME=(
            now.word = []
            self._stack.append(_Open(opened="=(", array=assigned[1]))
            return
        if now.word and not now.words:  # NAME(): a function's name is not a command
            now.word = []
        yield from self._finish(now)
        self._stack.append(_Open(opened="("))

    def _close(self) -> Iterator[ShellCommand]:
        now = self._stack[-1]
        if len(self._stack) == 1:  # a pattern of case
            now.words, now.word = [], []
            return
        self._stack.pop()
        if now.array:
            now.end_word()
            self._variables[now.array] = tuple(now.words)
            return
        yield from self._finish(now)
        if now.opened in ("$(", "`"):
            self._stack[-1].word.append("$")  # a placeholder for the output

    def _finish(self, now: _Open) -> Iterator[ShellCommand]:
        now.end_word()
        words, now.words = now.words, []
        while words and words[0] in _KEYWORDS:
            words = words[1:]
        while words and (assigned := _ASSIGNMENT.fullmatch(words[0])):
            self._variables[assigned[1]] = tuple(assigned[2].split())
            words = words[1:]
        if expanded := tuple(self._expanded(words)):
            yield ShellCommand(now.line, expanded)

    def _expanded(self, words: list[str]) -> Iterator[str]:
        """Replace variables that the script has assigned: ``CMD="torchrun ..."`` and ``$CMD`` are often lines apart."""
        for word in words:
            variable = _VARIABLE.fullmatch(word)
            yield from self._variables.get(variable[1], (word,)) if variable else (word,)

    def _behind_documents(self, position: int) -> int:
        """Return where the text continues after its here documents."""
        for delimiter in self._delimiters:
            while position < len(self._text):
                end = _end_of_line(self._text, position)
                line, position = self._text[position:end], end + 1
                self._line += 1
                if line.strip() == delimiter:
                    break
        self._delimiters = []
        return position


def read_commands(text: str) -> list[ShellCommand]:
    """Return the commands of a shell script in their order, with the values that the script itself assigns.

    Text that only a running shell can replace stays: other variables, output of commands, sourced files.
    """
    return list(_Tokenizer(text).commands())


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _unquoted(part: str) -> str:
    if part.startswith("$'"):
        return part[2:-1]
    if len(part) > 1 and part[0] in "'\"":
        return part[1:-1] if part[0] == "'" else re.sub(r'\\([$`"\\\n])', r"\1", part[1:-1])
    return part[1:] if part.startswith("\\") and len(part) > 1 else part
