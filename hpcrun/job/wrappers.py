"""Programs that start the program after their own options: env, nohup, uv run. Pure: no I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
