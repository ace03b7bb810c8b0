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
from hpcrun.job.launcher.known_launchers import (
    BY_MODULE,
    BY_NAME,
    SHELLS,
    WRAPPERS,
    Inner,
    Launcher,
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
_PYTHONS = ("uv", "pdm", "hatch")
"""Wrappers that start a file of Python with a Python of their choice."""
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
    doubt: int  # how unsure it is that this is a training, 0 for the surest
    by_srun: bool = False
    # their options by long name, with their values; UNKNOWN stands for what only the job knows
    srun: dict[str, str | None] = field(default_factory=dict)
    torchrun: dict[str, str | None] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()  # what is different
    starts_ranks: bool = False  # its program is a launcher, which decides the ranks


def read_launch(words: Sequence[Word]) -> tuple[LaunchLine, list[Word]] | None:
    """Return what a command starts, and its words with the values of its variables.

    The result is None if the command starts no training.

    Raises:
        UnclearError: the words of the launch are in a variable.
    """
    words = _with_values(words, 0)
    at = _behind_wrappers(_texts(words))
    by_srun = at < len(words) and PurePath(_texts(words)[at]).name == "srun"
    start = at
    srun: dict[str, str | None] = {}
    if by_srun:
        start, srun = read_options(words, at + 1, "srun")
    words = _with_values(words, start)
    program = _texts(words)[start:]
    if not program or _is_set_up(program):
        return None
    doubt = _doubt(program)
    if doubt is None and not by_srun and _torchrun_head(words, start) is None:
        return None
    remarks = _srun_remarks(srun)
    starter, doubt = _starter(doubt, by_srun)
    if _is_helper(program):
        doubt += 1
    line = LaunchLine(starter, at, {start: EACH}, doubt, by_srun, srun, {}, remarks)
    if words[at].start is None or words[start].start is None:
        raise UnclearError("its words are in a variable")
    if any(name.startswith("container") for name in srun):
        inside = (
            "the ranks run in a container of srun: hpcrun has the log of each task, and no "
            "record of its end"
        )
        return replace(line, remarks=(*remarks, inside)), words
    return _with_torchrun(line, words, start), words


def _starter(doubt: int | None, by_srun: bool) -> tuple[Starter, int]:
    """Return what starts a program of this doubt, and the doubt about the whole launch."""
    if by_srun:
        return "srun", 1 if doubt is None else 0
    if doubt:
        return "python", doubt
    return "command", 0


def _behind_wrappers(texts: tuple[str, ...]) -> int:
    """Return the number of the first word behind the wrappers that may run hpcrun_launch."""
    at = 0
    while at < len(texts) and PurePath(texts[at]).name in _TRANSPARENT:
        inner = unwrapped(texts[at:])
        if inner is None or inner.option:
            break
        is_file = bool(inner.words) and inner.words[0].endswith(".py")
        if is_file and PurePath(texts[at]).name in _PYTHONS:
            break
        at = len(texts) - len(inner.words)
    return at


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
        calls = find_calls(texts[start:], lambda _: None) if line.by_srun else []
        if not calls:
            return line
        remarks = (*line.remarks, own_ranks(calls[0].title))
        return replace(line, remarks=remarks, starts_ranks=True)
    end, options = read_options(words, head, "torchrun")
    if end == len(words) or "run-path" in options:
        raise UnclearError("torchrun has no program that hpcrun could start")
    if words[end].start is None:
        remarks = (*line.remarks, own_ranks("torchrun"))
        return replace(line, remarks=remarks, starts_ranks=True)
    return replace(
        line,
        starter="torchrun",
        marks={start: BY_TORCHRUN, end: EACH},
        torchrun=options,
        doubt=int(_is_helper(texts[end:])),
        remarks=(*line.remarks, *_unknown("torchrun", options)),
    )


def _with_values(words: Sequence[Word], at: int) -> list[Word]:
    """Return the words, with the value of the variable at a place as words of its own.

    An example is ``$LAUNCHER train.py``.
    """
    if at >= len(words):
        return list(words)
    choices = words[at].choices
    if choices is None or len(choices) != 1 or len(choices[0]) < 2:
        return list(words)
    first, *others = choices[0]
    inner = [Word(first, words[at].start, ((first,),))]
    inner += [Word(text, None, ((text,),)) for text in others]
    return [*words[:at], *inner, *words[at + 1 :]]


def _texts(words: Sequence[Word]) -> tuple[str, ...]:
    """Return a text for each word: what is not known is UNKNOWN."""
    texts = []
    for item in words:
        if item.choices and item.choices[0]:
            texts.append(item.choices[0][0])
        else:
            texts.append(UNKNOWN)
    return tuple(texts)


def _srun_remarks(options: dict[str, str | None]) -> tuple[str, ...]:
    """Return what is different from srun's options.

    Raises:
        UnclearError: srun has an option for a step that hpcrun cannot start itself, or ``--export``
            without ``ALL``.
    """
    for name in _ALONE:
        if name in options:
            raise UnclearError(f"srun --{name}: hpcrun cannot start such a step itself")
    export = options.get("export")
    if export is not None and "ALL" not in export.split(","):
        raise UnclearError(f"srun --export={export}: the ranks do not get the variables of the job")
    reason = "each rank has its own log, which hpcrun logs shows"
    left_out = [name for name in ("output", "error") if name in options]
    remarks = [f"srun --{name} is left out: {reason}" for name in left_out]
    return (*remarks, *_unknown("srun", options))


def _unknown(program: Program, options: dict[str, str | None]) -> tuple[str, ...]:
    """Return a remark on each option that hpcrun does not know."""
    unknown = [name for name in options if takes_value(program, f"--{name}") is None]
    text = "{0} --{1} is not known to hpcrun, and goes to {0} as it is".format
    return tuple(text(program, name) for name in unknown)


def _is_helper(texts: Sequence[str]) -> bool:
    """Whether the name of a program says that it is no training."""
    for at, text in enumerate(texts):
        if text.endswith((".py", ".sh")) or (at and texts[at - 1] == "-m"):
            path = PurePath(text)
            place = "/".join(path.parts[-2:])
            return "train" not in path.stem and re.search(_HELPER, place) is not None
    return False


def _torchrun_head(words: Sequence[Word], at: int) -> int | None:
    """Return the number of torchrun's first option.

    The result is None if another program starts here, or may start here.
    """
    texts = _texts(words)
    launcher = BY_NAME.get(PurePath(texts[at]).name)
    rest = texts[at + 1 :]
    inner = interpreted(texts[at:]) if is_python(texts[at]) else None
    if inner and inner.option == "-m":
        launcher = BY_MODULE.get(inner.words[0])
        rest = inner.words[1:]
    if launcher is None or launcher.name not in ("torchrun", "torch.distributed.launch"):
        return None
    head = len(texts) - len(rest)
    is_certain = all(item.known is not None for item in words[at:head])
    return head if is_certain else None


def _doubt(texts: tuple[str, ...]) -> int | None:
    """Return how unsure it is that a program is a training, or None if the program is no training.

    The number is 0 for a launcher, 1 for Python, and 3 for a shell script; of a helper, one more.
    """
    if not texts or _is_set_up(texts):
        return None
    name = PurePath(texts[0]).name
    launcher = BY_NAME.get(name)
    if launcher:
        return 0 if _starts_training(launcher, texts) else None
    inner = interpreted(texts)
    if inner and is_python(name):
        return 0 if inner.option == "-m" and inner.words[0] in BY_MODULE else 1
    if name in _CONTAINERS or name in WRAPPERS:
        return _doubt_behind(texts)
    if name.endswith(".py"):
        return 1
    if name.endswith(".sh") or _is_script(inner):
        return 3
    return None


def _is_script(inner: Inner | None) -> bool:
    """Return whether what an interpreter runs is a file with a script's ending."""
    if inner is None or inner.option:
        return False
    return PurePath(inner.words[0]).suffix in _SCRIPTS


def _starts_training(launcher: Launcher, texts: tuple[str, ...]) -> bool:
    """Return whether a launcher with these words starts a training itself."""
    if launcher.role == "submits" or launcher.name == "srun":
        return False
    if not launcher.subcommands:
        return True
    return len(texts) > 1 and texts[1] in launcher.subcommands


def _doubt_behind(texts: tuple[str, ...]) -> int | None:
    """Return how unsure it is that a program behind a container or a wrapper is a training."""
    doubts = []
    for at, text in enumerate(texts[1:], start=1):
        name = PurePath(text).name
        is_program = name in BY_NAME or name in SHELLS or text.endswith((".py", ".sh"))
        doubt = _doubt(texts[at:]) if is_program or is_python(text) else None
        if doubt is not None:
            doubts.append(doubt)
    return min(doubts, default=None)


def _is_set_up(texts: tuple[str, ...]) -> bool:
    """Return whether a program trains nothing.

    Such a program is a utility, a service, one of Python's own tools, or a shell text of these.
    """
    name = PurePath(texts[0]).name
    inner = interpreted(texts)
    if name in _UTILITIES or (name, *texts[1:2]) in _SERVICES:
        return True
    if is_python(name):
        if inner is None or inner.option == "-c":
            return True
        tool = inner.words[0] if inner.option else PurePath(inner.words[0]).name
        return tool.partition(".")[0] in _TOOLS or tool in _TOOLS
    if inner is None or inner.option != "-c" or not inner.words:
        return False
    commands = read_commands(inner.words[0].replace(UNKNOWN, "$X"))
    for command in commands:
        is_assignment = "=" in command.words[0]
        if not is_assignment and not _is_set_up(command.words):
            return False
    return bool(commands)


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
            options[waiting] = UNKNOWN
            waiting = ""
            continue
        ends = set()
        for choice in reversed(item.choices):
            ends.add(_read_choice(choice, waiting, program, options))
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
            options[waiting] = text
            waiting = ""
            continue
        if not text.startswith("-") or text == "-":
            return "", number
        key = text
        equals = ""
        value = text[2:]
        if text.startswith("--"):
            key, equals, value = text.partition("=")
        known = takes_value(program, key)
        if known is None and equals and re.fullmatch(r"--[A-Za-z][\w-]*", key):
            known = key[2:], False  # whatever it is, no other word is its value
        if known is None:
            shown = text.replace(UNKNOWN, "...")
            raise UnclearError(f"{program} has no option {shown} that hpcrun knows")
        name, needs_value = known
        options[name] = value or None
        if needs_value and not equals and not value:
            waiting = name
    return waiting, -1
