"""Options of srun and torchrun, which start the ranks, that a user or a profile may set. Pure: no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from hpcrun.errors import UsageError, nearest
from hpcrun.job.directives import ALIASES, FLAGS, KNOWN, LETTERS, NAMES, normalise_key
from hpcrun.job.launchers import TORCHRUN_VALUES

Program = Literal["srun", "torchrun"]
Options = tuple[tuple[str, str | None], ...]
"""Name → value, None for a flag; names without leading dashes."""

_SIZE = "--gpus, --nodes and --nproc-per-node decide the number of ranks"
_GPUS = "use --gpus; a step without options has all GPUs of the job"
_OF_JOB = "the step uses the job's allocation: use hpcrun's option, or --sbatch"
_LOGS = "every rank has its own log: hpcrun logs shows it"
_ALONE = "srun would not start the ranks"
_PER_NODE = "hpcrun sets it on each node"
# Options that hpcrun sets itself, and what a user writes instead. --wait and --kill-on-bad-exit may be set, for a
# training that continues with fewer ranks.
_OWNED: dict[Program, dict[str, str]] = {
    "srun": {
        **dict.fromkeys(("nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node"), _SIZE),
        **dict.fromkeys(("ntasks-per-socket", "ntasks-per-tres", "relative", "overcommit", "het-group"), _SIZE),
        **dict.fromkeys(("cpus-per-task", "cpus-per-gpu"), "use --cpus-per-task; OMP_NUM_THREADS follows it"),
        **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "tres-per-task"), _GPUS),
        **dict.fromkeys(("account", "begin", "clusters", "constraint", "deadline", "dependency", "hold"), _OF_JOB),
        **dict.fromkeys(("jobid", "no-allocate", "partition", "qos", "reservation", "test-only", "time"), _OF_JOB),
        **dict.fromkeys(("exclude", "nodelist", "nodefile"), "use --exclude or --nodelist: the ranks need every node"),
        **dict.fromkeys(
            ("export", "export-file", "preserve-env"), "use --env NAME=VALUE; other variables are exported"
        ),
        **dict.fromkeys(("output", "error"), _LOGS),
        **dict.fromkeys(("help", "usage", "version", "multi-prog", "pty", "bcast"), _ALONE),
        "chdir": "use --workdir",
        "input": "give the file to the script as an argument",
        "signal": "use --warn",
    },
    "torchrun": {
        "nnodes": "use --nodes",
        "nproc-per-node": "use --gpus or --nproc-per-node",
        "standalone": "hpcrun sets it for jobs on one node",
        **dict.fromkeys(("no-python", "run-path"), "hpcrun starts the program of each rank itself"),
        "module": "use --module",
        **dict.fromkeys(("node-rank", "local-addr"), _PER_NODE),
        **dict.fromkeys(("master-addr", "master-port"), "use rdzv-endpoint=HOST:PORT; MASTER_ADDR is the first node"),
        **dict.fromkeys(("redirects", "tee", "local-ranks-filter"), _LOGS),
        **dict.fromkeys(("duplicate-stdout-filters", "duplicate-stderr-filters"), _LOGS),
        "signals-to-handle": "hpcrun forwards signals to the ranks",
        "virtual-local-rank": "hpcrun identifies the ranks of a node by LOCAL_RANK",
        "help": "torchrun would not start the ranks",
    },
}
_KNOWN: dict[Program, tuple[str, ...]] = {
    "srun": (*KNOWN, *"accel-bind cpu-bind exact job-name kill-on-bad-exit label mpi overlap prolog epilog "
             "quit-on-interrupt send-libs slurmd-debug task-epilog task-prolog threads unbuffered wait".split()),
    "torchrun": ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "rdzv-conf", "max-restarts", "monitor-interval",
                 "start-method", "event-log-handler", "role", "log-dir", "logs-specs", "numa-binding",
                 "shutdown-timeout"),
}  # fmt: skip
_TORCHRUN_FLAGS = frozenset("module no-python run-path standalone use-env virtual-local-rank help".split())
# For each program: the letters of its options, their long names, and those without a value, or with one that follows =.
# srun(1) of Slurm 22.05 to 26.05 is sbatch(1) but for these.
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
        frozenset(name[2:] for name in TORCHRUN_VALUES if name.startswith("--")) | _TORCHRUN_FLAGS,
        _TORCHRUN_FLAGS,
    ),
}  # fmt: skip
_LEAST_SHUTDOWN_S = 30
"""When another rank has failed, hpcrun gives a rank 25 s before SIGKILL, and then records its end."""


def check_option(program: Program, key: str, value: str | None, where: str) -> str:
    """Return the normalised name of an option that a user or a profile may set.

    Args:
        where: the option or the profile's key, for the message.

    Raises:
        UsageError: hpcrun sets it itself, or it would break the job.
    """
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


def takes_value(program: Program | Literal["sbatch"], word: str) -> tuple[str, bool] | None:
    """Return an option's long name, and whether the next word is its value; None if the option is not known.

    Args:
        word: the option without ``=VALUE``, as ``--nproc_per_node`` or a unique beginning of it; a letter may have its
            value behind it.
    """
    letters, known, flags = _TABLES[program]
    if word.startswith("--"):
        plain = normalise_key(word)
        longer = [plain] if plain in known else [name for name in known if name.startswith(plain)]
        names = {ALIASES.get(name, name) for name in longer}
    else:
        names = {letters[letter] for letter in word[1:2] if word.startswith("-") and letter in letters}
    name = names.pop() if len(names) == 1 else None
    return (name, name not in flags) if name else None


def owned_advice(program: Program, name: str) -> str | None:
    """Return what to write instead of an option that hpcrun sets itself; None of other options."""
    return _OWNED[program].get(name)


def is_known(program: Program, name: str) -> bool:
    """Return whether a program is known to have an option."""
    return name in _KNOWN[program]


def similar_option(program: Program, name: str) -> str | None:
    """Return the known option that a misspelt one may mean."""
    return nearest(name, list(_KNOWN[program]))
