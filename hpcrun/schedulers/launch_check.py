"""Asks srun and the job's torchrun whether they know the user's options; nothing is started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from hpcrun.schedulers.environment import clean_env
from hpcrun.schedulers.process import Completed, run_command

_SRUN_WITHIN_S = 3.0
"""Without a configuration, srun searches for one for a minute."""
_TORCH_WITHIN_S = 20.0
_UV_WITHIN_S = 20.0
_GOOD = "No command given"
"""srun reads its options, finds no program after them, and ends before it asks the controller for anything."""
# torch is imported by this, which takes seconds; an option that argparse does not know ends it with status 2.
_PROBE = """
import sys
sys.path[:] = [entry for entry in sys.path if entry]  # a folder called torch here is not the job's
from torch.distributed.run import get_args_parser
parser = get_args_parser()
parser.prog = "torchrun"
parser.parse_args(sys.argv[1:] + ["program"])
"""


def uv_refusal(project: str, env: Mapping[str, str]) -> str | None:
    """Return uv's message if the lock of a project is not up to date; None if it is, or if uv cannot tell here."""
    answer = run_command(["uv", "lock", "--check", "--project", project], timeout_s=_UV_WITHIN_S, env=clean_env(env))
    if answer.ok or answer.status is None:
        return None
    words = " ".join(answer.stderr.split())
    return words[max(0, words.find("error: ")) :]


def srun_refusal(words: Sequence[str], env: Mapping[str, str]) -> str | None:
    """Return srun's message on unknown options, None if srun accepts them or cannot be asked.

    srun would search for an MPI type only when the step starts: so ask for its list of types.
    """
    where = tuple(sorted(clean_env(env).items()))
    if said := _ask_srun(tuple(words), where):
        return said
    kind = next((word.partition("=")[2] for word in words if word.startswith("--mpi=")), None)
    kinds = _mpi_kinds(where) if kind else ()
    return f"--mpi={kind} is none of {', '.join(kinds)}" if kinds and kind not in kinds else None


def mpi_types(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the MPI types that srun here has for the usual libraries; none if the cluster's MpiDefault is one."""
    config = run_command(["scontrol", "show", "config"], timeout_s=_SRUN_WITHIN_S, env=clean_env(env))
    default = re.search(r"^MpiDefault\s*=\s*(\w+)", config.stdout, re.MULTILINE)
    if default and default[1] not in ("none", "openmpi"):
        return ()
    known = _mpi_kinds(tuple(sorted(clean_env(env).items()))) or ("pmix", "pmi2")
    return tuple(name for name in ("pmix", "pmi2") if name in known)


@cache
def _mpi_kinds(env: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    answer = _srun(("--mpi=list",), env)
    return parse_mpi_list(answer.stdout + answer.stderr) if answer.ok else ()


def parse_mpi_list(text: str) -> tuple[str, ...]:
    """Read the answer to ``srun --mpi=list``: names on lines of their own, and the versions of pmix."""
    names = re.findall(r"^(?:srun:)?\s+(\w+)$", text, re.MULTILINE)
    versions = re.findall(r"versions available: (.*)$", text, re.MULTILINE)
    if not names:
        return ()
    # openmpi is another name of none, and is not in the list
    return (*names, *(name for line in versions for name in re.split(r"[,\s]+", line) if name), "openmpi")


@cache
def _ask_srun(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> str | None:
    answer = _srun(words, env)
    if answer.status is None or _GOOD in answer.stderr:
        return None
    if words and _ask_srun((), env) is not None:  # fails also without them: the problem is srun itself
        return None
    lines = (re.sub(r"^srun: (error: |fatal: )?", "", line) for line in answer.stderr.strip().splitlines())
    if answer.status == 0:
        return "it would print text and exit"
    return "; ".join(line for line in lines if not line.startswith("Try ")) or f"exit status {answer.status}"


def _srun(words: tuple[str, ...], env: tuple[tuple[str, str], ...]) -> Completed:
    return run_command(["srun", *words], timeout_s=_SRUN_WITHIN_S, env={**dict(env), "LC_ALL": "C"})


def torchrun_refusal(
    executable: str, words: Sequence[str], env: Mapping[str, str], *, prefix: str | None, variable: str
) -> str | None:
    """Return the message of an interpreter's torchrun on unknown options, None if it cannot be asked.

    Args:
        prefix: its environment's folder, put on PATH as the script does.
        variable: the one that names an environment of this kind.
    """
    env = clean_env(env)
    if prefix:
        env |= {variable: prefix, "PATH": f"{prefix}/bin:{env.get('PATH', '')}"}
    answer = run_command([executable, "-c", _PROBE, *words], timeout_s=_TORCH_WITHIN_S, env=env)
    found = re.findall(r"^torchrun: error: (.*)", answer.stderr, re.MULTILINE) if answer.status == 2 else []
    return str(found[-1]) if found else None
