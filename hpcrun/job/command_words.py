"""What a command line runs: the program behind env, nohup, uv run, python or bash. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh"})
_PYTHON = re.compile(r"python[\d.]*")
_PYTHON_VALUES = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELL_VALUES = frozenset({"-O", "+O", "-o", "+o", "--rcfile", "--init-file"})
SCRIPTS = (".py", ".sh", ".bash")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that starts the program after its options."""

    subcommands: tuple[str, ...] = ()  # its subcommands, one of which comes first: ``run``
    values: frozenset[str] = frozenset()  # options with a value as the next word
    words: int = 0  # the number of its own words before the program: timeout's duration
    module: str | None = None  # the option before a Python module
    stops: frozenset[str] = frozenset()  # options with which it starts no program


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
        first, behind = rest[0], rest[1:]
        if first in wrapper.stops:
            return (), False
        if first == wrapper.module:
            return behind, True
        if first == "--":
            return behind[words:], False
        if first in wrapper.values:
            rest = behind[1:]
        elif first.startswith("-") or _ASSIGNMENT.fullmatch(first):
            rest = behind
        elif words:
            words, rest = words - 1, behind
        else:
            break
    return rest, False


@dataclass(frozen=True, slots=True)
class Interpreted:
    """What Python or a shell runs: ``-m`` and a module, ``-c`` and a text, or a script, each with its arguments."""

    option: str  # ``-m``, ``-c``, or empty for a script
    words: tuple[str, ...]


def is_python(name: str) -> bool:
    """Return whether a word names Python: ``/opt/bin/python3.11``."""
    return _PYTHON.fullmatch(PurePath(name).name) is not None


def interpreted(argv: tuple[str, ...]) -> Interpreted | None:
    """Return what the interpreter at the head of a command runs; None if there is none, or if it reads stdin."""
    name, rest = PurePath(argv[0]).name, argv[1:]
    if name not in SHELLS and not _PYTHON.fullmatch(name):
        return None
    values = _SHELL_VALUES if name in SHELLS else _PYTHON_VALUES
    while rest and rest[0][:1] in ("-", "+") and rest[0] != "-":
        option, rest = rest[0], rest[1:]
        if option in values:
            rest = rest[1:]
        elif option.startswith("--") or option[:2] in values:
            continue
        elif name not in SHELLS and option.endswith("m"):  # -m, -um
            return Interpreted("-m", rest) if rest else None
        elif "c" in option:
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
