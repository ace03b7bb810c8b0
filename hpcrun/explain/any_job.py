"""A job of Slurm's that hpcrun may not have submitted: its state and where its output went."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.job.state import base_state, is_terminal
from hpcrun.runs.record import LastStatus
from hpcrun.schedulers.process import Completed, SlurmSite
from hpcrun.schedulers.slurm_text import known_text, parse_clock, rows_of, sacct, whole_number

ANSWER_WITHIN_S = 15.0
_JOB_ID = re.compile(r"\d{1,10}(?:_\d{1,7})?(?:\+\d{1,4})?", re.ASCII)
_KEY = re.compile(r"(?:^| )([A-Z][\w:/]*)=")
_BEFORE_STDOUT = ("JobID", "JobName", "State", "ExitCode", "NodeList", "NNodes", "Elapsed", "Reason", "WorkDir")
_SACCT_FIELDS = (*_BEFORE_STDOUT, "StdErr", "StdOut")
"""sacct has the files since Slurm 24.05; before that, sbatch's default is tried."""
_SCONTROL_FIELDS = ("JobId", "JobName", "JobState", "ExitCode", "NodeList", "NumNodes", "RunTime", "Reason", "WorkDir",
                    "StdErr", "StdOut")  # fmt: skip


@dataclass(frozen=True, slots=True)
class AnyJob:
    """A job as scontrol or sacct shows it; ``outputs``: its stderr and stdout, as far as they are known."""

    job_id: str
    name: str
    status: LastStatus
    nodes: int
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
    array, task = fields.get("ArrayJobId"), fields.get("ArrayTaskId", "")
    if array and task.isdigit():
        fields["JobId"] = f"{array}_{task}"
    return _job(*(fields.get(name, "") for name in _SCONTROL_FIELDS))


def parse_listed(text: str) -> AnyJob | None:
    """Read the answer of sacct: the newest line where the job was requeued."""
    rows = rows_of(text, len(_SACCT_FIELDS)) or rows_of(text, len(_BEFORE_STDOUT))
    if not rows:
        return None
    job = _job(*rows[-1])
    default = job.workdir / f"slurm-{job.job_id}.out"
    return job if job.outputs or not default.exists() else replace(job, outputs=(default,))


def _job(job_id: str, name: str, state: str, exit_code: str, hosts: str, nodes: str, elapsed: str, reason: str,
         workdir: str, *outputs: str) -> AnyJob:  # fmt: skip
    exit_status, _, signal = exit_code.partition(":")
    status = LastStatus(
        base_state(state), 0.0, final=is_terminal(base_state(state)), reason=known_text(reason),
        elapsed_s=parse_clock(elapsed), hosts=known_text(hosts), exit_status=whole_number(exit_status),
        signal=whole_number(signal) or None,
    )  # fmt: skip
    files = (Path(file) for file in outputs if file.startswith("/") and file != "/dev/null")
    return AnyJob(job_id, name, status, whole_number(nodes.partition("-")[0]) or 1, Path(workdir or "/"),
                  tuple(dict.fromkeys(files)))  # fmt: skip


def _run(argv: list[str], env: Mapping[str, str]) -> Completed:
    return SlurmSite(env, ANSWER_WITHIN_S).run(argv)
