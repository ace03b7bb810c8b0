"""What a command line runs: the program behind env, uv run or python, and the commands of a shell script. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_PYTHON = re.compile(r"python[\d.]*")
_PYTHON_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELL_VALUES = frozenset({"-O", "+O", "-o", "+o", "--rcfile", "--init-file"})
SCRIPTS = (".py", ".sh", ".bash")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that starts the program after its options.

    Attributes:
        subcommands: its subcommands, one of which comes first: ``run``.
        values: options with a value as the next word.
        words: the number of its own words before the program: timeout's duration.
        module: the option before a Python module.
        stops: options with which it starts no program.
    """

    subcommands: tuple[str, ...] = ()
    values: frozenset[str] = frozenset()
    words: int = 0
    module: str | None = None
    stops: frozenset[str] = frozenset()


def _options(words: str) -> frozenset[str]:
    return frozenset(words.split())


_UV = _options(
    "--python -p --with --with-editable --with-requirements --project --directory --env-file --extra --group --package "
    "--index --index-url --default-index --find-links --config-file --cache-dir --no-group --only-group -C "
    "--config-setting"
)
_CONDA = _options("-n --name -p --prefix --cwd")
_CONTAINER = _options(
    "-B --bind --env --env-file -H --home -W --workdir --pwd --cwd -S --scratch -o --overlay --network --mount "
    "--fusemount --security --app --hostname --dns"
)
WRAPPERS: dict[str, Wrapper] = {
    "env": Wrapper(values=_options("-u --unset -C --chdir")),
    "nohup": Wrapper(),
    "time": Wrapper(values=_options("-f --format -o --output")),
    "stdbuf": Wrapper(values=_options("-i -o -e --input --output --error")),
    "nice": Wrapper(values=_options("-n --adjustment")),
    "ionice": Wrapper(values=_options("-c --class -n --classdata")),
    "chrt": Wrapper(words=1),
    "timeout": Wrapper(values=_options("-k --kill-after -s --signal"), words=1),
    "setsid": Wrapper(),
    "exec": Wrapper(values=_options("-a")),
    "command": Wrapper(stops=_options("-v -V")),
    "builtin": Wrapper(),
    "unbuffer": Wrapper(),
    "catchsegv": Wrapper(),
    "taskset": Wrapper(words=1),
    "numactl": Wrapper(values=_options("-i -m -N -C -l -p -P")),
    "xvfb-run": Wrapper(values=_options("-n -s -e -f -p -w")),
    "strace": Wrapper(values=_options("-o -e -s -p -E -u")),
    "valgrind": Wrapper(),
    "nsys": Wrapper(("profile", "launch"), _options("-o --output -t --trace -s --sample -w -d -y -c -e -f -x")),
    "ncu": Wrapper(values=_options("-o --export -k --kernel-name -c --launch-count -s --launch-skip --set --section")),
    "uv": Wrapper(("run",), _UV, module="-m"),
    "uvx": Wrapper(values=_UV | _options("--from")),
    "poetry": Wrapper(("run",), _options("-C --directory -P --project")),
    "pipenv": Wrapper(("run",)),
    "pdm": Wrapper(("run",), _options("-p --project -c --config")),
    "hatch": Wrapper(("run",), _options("-e --env")),
    "rye": Wrapper(("run",), _options("-p --pyproject")),
    "pixi": Wrapper(("run",), _options("-e --environment --manifest-path")),
    "conda": Wrapper(("run",), _CONDA),
    "mamba": Wrapper(("run",), _CONDA),
    "micromamba": Wrapper(("run",), _CONDA),
    "apptainer": Wrapper(("exec",), _CONTAINER, words=1),
    "singularity": Wrapper(("exec",), _CONTAINER, words=1),
}


def unwrap(wrapper: Wrapper, rest: tuple[str, ...]) -> tuple[tuple[str, ...], bool]:
    """Return the program that a wrapper starts, with its arguments, and whether it is a Python module.

    Args:
        rest: the words after the wrapper's name.
    """
    if wrapper.subcommands:
        if not rest or rest[0] not in wrapper.subcommands:
            return (), False
        rest = rest[1:]
    words = wrapper.words
    while rest:
        word, behind = rest[0], rest[1:]
        if word in wrapper.stops:
            return (), False
        if word == wrapper.module:
            return behind, True
        if word == "--":
            return behind[words:], False
        if word in wrapper.values:
            rest = behind[1:]
        elif word.startswith("-") or _ASSIGNMENT.fullmatch(word):
            rest = behind
        elif words:
            words, rest = words - 1, behind
        else:
            break
    return rest, False


@dataclass(frozen=True, slots=True)
class Interpreted:
    """What Python or a shell runs: ``-m`` and a module, ``-c`` and a text, or a script, each with its arguments.

    Attributes:
        option: ``-m``, ``-c``, or empty for a script.
    """

    option: str
    words: tuple[str, ...]


def is_python(word: str) -> bool:
    """Return whether a word names Python: ``/opt/bin/python3.11``."""
    return _PYTHON.fullmatch(PurePath(word).name) is not None


def interpreted(argv: tuple[str, ...]) -> Interpreted | None:
    """Return what the interpreter at the head of a command runs; None if there is none, or if it reads stdin."""
    name, rest = PurePath(argv[0]).name, argv[1:]
    if name not in SHELLS and not _PYTHON.fullmatch(name):
        return None
    values = _SHELL_VALUES if name in SHELLS else _PYTHON_VALUES
    while rest and rest[0][:1] in ("-", "+") and rest[0] != "-":
        word, rest = rest[0], rest[1:]
        if word in values:
            rest = rest[1:]
        elif word.startswith("--") or word[:2] in values:
            continue
        elif name not in SHELLS and word.endswith("m"):  # -m, -um
            return Interpreted("-m", rest) if rest else None
        elif "c" in word:
            return Interpreted("-c", rest)
    return Interpreted("", rest) if rest and rest[0] != "-" else None


def program_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a command runs behind its wrappers and interpreter: a script, ``-m`` and a module, or a program."""
    name = PurePath(argv[0]).name
    if name in WRAPPERS:
        rest, is_module = unwrap(WRAPPERS[name], argv[1:])
        return ("-m", *rest) if is_module and rest else program_of(rest) if rest else argv
    inner = interpreted(argv)
    if inner is None or inner.option == "-c" or not (inner.option or inner.words[0].endswith(SCRIPTS)):
        return argv
    return ("-m", *inner.words) if inner.option else inner.words


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
_SETS = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
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
        assigned = _SETS.fullmatch("".join(now.word))
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
        while words and (assigned := _SETS.fullmatch(words[0])):
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
