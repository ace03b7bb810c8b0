"""A scaling study: its runs, what to do next, and its JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.find import run_name
from hpcrun.errors import HpcrunError
from hpcrun.features.scaling.studies import Study, StudyPoint
from hpcrun.job.units import format_age
from hpcrun.views.text import count, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from hpcrun.features.scaling.scale import StudyJob, Submitted
    from hpcrun.features.scaling.study import StudyStatus

_CANCELLED_BY_NAME_AT_MOST = 20


def study_lines(study: Study) -> list[str]:
    """Return a study as text: its number of runs, their sizes and their order."""
    order = "one after the other" if study.one_by_one else "at the same time"
    return [
        one_line(f"study      {study.study_id}, {study.scaling} scaling on {_sizes(study)}"),
        f"runs       {count(len(study.points), 'run')}, {order}",
    ]


def _sizes(study: Study) -> str:
    sizes = dict.fromkeys((point.gpus, point.nodes) for point in study.points)
    several = {gpus for gpus, _ in sizes if sum(other == gpus for other, _ in sizes) > 1}
    words = [f"{gpus} ({count(nodes, 'node')})" if gpus in several else str(gpus) for gpus, nodes in sizes]
    return f"{', '.join(words)} {study.unit}"


def job_line(study: Study, job: StudyJob) -> str:
    """Return one run that would be submitted: its name, its size, its command line."""
    command = job.prepared.plan.command
    said = shlex.join(command[command.index(job.prepared.request.script) :])
    return one_line(f"{run_name(job.point.run_id)}  {size_text(study, job.point)}: {said}")


def size_text(study: Study, point: StudyPoint) -> str:
    """Return ``4 GPUs on 1 node``."""
    return f"{count(point.gpus, study.unit[:-1])} on {count(point.nodes, 'node')}"


def submitted_lines(item: Submitted) -> list[str]:
    """Return the result of the submission of one run."""
    name, size = run_name(item.point.run_id), size_text(item.study, item.point)
    if isinstance(item.result, HpcrunError):
        words = "uncertain" if item.point.submitted else "refused"
        return [one_line(f"{words:<10} {name}  {size}: {' '.join(item.result.message.split())}")]
    remarks = [f"           {line}" for line in item.result.remarks.splitlines()]
    return [one_line(line) for line in (f"submitted  {name}  {size}, job {item.result.run.job_id}", *remarks)]


def next_lines(study: Study, jobs: Sequence[str]) -> list[str]:
    """Return the commands that show and cancel a study.

    Args:
        jobs: ids of the submitted jobs.
    """
    cancel = f" | hpcrun cancel {' '.join(jobs)}" if 0 < len(jobs) <= _CANCELLED_BY_NAME_AT_MOST else ""
    return [
        one_line(f"look       hpcrun scale run --show {study.study_id}{cancel}"),
        one_line(f"report     hpcrun scale report {study.study_id}"),
    ]


def study_table(status: StudyStatus) -> Table:
    """Return the runs of a study as they stand."""
    headings = ("RUN", status.study.unit.upper(), "NODES", "BATCH", "JOB", "STATE", "REASON")
    rows = []
    for item in status.runs:
        point, found = item.point, item.status
        why = (found.status.cause or found.status.reason if found else item.problem) or ""
        rows.append((run_name(item.run_id), str(point.gpus), str(point.nodes), str(point.batch_size or "-"),
                     (found.run.job_id if found else None) or "-", item.state, why))  # fmt: skip
    return text_table(headings, rows, right=headings[1:4], whole=headings[:-1])


def studies_table(studies: Iterable[Study], now_s: float) -> Table:
    """Return studies, oldest first."""
    headings, rows = ("STUDY", "STARTED", "RUNS", "SIZES", "DATA SET"), []
    for study in studies:
        made = sum(point.submitted for point in study.points)
        runs = str(made) if made == len(study.points) else f"{made} of {len(study.points)}"
        begun = format_age(now_s - study.created_s)
        rows.append((study.study_id, begun, runs, _sizes(study), study.dataset or "-"))
    return text_table(headings, rows, whole=headings[:3])


def planned_json(study: Study, jobs: Iterable[StudyJob], document: Any) -> dict[str, Any]:
    """Return a study that was not submitted as a JSON document.

    Args:
        document: prepared submission → its own document.
    """
    points = [{**asdict(job.point), **document(job.prepared)} for job in jobs]
    return {"kind": "study_plan", **_head_json(study), "points": points}


def study_json(status: StudyStatus) -> dict[str, Any]:
    """Return a study and its runs as a JSON document."""
    points = [
        {
            **asdict(item.point),
            "run_id": item.run_id,
            "job_id": item.status.run.job_id if item.status else None,
            "state": item.state,
            "final": item.over,
            "problem": item.problem or (item.status.status.cause if item.status else None) or "",
        }
        for item in status.runs
    ]
    return {"kind": "study", **_head_json(status.study), "points": points}


def studies_json(studies: Iterable[Study]) -> dict[str, Any]:
    """Return studies as a JSON document."""
    return {"kind": "studies", "studies": [{**_head_json(study), "runs": len(study.points)} for study in studies]}


def _head_json(study: Study) -> dict[str, Any]:
    names = ("study_id", "name", "created_s", "profile", "unit", "scaling", "batch_size", "lr", "dataset", "warmup",
             "one_by_one")  # fmt: skip
    return {name: getattr(study, name) for name in names}
