"""The line that starts the ranks: which words are srun's, torchrun's, and the program's. Pure.

The same reader serves a script's words, of which some are known only in the job, and the words of
``hpcrun submit torchrun ...``. The reader reports what it does not understand, and never guesses an
unknown option.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Literal

from hpcrun.job.launch_options import Program, takes_value
from hpcrun.job.launcher.launchers import (
    BY_MODULE,
    BY_NAME,
    SHELLS,
    WRAPPERS,
    find_calls,
    interpreted,
    is_python,
    unwrapped,
)
from hpcrun.job.text.shell_text import UNKNOWN, Word, read_commands

Starter = Literal["torchrun", "srun", "command", "python"]
# the marks of hpcrun/in_job/launch/batch/launch_words.py
EACH = "::"
BY_TORCHRUN = ":::"
_TRANSPARENT = frozenset(
    "env nohup time timeout exec command builtin stdbuf uv poetry pipenv pdm hatch rye pixi conda "
    "mamba micromamba".split()
)
"""Wrappers that may run hpcrun_launch in place of the launch: what they set reaches the ranks."""
_CONTAINERS = frozenset(
    """
        apptainer singularity shifter podman docker enroot podman-hpc sarus charliecloud ch-run
    """.split()
)
_SCRIPTS = frozenset({".sh", ".bash", ".sbatch", ".slurm"})
_TOOLS = frozenset(
    "setup.py pip venv ipykernel virtualenv compileall json.tool site ensurepip http.server wandb "
    "tensorboard.main nltk.downloader spacy py_compile timeit zipfile".split()
)
_UTILITIES = frozenset(
    ": [ awk basename cat cd chmod chown clush cp conda curl cut date df dirname du echo env "
    "export false find findmnt "
    "free git grep gunzip head hostname ibstat id ifconfig ip ipcs ipcrm killall kill ln ls lscpu "
    "lsof lstopo md5sum "
    "mkdir mktemp module ml mount mv nproc numfmt nvidia-smi pip pip3 pkill printenv printf ps pwd "
    "rm rocm-smi rsync "
    "scontrol sed sha256sum sleep sort source ssh stat sync tail tar tee test timedatectl touch tr "
    "true ulimit umount "
    "uname unlink unzip uptime wc wget which whoami xargs zcat zstd".split()
)
"""Programs that train nothing: an srun that starts one of them is part of the set-up."""
_SERVICES = {
    ("ray", "start"),
    ("ray", "stop"),
    ("ray", "status"),
    ("mlflow", "server"),
    ("wandb", "login"),
}
_HELPER = (
    r"(?i)(?:^|[^a-z])(?:pre_?process|prepare|prep|download|convert|conversion|tokeni[sz]e|setup"
    r"|install|split|merge|"
    r"export|upload|plot|visuali[sz]e|eval|evaluate|evaluation|test|infer|inference|predict"
    r"|generate|summari[sz]e|check|clean|"
    r"stats|average|report|get|find|make|create|build|cache|update|copy|push|benchmark)(?:[^a-z]"
    r"|$)"
)
"""Names of programs that are not the training of a script, if another program is.

Compiled when a script is first searched for them.
"""
_ALONE = ("multi-prog", "pty", "het-group", "bcast", "no-allocate")
"""Options of srun whose step hpcrun cannot start: several programs, a terminal, no allocation."""


class UnclearError(Exception):
    """A launch that hpcrun does not take over; the message says why."""


@dataclass(frozen=True, slots=True)
class LaunchLine:
    """What a command starts."""

    starter: Starter  # who starts the ranks
    at: int  # the number of the word in front of which ``hpcrun_launch`` stands
    marks: dict[int, str]  # number of a word → the mark in front of it
    rank: int  # how surely it is a training, 0 for the surest
    by_srun: bool = False
    # their options by long name, with their values; UNKNOWN stands for what only the job knows
    srun: dict[str, str | None] = field(default_factory=dict)
    torchrun: dict[str, str | None] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what is different


def read_launch(words: Sequence[Word]) -> tuple[LaunchLine, list[Word]] | None:
    """Return what a command starts, and its words with the values of its variables.

    The result is None if the command starts no training.

    Raises:
        UnclearError: the words of the launch are in a variable.
    """
    words = _with_values(words, 0)
    at = 0
    texts = _texts(words)
    while at < len(texts) and PurePath(texts[at]).name in _TRANSPARENT:
        inner = unwrapped(texts[at:])
        if inner is None or inner.option:
            break
        at = len(texts) - len(inner.words)
    if at < len(texts):
        by_srun = PurePath(texts[at]).name == "srun"
    else:
        by_srun = False
    start, srun = read_options(words, at + 1, "srun") if by_srun else (at, {})
    words = _with_values(words, start)
    texts = _texts(words)
    program = texts[start:]
    rank = _rank(program)
    if (
        not program
        or _is_set_up(program)
        or (rank is None and not by_srun and _torchrun_head(words, start) is None)
    ):
        return None
    remarks = _srun_remarks(srun)
    starter: Starter = "srun" if by_srun else "python" if rank else "command"
    rank = (int(rank is None) if by_srun else rank or 0) + _is_helper(program)
    line = LaunchLine(starter, at, {start: EACH}, rank, by_srun, srun, {}, remarks)
    if words[at].start is None or words[start].start is None:
        raise UnclearError("its words are in a variable")
    if any(name.startswith("container") for name in srun):
        inside = (
            "the ranks run in a container of srun: hpcrun has the log of each task, and no "
            "record of its end"
        )
        return replace(line, remarks=(*remarks, inside)), words
    return _with_torchrun(line, words, start), words


def _with_torchrun(line: LaunchLine, words: list[Word], start: int) -> LaunchLine:
    """Return the launch with torchrun's part, if torchrun starts the ranks.

    If the words of the program are in a variable, the launch gets only a remark.

    Raises:
        UnclearError: torchrun has no program that hpcrun could start.
    """
    head = _torchrun_head(words, start)
    texts = _texts(words)
    own_ranks = "`{}` starts ranks itself: hpcrun logs shows the output of each task of srun".format
    if head is None:
        if line.by_srun:
            calls = find_calls(texts[start:], lambda _: None)
        else:
            calls = []
        return replace(
            line, remarks=(*line.remarks, *(own_ranks(call.title) for call in calls[:1]))
        )
    end, options = read_options(words, head, "torchrun")
    if end == len(words) or "run-path" in options:
        raise UnclearError("torchrun has no program that hpcrun could start")
    if words[end].start is None:
        return replace(line, remarks=(*line.remarks, own_ranks("torchrun")))
    marks, remarks = (
        {start: BY_TORCHRUN, end: EACH},
        (*line.remarks, *_unknown("torchrun", options)),
    )
    rank = int(_is_helper(texts[end:]))
    return replace(
        line, starter="torchrun", marks=marks, torchrun=options, rank=rank, remarks=remarks
    )


def _with_values(words: Sequence[Word], at: int) -> list[Word]:
    """Return the words, with the value of the variable at a place as words of its own.

    An example is ``$LAUNCHER train.py``.
    """
    first = words[at] if at < len(words) else None
    if (
        first is None
        or first.choices is None
        or len(first.choices) != 1
        or len(first.choices[0]) < 2
    ):
        return list(words)
    texts = first.choices[0]
    inner = [
        Word(text, None if number else first.start, ((text,),)) for number, text in enumerate(texts)
    ]
    return [*words[:at], *inner, *words[at + 1 :]]


def _texts(words: Sequence[Word]) -> tuple[str, ...]:
    """Return a text for each word: what is not known is UNKNOWN."""
    return tuple(
        item.choices[0][0] if item.choices and item.choices[0] else UNKNOWN for item in words
    )


def _srun_remarks(options: dict[str, str | None]) -> tuple[str, ...]:
    """Return what is different from srun's options.

    Raises:
        UnclearError: srun has an option for a step that hpcrun cannot start itself, or ``--export``
            without ``ALL``.
    """
    alone = next((name for name in _ALONE if name in options), None)
    if alone:
        raise UnclearError(f"srun --{alone}: hpcrun cannot start such a step itself")
    export = options.get("export")
    if export is not None and "ALL" not in export.split(","):
        raise UnclearError(f"srun --export={export}: the ranks do not get the variables of the job")
    left_out = (
        f"srun --{name} is left out: each rank has its own log, which hpcrun logs shows"
        for name in ("output", "error")
        if name in options
    )
    return (*left_out, *_unknown("srun", options))


def _unknown(program: Program, options: dict[str, str | None]) -> tuple[str, ...]:
    return tuple(
        f"{program} --{name} is not known to hpcrun, and goes to {program} as it is"
        for name in options
        if takes_value(program, f"--{name}") is None
    )


def _is_helper(texts: Sequence[str]) -> bool:
    """Whether the name of a program says that it is no training."""
    for at, text in enumerate(texts):
        if text.endswith((".py", ".sh")) or (at and texts[at - 1] == "-m"):
            place = "/".join(PurePath(text).parts[-2:])
            return "train" not in PurePath(text).stem and re.search(_HELPER, place) is not None
    return False


def _torchrun_head(words: Sequence[Word], at: int) -> int | None:
    """Return the number of torchrun's first option.

    The result is None if another program starts here, or may start here.
    """
    texts = _texts(words)
    launcher = BY_NAME.get(PurePath(texts[at]).name)
    rest = texts[at + 1 :]
    if is_python(texts[at]) and (inner := interpreted(texts[at:])) and inner.option == "-m":
        launcher = BY_MODULE.get(inner.words[0])
        rest = inner.words[1:]
    is_certain = all(item.known is not None for item in words[at : len(texts) - len(rest)])
    is_torchrun = launcher is not None and launcher.name in ("torchrun", "torch.distributed.launch")
    if is_torchrun and is_certain:
        return len(texts) - len(rest)
    return None


def _rank(texts: tuple[str, ...]) -> int | None:
    """Return how surely a program is a training, or None if the program is no training.

    The number is 0 for a launcher, 1 for Python, and 3 for a shell script.
    """
    if not texts or _is_set_up(texts):
        return None
    name = PurePath(texts[0]).name
    launcher = BY_NAME.get(name)
    if launcher:
        is_ranks = launcher.role != "submits" and launcher.name != "srun"
        starts = not launcher.subcommands or bool({*texts[1:2]} & {*launcher.subcommands})
        return 0 if is_ranks and starts else None
    inner = interpreted(texts)
    if inner and is_python(name):
        if inner.option == "-m" and inner.words[0] in BY_MODULE:
            return 0
        return 1
    if name in _CONTAINERS or name in WRAPPERS:
        programs = {*BY_NAME, *SHELLS}
        behind = (texts[at:] for at in range(1, len(texts)))
        ranks = (
            _rank(words)
            for words in behind
            if is_python(words[0])
            or PurePath(words[0]).name in programs
            or words[0].endswith((".py", ".sh"))
        )
        return min((rank for rank in ranks if rank is not None), default=None)
    if name.endswith(".py"):
        return 1
    is_script = (
        inner is not None and not inner.option and PurePath(inner.words[0]).suffix in _SCRIPTS
    )
    return 3 if is_script or name.endswith(".sh") else None


def _is_set_up(texts: tuple[str, ...]) -> bool:
    """Return whether a program trains nothing.

    Such a program is a utility, a service, one of Python's own tools, or a shell text of these.
    """
    name, inner = PurePath(texts[0]).name, interpreted(texts)
    if name in _UTILITIES or (name, *texts[1:2]) in _SERVICES:
        return True
    if is_python(name):
        if inner is None or inner.option == "-c":
            return True
        if inner.option:
            tool = inner.words[0]
        else:
            tool = PurePath(inner.words[0]).name
        return tool.partition(".")[0] in _TOOLS or tool in _TOOLS
    if inner is None or inner.option != "-c" or not inner.words:
        return False
    commands = [command.words for command in read_commands(inner.words[0].replace(UNKNOWN, "$X"))]
    return bool(commands) and all(_is_set_up(words) or "=" in words[0] for words in commands)


def number_of(text: str | None) -> int | None:
    """Return the number of an option, the larger one of ``1:2``; None for another text."""
    last = (text or "").rpartition(":")[2]
    return int(last) if re.fullmatch(r"[1-9]\d{0,5}", last) else None


def read_options(
    words: Sequence[Word], at: int, program: Program
) -> tuple[int, dict[str, str | None]]:
    """Return the number of the first word behind a program's options, and the options.

    The options have their long names.

    Raises:
        UnclearError: the value of a variable may hold options, the program, or both.
    """
    options: dict[str, str | None] = {}
    waiting = ""
    for number in range(at, len(words)):
        item = words[number]
        if item.choices is None:
            if not waiting:
                raise UnclearError(
                    f"{item.text} may hold options or the program: only the job knows its value"
                )
            options[waiting], waiting = UNKNOWN, ""
            continue
        ends = {
            _read_choice(choice, waiting, program, options) for choice in reversed(item.choices)
        }
        if len(ends) > 1:
            raise UnclearError(f"{item.text} has several values, which are read in different ways")
        waiting, stop = ends.pop()
        if stop == 0:
            return number, options
        if stop > 0:
            raise UnclearError(f"{item.text} holds options and the program")
    return len(words), options


def _read_choice(
    choice: Sequence[str], waiting: str, program: Program, options: dict[str, str | None]
) -> tuple[str, int]:
    """Read the words of one choice.

    Return the option that waits for its value, and the number of the word at which the program is,
    or -1.

    Raises:
        UnclearError: the program has no such option that hpcrun knows.
    """
    for number, text in enumerate(choice):
        if waiting:
            options[waiting], waiting = text, ""
            continue
        if not text.startswith("-") or text == "-":
            return "", number
        key, equals, value = text.partition("=") if text.startswith("--") else (text, "", text[2:])
        known = takes_value(program, key)
        if known is None and equals and re.fullmatch(r"--[A-Za-z][\w-]*", key):
            known = key[2:], False  # whatever it is, no other word is its value
        if known is None:
            raise UnclearError(
                f"{program} has no option {text.replace(UNKNOWN, '...')} that hpcrun knows"
            )
        options[known[0]] = value or None
        waiting = known[0] if known[1] and not (equals or value) else ""
    return waiting, -1
