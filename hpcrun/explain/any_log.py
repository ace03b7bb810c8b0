"""explain of what hpcrun did not submit: a job of Slurm's, and logs from anywhere."""

from __future__ import annotations

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, cast

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import NotFoundError
from hpcrun.explain.any_job import AnyJob
from hpcrun.explain.diagnosis.facts import Facts
from hpcrun.explain.diagnosis.last_words import without_survived
from hpcrun.explain.diagnosis.launcher import rank_of_file
from hpcrun.explain.diagnosis.log import Log, by_speaker, examine
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.scan import Scanner
from hpcrun.explain.ended import Explanation, explained, nothing_failed
from hpcrun.job.state import FAILED, PENDING, RUNNING, TIMEOUT
from hpcrun.job.units import format_span
from hpcrun.reading import open_regular
from hpcrun.runs.record import LastStatus, Run

PIPE = "-"
_SUBMITIT = re.compile(r"(?P<job>.+)_0_log\.(?P<kind>out|err)")
_MOST_BESIDE = 512
_MOST_OF_A_PIPE, _PART = 1 << 30, 1 << 20
_BEGINNING = 4096
"""Bytes at the beginning of a file that show whether it is text."""


def explain_logs(names: Sequence[str], rules: Sequence[Rule]) -> Explanation:
    """Explain a failure from logs alone.

    Raises:
        NotFoundError: none of them can be read.
    """
    logs, unread = _read(names, rules)
    if not logs:
        raise NotFoundError(f"cannot read {unread[0]}", hint="give the job's output files, or - for a pipe")
    item = _item(", ".join(names), LastStatus(FAILED, 0.0, final=True))
    state = TIMEOUT if any(TIMEOUT in hit.rule.states for log in logs for hit in log.scan.hits) else FAILED
    explanation = explained(item, Facts(state, logs=_apart(logs), shared="log"), rules, unread=tuple(unread))
    return replace(explanation, next=_look(name for name in names if name != PIPE))


def explain_job(job: AnyJob, rules: Sequence[Rule], now_s: float) -> Explanation:
    """Explain a job of Slurm's that hpcrun did not submit, by its state and its output."""
    state = job.status.state
    item = replace(_item(job.name, job.status, job), folder=job.workdir)
    command = _look(map(str, job.outputs)) or f"scontrol show job {job.job_id}"
    if (well := nothing_failed(item)) is not None:
        waits = state == PENDING  # there is no output yet
        return Explanation(
            item, well + _last_written(job, now_s), next=f"squeue --start --job {job.job_id}" if waits else command
        )
    logs, unread = _read(map(str, _with_siblings(job.outputs)), rules)
    if not job.outputs:
        unread.append("Slurm does not say where its output is; hpcrun explain --log FILE reads a file")
    explanation = explained(item, Facts(state, logs=_apart(logs), shared="output"), rules, unread=tuple(unread))
    return replace(explanation, next=command)


def _read(names: Iterable[str], rules: Sequence[Rule]) -> tuple[list[Log], list[str]]:
    """Return the logs in some files, and which files, or parts of them, were not read."""
    scanner, logs, unread = Scanner.of(rules), list[Log](), list[str]()
    for name in names:
        try:
            with _opened(name, unread) as file:
                begins = file.read(_BEGINNING)
                file.seek(0)
                if not begins or b"\0" in begins:
                    unread.append(f"{name}: {'it is not a text file' if begins else 'it is empty'}")
                    continue
                logs.append(examine(name, rank_of_file(name), scanner.scan(file), os.fstat(file.fileno()).st_mtime))
        except OSError as error:
            unread.append(f"{name}: {error.strerror}")
    return logs, unread


def _last_written(job: AnyJob, now_s: float) -> str:
    """Return since when a job that runs has written nothing."""
    times = []
    for path in _with_siblings(job.outputs) if job.status.state == RUNNING else ():
        with suppress(OSError):
            times.append(path.stat().st_mtime)
    return f"; it last wrote {format_span(max(0.0, now_s - max(times)))} ago" if times else ""


def _item(name: str, status: LastStatus, job: AnyJob | None = None) -> RunStatus:
    """Return what stands for a run of hpcrun's: it has no id, no folder and no records."""
    run = Run("", name, "slurm" if job else "", None, "", 0.0, job.job_id if job else None, "", job.nodes if job else 1,
              gpus_per_node=0, world_size=0, walltime_s=None)  # fmt: skip
    return RunStatus(run, Path(), status)


def _look(names: Iterable[str]) -> str:
    """Return a command that shows files; empty where there are none."""
    files = shlex.join(names)
    return f"less {files}" if files else ""


def _apart(logs: Sequence[Log]) -> list[Log]:
    """Return the logs, those that several ranks write into as one for each, without what their programs survived."""
    parts = (part for log in logs for part in (by_speaker(log) if log.is_shared else [log]))
    return [without_survived(part) for part in parts]


def _with_siblings(outputs: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of a job; of submitit's those of all tasks, since Slurm names that of the first."""
    for path in outputs:
        yield path
        if match := _SUBMITIT.fullmatch(path.name):
            beside = path.parent.glob(f"{match['job']}_[1-9]*_log.{match['kind']}")
            yield from sorted(beside)[:_MOST_BESIDE]


@contextmanager
def _opened(name: str, unread: list[str]) -> Iterator[BinaryIO]:
    """Open a log; a pipe is kept in a temporary file, since the end of a log is read as well."""
    if name != PIPE:
        with open_regular(os.path.expanduser(name)) as file:
            yield file
        return
    with tempfile.TemporaryFile() as kept:
        left = _MOST_OF_A_PIPE
        while left and (part := sys.stdin.buffer.read(min(left, _PART))):
            kept.write(part)
            left -= len(part)
        if not left:
            unread.append(f"{PIPE}: only the first gigabyte of the pipe was read")
        kept.seek(0)
        yield cast(BinaryIO, kept)
