"""Options of sbatch, srun, torchrun, accelerate and others: which may be passed on, and what to use instead. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Literal

from hpcrun.errors import UsageError, nearest
from hpcrun.job.directives import ALIASES, FLAGS, KNOWN, LETTERS, NAMES, OWNED, PYXIS, advice_for, normalise_key
from hpcrun.job.quoting import quote_bash

Program = Literal["srun", "torchrun"]
Options = tuple[tuple[str, str | None], ...]  # name → value, None for a flag; names without leading dashes

# --wait and --kill-on-bad-exit of srun may be set, for a training that continues with fewer ranks.
_OWNED: dict[Program, dict[str, str]] = {"srun": advice_for("r"), "torchrun": advice_for("t")}
_KNOWN: dict[Program, tuple[str, ...]] = {
    "srun": (*KNOWN, *"accel-bind cpu-bind exact job-name kill-on-bad-exit label mpi overlap prolog epilog "
             "quit-on-interrupt send-libs slurmd-debug task-epilog task-prolog threads unbuffered wait".split()),
    "torchrun": tuple("event-log-handler log-dir log-line-prefix-template logs-specs max-restarts monitor-interval "
                      "numa-binding rdzv-backend rdzv-conf rdzv-endpoint rdzv-id role shutdown-timeout "
                      "start-method".split()),
}  # fmt: skip
_TORCHRUN_FLAGS = frozenset("module no-python run-path standalone use-env virtual-local-rank help".split())
# For each program: the letters of its options, their long names, and those without a value, or with one that follows =.
# srun(1) of Slurm 22.05 to 26.05 is sbatch(1) but for these; torchrun's are those of torch/distributed/run.py (2.13).
_TABLES: dict[Program | Literal["sbatch"], tuple[Mapping[str, str], frozenset[str], frozenset[str]]] = {
    "sbatch": (LETTERS, NAMES | {*LETTERS.values(), *ALIASES, "uid", "hetjob", "packjob"}, FLAGS),
    "srun": (
        {letter: name for letter, name in LETTERS.items() if letter not in "aF"}
        | {"E": "preserve-env", "K": "kill-on-bad-exit", "l": "label", "r": "relative", "T": "threads",
           "u": "unbuffered", "V": "version", "X": "disable-status", "Z": "no-allocate"},
        NAMES | {*_OWNED["srun"], *_KNOWN["srun"], *ALIASES}
        | {*"async compress disable-status external-launcher interactive msg-timeout treewidth whole x11".split()},
        (FLAGS - {"wait"}) | frozenset(
            "async bcast compress disable-status exact external-launcher help interactive kill-on-bad-exit label "
            "multi-prog no-allocate overlap preserve-env pty quit-on-interrupt send-libs unbuffered usage version "
            "whole x11".split()
        ),
    ),
    "torchrun": (
        {"m": "module", "r": "redirects", "t": "tee", "h": "help"},
        frozenset({*_OWNED["torchrun"], *_KNOWN["torchrun"]}) | _TORCHRUN_FLAGS,
        _TORCHRUN_FLAGS,
    ),
}  # fmt: skip
_LEAST_SHUTDOWN_S = 30
"""When another rank has failed, hpcrun gives a rank 25 s before SIGKILL, and then records its end."""


def is_own_option(program: Program, name: str) -> bool:
    """Return whether hpcrun sets an option itself."""
    return name in _OWNED[program]


def check_option(program: Program, key: str, value: str | None, where: str) -> str:
    """Return the normalised name of an option that may be set; UsageError if hpcrun sets it or it breaks the job."""
    name = normalise_key(key)
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]+", name):
        raise UsageError(f"{where}: {key!r} cannot be an option of {program}",
                         hint="write KEY=VALUE or KEY, with the long name: cpu-bind=cores")  # fmt: skip
    owned = _OWNED[program]
    if name in owned:
        raise UsageError(f"{where}: hpcrun sets {program}'s --{name} itself", hint=owned[name])
    # both programs accept an abbreviated name
    if longer := next((long for long in owned if long.startswith(name) and name not in _KNOWN[program]), None):
        raise UsageError(f"{where}: {program} takes --{name} for --{longer}, which hpcrun sets", hint=owned[longer])
    if value is not None and "\0" in value:
        raise UsageError(f"{where}: a NUL character cannot stand in a script")
    if program == "srun" and value in ("help", "list"):
        raise UsageError(f"{where}: srun would print a list and exit", hint=f"srun --{name}={value} shows it")
    if name == "rdzv-backend" and value == "static":
        raise UsageError(f"{where}: hpcrun chooses it itself where it suffices", hint="leave it out")
    if name == "shutdown-timeout" and re.fullmatch(r"\d+", value or "", re.ASCII) and int(value or 0) < 30:
        raise UsageError(f"{where}: hpcrun gives a rank 25 s to end",
                         hint=f"shutdown-timeout={_LEAST_SHUTDOWN_S} or more")  # fmt: skip
    return name


def takes_value(program: Program | Literal["sbatch"], option: str) -> tuple[str, bool] | None:
    """Return an option's long name, and whether the next word is its value; None if the option is not known.

    It is without ``=VALUE``: ``--nproc_per_node`` or a unique beginning of it, or a letter with its value behind it.
    """
    letters, known, bare = _TABLES[program]
    if option.startswith("--"):
        plain = normalise_key(option)
        longer = [plain] if plain in known else [name for name in known if name.startswith(plain)]
        names = {ALIASES.get(name, name) for name in longer}
    else:
        names = {letters[letter] for letter in option[1:2] if option.startswith("-") and letter in letters}
    name = names.pop() if len(names) == 1 else None
    return (name, name not in bare) if name else None


def similar_option(program: Program, name: str) -> str | None:
    """Return the known option that a misspelt one may mean."""
    return nearest(name, list(_KNOWN[program]))


_NO_VALUE = FLAGS | {"pty", "multi-gpu", "standalone", "same-network", "use-env", "no-python"}
# (command, option) → what that command has instead
_OF_COMMAND = {
    ("resubmit", "resume"): "leave it out: resubmit continues from the checkpoints; --fresh starts without them",
    ("explain", "rank"): "explain finds the rank itself; `hpcrun logs RUN --rank N` shows the output of one",
    ("logs", "tail"): "use -n N",
    ("logs", "stderr"): "use --err",
    ("status", "user"): "leave it out: status shows your own runs",
    ("status", "job"): "write the job id without an option: hpcrun status 4711",
    ("status", "jobs"): "write the job id without an option: hpcrun status 4711",
    ("cancel", "name"): "write the name without an option: hpcrun cancel train",
    ("cancel", "all"): "use --state pending,running",
}


def takes_no_value(option: str) -> bool:
    """Return whether an option of another program is known to be a flag."""
    return _name(option) in _NO_VALUE


def instead_of(option: str, value: str | None, command: str, options: Collection[str]) -> str | None:
    """Return what to write instead of an option that a command of hpcrun does not have; None if that is unknown.

    Args:
        option: as typed, without its value: ``--array`` or ``-a``.
        value: what stood behind ``=``, if anything.
        options: of the command.
    """
    name = _name(option)
    if f"--{name}" in options:  # --nproc_per_node, and sbatch's letters
        return f"did you mean --{name}?"
    advice = _OF_COMMAND.get((command, name))
    if advice is None and "--sbatch" in options:
        advice = _of_launchers(name, value)
        first = re.search(r"(?<!\w)--[a-z][a-z-]+", advice) if advice else None
        advice = advice if first is None or first[0] in options else None
    if advice:
        return advice
    is_start = option.startswith("--") and len(option) > 4
    longer = [known for known in options if is_start and known.startswith(option)]
    close = longer[0] if len(longer) == 1 else nearest(option, sorted(options))
    return f"did you mean {close}?" if close else None


def _name(option: str) -> str:
    letter = "n" if option == "-np" else option[1:]  # mpirun(1)
    return LETTERS.get(letter, normalise_key(option))


def _of_launchers(name: str, value: str | None) -> str | None:
    """Return what hpcrun has instead of an option of sbatch, srun, torchrun or another launcher."""
    if advice := {**OWNED, **advice_for("-")}.get(name):
        return advice
    if name in (*KNOWN, *PYXIS):
        return f"use --sbatch {_assignment(name, value)}"
    programs: tuple[Program, ...] = ("torchrun", "srun")
    for program in programs:
        if advice := _OWNED[program].get(name):
            return advice
        if name in _KNOWN[program]:
            return f"use --{program} {_assignment(name, value)}"
    return None


def _assignment(name: str, value: str | None) -> str:
    if value is not None:
        return quote_bash(f"{name}={value}")
    return name if name in _NO_VALUE else f"{name}=VALUE"
