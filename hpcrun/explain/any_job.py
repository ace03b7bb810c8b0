"""A job of Slurm's that hpcrun may not have submitted: its state and where its output went."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcrun.job.state import base_state
from hpcrun.schedulers.process import Completed, SlurmSite
from hpcrun.schedulers.slurm_text import known_text, parse_clock, rows_of, sacct

ANSWER_WITHIN_S = 15.0
_JOB_ID = re.compile(r"\d{1,10}(?:_\d{1,7})?(?:\+\d{1,4})?", re.ASCII)
_KEY = re.compile(r"(?:^| )([A-Z][\w:/]*)=")
_BEFORE_STDOUT = ("JobID", "JobName", "State", "ExitCode", "NodeList", "NNodes", "ElapsedRaw", "Reason", "WorkDir")
_SACCT_FIELDS = (*_BEFORE_STDOUT, "StdOut", "StdErr")
"""sacct has the files since Slurm 24.05; before that, sbatch's default is tried."""


@dataclass(frozen=True, slots=True)
class AnyJob:
    """A job as scontrol or sacct shows it.

    Attributes:
        elapsed_s: how long it has run, in seconds; None where it is not said.
        outputs: the files of its stdout and stderr, as far as they are known.
    """

    job_id: str
    name: str
    state: str
    reason: str | None
    exit_status: int | None
    signal: int | None
    hosts: str | None
    nodes: int
    elapsed_s: int | None
    workdir: Path
    outputs: tuple[Path, ...]


def is_job_id(text: str) -> bool:
    """Whether a word is one of Slurm's job ids: ``4711``, ``4711_3`` of an array, ``4711+1`` of a heterogeneous job."""
    return _JOB_ID.fullmatch(text) is not None


def find_job(job_id: str, env: Mapping[str, str]) -> AnyJob | None:
    """Ask Slurm for one job: the controller, and the accounting database where that has forgotten it.

    Returns None where neither knows it, or Slurm is not here.
    """
    shown = _run(["scontrol", "--oneliner", "show", "job", job_id], env)
    if shown.ok and (job := parse_shown(shown.stdout)):
        return job
    ask = ("--allocations", f"--jobs={job_id}")
    answer = _run(sacct(*ask, "--expand-patterns", fields=_SACCT_FIELDS), env)
    if not answer.ok:
        answer = _run(sacct(*ask, fields=_BEFORE_STDOUT), env)
    return parse_listed(answer.stdout)


def is_own_live_job(job_id: str, env: Mapping[str, str]) -> bool:
    """Return whether squeue lists a job of this user that has not ended."""
    return bool(_run(["squeue", f"--user={os.getuid()}", f"--jobs={job_id}", "--noheader", "--format=%i"], env).stdout)


def parse_shown(text: str) -> AnyJob | None:
    """Read the answer to ``scontrol --oneliner show job``: of an array's elements the first."""
    line = next((line for line in text.splitlines() if line.startswith("JobId=")), "")
    parts = _KEY.split(line)[1:]
    fields = dict(zip(parts[::2], (value.strip() for value in parts[1::2]), strict=True))
    if "JobState" not in fields:
        return None
    array = fields.get("ArrayJobId")
    task = fields.get("ArrayTaskId", "")
    return AnyJob(
        f"{array}_{task}" if array and task.isdigit() else fields["JobId"],
        fields.get("JobName", ""),
        base_state(fields["JobState"]),
        known_text(fields.get("Reason", "")),
        *_exit(fields.get("ExitCode", "")),
        known_text(fields.get("NodeList", "")),
        int(fields.get("NumNodes", "1").partition("-")[0] or 1),
        parse_clock(fields.get("RunTime", "")),
        Path(fields.get("WorkDir", "/")),
        _files(fields.get("StdErr", ""), fields.get("StdOut", "")),
    )


def parse_listed(text: str) -> AnyJob | None:
    """Read the answer of sacct: the newest line where the job was requeued."""
    rows = rows_of(text, len(_SACCT_FIELDS)) or rows_of(text, len(_BEFORE_STDOUT))
    if not rows:
        return None
    job_id, name, state, exit_code, hosts, nodes, elapsed, reason, workdir, *files = rows[-1]
    outputs = _files(*reversed(files)) or tuple(
        path for path in (Path(workdir, f"slurm-{job_id}.out"),) if workdir and path.exists()
    )
    return AnyJob(
        job_id,
        name,
        base_state(state),
        known_text(reason),
        *_exit(exit_code),
        known_text(hosts),
        int(nodes) if nodes.isdigit() else 1,
        int(elapsed) if elapsed.isdigit() else None,
        Path(workdir or "/"),
        outputs,
    )


def _exit(text: str) -> tuple[int | None, int | None]:
    """Return exit status and signal of ``1:0``."""
    status, _, signal = text.partition(":")
    return (int(status) if status.isdigit() else None), (int(signal) if signal.isdigit() and int(signal) else None)


def _files(*names: str) -> tuple[Path, ...]:
    known = (name for name in names if name.startswith("/") and name != "/dev/null")
    return tuple(dict.fromkeys(map(Path, known)))


def _run(argv: list[str], env: Mapping[str, str]) -> Completed:
    return SlurmSite(env, ANSWER_WITHIN_S).run(argv)
