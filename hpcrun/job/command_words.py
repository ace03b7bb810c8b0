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


@dataclass(frozen=True, slots=True)
class Inner:
    """What a wrapper, Python or a shell runs, with its arguments."""

    option: str  # ``-m`` for a module, ``-c`` for a text, or empty for a program or a script
    words: tuple[str, ...]


def unwrapped(argv: tuple[str, ...]) -> Inner | None:
    """Return what the wrapper at the head of a command starts; None if it starts nothing."""
    wrapper, rest = WRAPPERS[PurePath(argv[0]).name], argv[1:]
    if wrapper.subcommands and not (rest and rest[0] in wrapper.subcommands):
        return None
    rest, words = rest[bool(wrapper.subcommands) :], wrapper.words
    while rest:
        first, behind = rest[0], rest[1:]
        if first in wrapper.stops:
            return None
        if first == wrapper.module:
            return Inner("-m", behind) if behind else None
        if first == "--":
            rest = behind[words:]
            break
        if first in wrapper.values:
            rest = behind[1:]
        elif first.startswith("-") or _ASSIGNMENT.fullmatch(first):
            rest = behind
        elif words:
            words, rest = words - 1, behind
        else:
            break
    return Inner("", rest) if rest else None


def is_python(name: str) -> bool:
    """Return whether a word names Python: ``/opt/bin/python3.11``."""
    return _PYTHON.fullmatch(PurePath(name).name) is not None


def interpreted(argv: tuple[str, ...]) -> Inner | None:
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
            return Inner("-m", rest) if rest else None
        elif "c" in option:
            return Inner("-c", rest)
    return Inner("", rest) if rest and rest[0] != "-" else None


def program_of(argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return what a command runs behind its wrappers and interpreter: a script, ``-m`` and a module, or a program."""
    is_wrapper = PurePath(argv[0]).name in WRAPPERS
    inner = unwrapped(argv) if is_wrapper else interpreted(argv)
    if inner and inner.option == "-m":
        return ("-m", *inner.words)
    if inner and is_wrapper:
        return program_of(inner.words)
    return inner.words if inner and not inner.option and inner.words[0].endswith(SCRIPTS) else argv
