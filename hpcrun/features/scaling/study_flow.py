"""A scaling study that was begun: listing and showing it, waiting for it; as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.output import Outcome, Outcomes, TextPart, note, stderr, stdout, table
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError
from hpcrun.features.scaling.sizes import units_text
from hpcrun.features.scaling.studies import (
    Study,
    StudyPoint,
    StudyRun,
    StudyStatus,
    StudyStore,
    find_study,
    resubmissions,
    study_status,
)
from hpcrun.job.job_states import COMPLETED
from hpcrun.job.run_paths import run_name
from hpcrun.job.text.units import format_age
from hpcrun.views.text import count, fields_of, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

_CANCELLED_BY_NAME_AT_MOST = 20


def list_studies(context: Context) -> Outcomes:
    """Show the studies of a runs folder, oldest first."""
    store = StudyStore(context.store.root)
    studies = []
    damaged = []
    for study_id in store.study_ids():
        try:
            studies.append(store.load(study_id))
        except HpcrunError as error:
            damaged.append(one_line(f"hpcrun: {error.message}"))
    studies.sort(key=lambda study: study.created_s)

    def text() -> list[TextPart]:
        if studies:
            return [table(studies_table(studies, context.now_s()))]
        return [stderr([f"no studies in {context.store.root}"])]

    def document() -> dict[str, Any]:
        heads = [{**head_json(study), "runs": len(study.points)} for study in studies]
        return {"kind": "studies", "studies": heads}

    yield Outcome(text, document)
    yield note(damaged)


def chosen_study(label: str, context: Context) -> Generator[Outcome, None, Study]:
    """Return the study that a label means; yields a note if it could have meant another one."""
    study, remark = find_study(label, StudyStore(context.store.root))
    yield note([remark])
    return study


def show_status(study: Study, context: Context, *, check: bool) -> Outcomes:
    """Show the runs of a study as they stand.

    Raises:
        JobFailedError: ``check`` is set, and a run has ended without completing.
    """
    status = study_status(study, context)
    yield Outcome(
        lambda: [
            stdout(study_lines(study)),
            table(study_table(status)),
            stdout(next_lines(study, [])[1:]),
        ],
        lambda: study_json(status),
    )
    if status.away:
        raise status.away
    bad = [item for item in status.runs if item.over and item.state != COMPLETED]
    if check and bad:
        message = f"{len(bad)} of {count(len(status.runs), 'run')} did not complete"
        hint = f"hpcrun scale run --resume {study.study_id} submits the missing runs"
        failed = [item.run_id for item in bad if item.status]
        if failed:
            hint = f"hpcrun explain {failed[0]}"
        raise JobFailedError(message, hint=hint)


def wait_for_study(study: Study, context: Context) -> None:
    """Wait until every run that was submitted is over."""
    with interrupted_as(partial(interrupted, study, context)):
        for *_, run_id in resubmissions([study], context.store).values():
            if context.store.folder(run_id).exists():
                context.waiter(run_id).wait()


def interrupted(study: Study, context: Context) -> InterruptedByUser:
    """Return what Ctrl-C leaves of a study, and how to continue it."""
    # read it again: the interruption came before the caller got the newest record
    study = StudyStore(context.store.root).load(study.study_id)
    left = sum(not point.submitted for point in study.points)
    if left:
        state = f"{left} of {len(study.points)} runs are not submitted yet"
        option = "--resume"
    else:
        state = "its runs are not affected"
        option = "--show"
    return InterruptedByUser(
        f"study {study.study_id}: {state}",
        hint=f"hpcrun scale run {option} {study.study_id} --wait continues",
    )


def study_lines(study: Study) -> list[str]:
    """Return a study as text: its number of runs, their sizes and their order."""
    order = "one after the other" if study.one_by_one else "at the same time"
    return [
        one_line(f"study      {study.study_id}, {study.scaling} scaling on {_sizes(study)}"),
        f"runs       {count(len(study.points), 'run')}, {order}",
    ]


def _sizes(study: Study) -> str:
    """Return ``1, 2, 4 GPUs``, with the nodes of a size that runs on several numbers of them."""
    sizes = dict.fromkeys((point.gpus, point.nodes) for point in study.points)
    ways = Counter(gpus for gpus, _ in sizes)
    texts = []
    for gpus, nodes in sizes:
        if ways[gpus] > 1:
            texts.append(f"{gpus} ({count(nodes, 'node')})")
        else:
            texts.append(str(gpus))
    return f"{', '.join(texts)} {study.unit}"


def point_text(study: Study, point: StudyPoint) -> str:
    """Return ``4 GPUs on 1 node``."""
    return f"{units_text(point.gpus, study.unit)} on {count(point.nodes, 'node')}"


def next_lines(study: Study, jobs: Sequence[str]) -> list[str]:
    """Return the commands that show and cancel a study. ``jobs``: ids of the submitted jobs."""
    show = f"look       hpcrun scale run --show {study.study_id}"
    if 0 < len(jobs) <= _CANCELLED_BY_NAME_AT_MOST:
        show += f" | hpcrun cancel {' '.join(jobs)}"
    return [
        one_line(show),
        one_line(f"report     hpcrun scale report {study.study_id}"),
    ]


def study_table(status: StudyStatus) -> Table:
    """Return the runs of a study as they stand."""
    headings = ("RUN", status.study.unit.upper(), "NODES", "BATCH", "JOB", "STATE", "REASON")
    rows = []
    for item in status.runs:
        point = item.point
        reason: str | None = item.problem
        job_id = None
        if item.status:
            reason = item.status.status.cause or item.status.status.reason
            job_id = item.status.run.job_id
        row = (
            run_name(item.run_id),
            str(point.gpus),
            str(point.nodes),
            str(point.batch_size or "-"),
            job_id or "-",
            item.state,
            reason or "",
        )
        rows.append(row)
    return text_table(headings, rows, right=headings[1:4], whole=headings[:-1])


def studies_table(studies: Iterable[Study], now_s: float) -> Table:
    """Return studies, oldest first."""
    headings = ("STUDY", "STARTED", "RUNS", "SIZES", "DATA SET")
    rows = []
    for study in studies:
        runs = str(len(study.points))
        made = sum(point.submitted for point in study.points)
        if made < len(study.points):
            runs = f"{made} of {runs}"
        age = format_age(now_s - study.created_s)
        rows.append((study.study_id, age, runs, _sizes(study), study.dataset or "-"))
    return text_table(headings, rows, whole=headings[:3])


def study_json(status: StudyStatus) -> dict[str, Any]:
    """Return a study and its runs as a JSON document."""
    points = [_point_json(item) for item in status.runs]
    return {"kind": "study", **head_json(status.study), "points": points}


def _point_json(item: StudyRun) -> dict[str, Any]:
    """Return a run of a study as a part of a JSON document."""
    job_id = None
    cause = None
    if item.status:
        job_id = item.status.run.job_id
        cause = item.status.status.cause
    return {
        **asdict(item.point),
        "run_id": item.run_id,
        "job_id": job_id,
        "state": item.state,
        "final": item.over,
        "problem": item.problem or cause or "",
    }


def head_json(study: Study) -> dict[str, Any]:
    """Return what JSON documents tell of a study, without its runs."""
    return fields_of(
        study,
        "study_id name created_s profile unit scaling batch_size lr dataset warmup one_by_one",
    )
