"""The options of srun: which of them srun accepts, and the MPI types that it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from hpcrun.machine.clean_environment import clean_env
from hpcrun.machine.process import Completed, run_command
from hpcrun.schedulers.slurm_text import parse_config

_SRUN_WITHIN_S = 3.0  # without a configuration, srun searches for one for a minute
# srun reads its options, finds no program after them, and ends before it asks the controller for
# anything
_GOOD = "No command given"


def srun_refusal(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return srun's message on unknown options, None if srun accepts them or cannot be asked.

    srun would search for an MPI type only when the step starts: so ask for its list of types.
    """
    where = tuple(sorted(clean_env(env).items()))
    message = _ask_srun(tuple(words), where)
    if message:
        return message
    chosen = [option.removeprefix("--mpi=") for option in words if option.startswith("--mpi=")]
    if not chosen or not chosen[0]:
        return None
    kinds = _mpi_kinds(where)
    if not kinds or chosen[0] in kinds:
        return None
    return f"--mpi={chosen[0]} is none of {', '.join(kinds)}"


def mpi_types(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the MPI types that srun here has for the usual libraries.

    There are none if the cluster's MpiDefault is such a type.
    """
    config = run_command(
        ["scontrol", "show", "config"], timeout_s=_SRUN_WITHIN_S, env=clean_env(env)
    )
    if parse_config(config.stdout).get("MpiDefault", "none") not in ("none", "openmpi"):
        return ()
    known = _mpi_kinds(tuple(sorted(clean_env(env).items()))) or ("pmix", "pmi2")
    return tuple(name for name in ("pmix", "pmi2") if name in known)


@cache
def _mpi_kinds(env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    answer = _srun(("--mpi=list",), env)
    if answer.ok:
        return parse_mpi_list(answer.stdout + answer.stderr)
    return ()


def parse_mpi_list(text: str) -> tuple[str, ...]:
    """Read the answer to ``srun --mpi=list``.

    The answer has names on lines of their own, and the versions of pmix.
    """
    names = re.findall(r"^(?:srun:)?\s+(\w+)$", text, re.MULTILINE)
    versions = re.findall(r"versions available: (.*)$", text, re.MULTILINE)
    if not names:
        return ()
    for line in versions:
        names += [name for name in re.split(r"[,\s]+", line) if name]
    # openmpi is another name of none, and is not in the list
    return (*names, "openmpi")


@cache
def _ask_srun(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> str | None:
    answer = _srun(words, env)
    if answer.status is None or _GOOD in answer.stderr:
        return None
    # fails also without them: the problem is srun itself
    if words and _ask_srun((), env) is not None:
        return None
    if answer.status == 0:
        return "it would print text and exit"
    messages = []
    for line in answer.stderr.strip().splitlines():
        message = re.sub(r"^srun: (error: |fatal: )?", "", line)
        if not message.startswith("Try "):
            messages.append(message)
    return "; ".join(messages) or f"exit status {answer.status}"


def _srun(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Completed:
    return run_command(["srun", *words], timeout_s=_SRUN_WITHIN_S, env={**dict(env), "LC_ALL": "C"})
