"""What hpcrun scale run does with a study: submit it, wait for it, go on with it, show it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING

from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, note, printed, stderr, stdout, table, verbatim
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError
from hpcrun.features.scaling.studies import StudyStore
from hpcrun.job.state import COMPLETED

if TYPE_CHECKING:
    from hpcrun.actions.status.run_status import StatusResult
    from hpcrun.features.scaling.scale import StudyJob, Submitted
    from hpcrun.features.scaling.studies import Study
    from hpcrun.features.scaling.study import StudyStatus
    from hpcrun.job.after import Dependency


def study_plan(study: Study, jobs: list[StudyJob]) -> Outcome:
    """Return what would be submitted: all runs and a plan on stderr, one script on stdout; or one document."""
    from hpcrun.features.scaling.scale_display import planned_json
    from hpcrun.views.plan import prepared_json

    return Outcome(lambda: _plan_text(study, jobs), lambda: planned_json(study, jobs, prepared_json))


def _plan_text(study: Study, jobs: list[StudyJob]) -> Iterator[TextPart]:
    from hpcrun.features.scaling.scale_display import job_line, study_lines
    from hpcrun.views.plan import plan_lines

    yield stderr([*study_lines(study), *(job_line(study, job) for job in jobs), ""])
    if jobs:
        yield stderr([*plan_lines(jobs[0].prepared.plan), ""])
        yield verbatim(jobs[0].prepared.script.text)


def submit_study(study: Study, jobs: list[StudyJob], context: Context, *, wait: bool, as_json: bool) -> Outcomes:
    """Submit all runs of a study, and stay where that was asked for.

    Raises:
        HpcrunError: not all were submitted; the record says which.
        InterruptedByUser: Ctrl-C; what was submitted goes on.
        JobFailedError: with ``wait``: a run did not end well.
    """
    from hpcrun.actions.jobs.submit import check_available

    plan = jobs[-1].prepared.plan
    check_available(plan, context.scheduler(plan.scheduler))
    StudyStore(context.store.root).save(study)
    with StudyStore(context.store.root).submitting(study.study_id):
        submitted = yield from _submit_jobs(study, jobs, context, None)
    yield from _finish(study, jobs, submitted, context, wait=wait, shown=as_json)


def resume_study(word: str, context: Context, *, dry_run: bool, wait: bool, as_json: bool) -> Outcomes:
    """Submit what is missing of a study, and show its runs.

    Raises:
        HpcrunError: as ``submit_study``, or the scheduler is away and does not say what is missing.
        PlanError: another process is submitting them.
    """
    from hpcrun.actions.jobs.new_run import new_run_id
    from hpcrun.features.scaling.scale import must_wait_between
    from hpcrun.features.scaling.study import brought_up, last_open

    found = yield from _find(word, context)
    with StudyStore(context.store.root).submitting(found.study_id):
        status = _look(StudyStore(context.store.root).load(found.study_id), context)
        if status.away:
            raise status.away
        study = brought_up(status, new_run_id)
        jobs, there = _jobs_again(study, context)
        if dry_run:
            yield study_plan(study, jobs)
            return
        if must_wait_between(study, jobs):
            _wait(status.study, context)
        StudyStore(context.store.root).save(study)
        last = last_open(status) if study.one_by_one else None
        submitted = yield from _submit_jobs(study, jobs, there, last)
    yield from _finish(study, jobs, submitted, there, wait=wait, shown=as_json or not jobs)


def show_study(word: str, context: Context, *, wait: bool) -> Outcomes:
    """Show the runs of a study as they stand, with ``wait`` when all are over.

    Raises:
        JobFailedError: with ``wait``: a run did not end well.
    """
    study = yield from _find(word, context)
    if wait:
        _wait(study, context)
    yield from _show_status(study, context, check=wait)


def _find(word: str, context: Context) -> Generator[Outcome, None, Study]:
    from hpcrun.features.scaling.study import find_study

    found = find_study(word, StudyStore(context.store.root))
    yield note([found.note])
    return found.study


def _submit_jobs(
    study: Study, jobs: list[StudyJob], context: Context, last: Dependency | None
) -> Generator[Outcome, None, list[Submitted]]:
    """Submit runs of a study, each shown when it is.

    Raises:
        InterruptedByUser: Ctrl-C; what was submitted goes on.
    """
    from hpcrun.features.scaling.scale import submit_points
    from hpcrun.features.scaling.scale_display import study_lines, submitted_lines
    from hpcrun.views.plan import plan_lines

    if jobs:
        yield printed([*plan_lines(jobs[-1].prepared.plan), *study_lines(study)])

    submitted = []
    submissions = submit_points(
        study,
        jobs,
        context.ports,
        context.surroundings,
        studies=StudyStore(context.store.root),
        last=last,
        wait=lambda run_id: context.waiter(run_id).wait(),
    )
    with interrupted_as(partial(_interrupted, study, context)):
        for item in submissions:
            submitted.append(item)
            yield printed(submitted_lines(item))
    return submitted


def _finish(
    study: Study, jobs: list[StudyJob], submitted: list[Submitted], context: Context, *, wait: bool, shown: bool
) -> Outcomes:
    """Wait where that was asked for, and show how to go on or what became of the runs.

    Args:
        shown: the runs are shown even where nothing was waited for.
    """
    from hpcrun.features.scaling.scale import must_wait_between
    from hpcrun.features.scaling.scale_display import next_lines
    from hpcrun.views.text import count

    study, waited = StudyStore(context.store.root).load(study.study_id), must_wait_between(study, jobs)
    if wait:
        _wait(study, context)
    if wait or waited or shown:
        yield from _show_status(study, context, check=wait or waited)
    else:
        job_ids = [str(item.result.run.job_id) for item in submitted if not isinstance(item.result, HpcrunError)]
        yield printed(next_lines(study, job_ids))
    errors = [item.result for item in submitted if isinstance(item.result, HpcrunError) and not item.point.submitted]
    if errors:
        words = f"{len(errors)} of {count(len(jobs), 'run')} could not be submitted"
        hint = f"hpcrun scale run --resume {study.study_id} submits them again"
        raise type(errors[0])(words, hint=hint)


def _wait(study: Study, context: Context) -> None:
    """Wait until every run that was submitted is over.

    Raises:
        InterruptedByUser: Ctrl-C; the runs go on.
    """
    from hpcrun.features.scaling.study import wait_for_runs

    with interrupted_as(partial(_interrupted, study, context)):
        wait_for_runs(study, context.store, lambda run_id: context.waiter(run_id).wait())


def _interrupted(study: Study, context: Context) -> InterruptedByUser:
    study = StudyStore(context.store.root).load(
        study.study_id
    )  # a generator that was interrupted has not handed out its last one
    left = sum(not point.submitted for point in study.points)
    goes_on = f"{left} of {len(study.points)} runs are not submitted yet" if left else "its runs are not affected"
    come_back = "resume" if left else "show"
    return InterruptedByUser(
        f"study {study.study_id}: {goes_on}",
        hint=f"hpcrun scale run --{come_back} {study.study_id} --wait continues",
    )


def _jobs_again(study: Study, context: Context) -> tuple[list[StudyJob], Context]:
    """Return the runs of a study that are to be submitted, and the context as it would be in the study's folder."""
    from hpcrun.actions.jobs.resubmit import folder_of, same_python, unmasked
    from hpcrun.cli.submit import prepare_request, read_job
    from hpcrun.features.scaling.scale import prepare_points

    points = [point for point in study.points if not point.submitted]
    if not points:
        return [], context
    env = {**same_python(study.python, context.env), "HPCRUN_RUNS": str(context.store.root)}
    there = Context(env, folder_of(study.cwd, study.study_id))
    recorded, named = study.request.get("env", ()), study.request.get("secrets", ())
    env_again = unmasked(recorded, context.env, named)
    said = {**study.request, "profile": study.profile, "env": env_again}
    template, profile = read_job(said, there)
    return prepare_points(study, template, points, lambda request: prepare_request(request, profile, there)), there


def _look(study: Study, context: Context) -> StudyStatus:
    from hpcrun.features.scaling.study import look_at, newest_runs

    return look_at(study, newest_runs([study], context.store), context.ports, explained=explained(context))


def explained(context: Context) -> Callable[[StatusResult], StatusResult]:
    """Return what adds to runs that failed the first line of their explanation."""

    def explain(result: StatusResult) -> StatusResult:
        from hpcrun.explain.first_line import with_first_lines

        return with_first_lines(result, context.store, context.rules)

    return explain


def _show_status(study: Study, context: Context, *, check: bool) -> Outcomes:
    """Show the runs of a study as they stand.

    Raises:
        JobFailedError: with ``check``: one did not end well.
        SchedulerError: the scheduler is away; what was last known is shown.
    """
    from hpcrun.features.scaling.scale_display import next_lines, study_json, study_lines, study_table
    from hpcrun.views.text import count

    status = _look(study, context)
    yield Outcome(
        lambda: [stdout(study_lines(study)), table(study_table(status)), stdout(next_lines(study, [])[1:])],
        lambda: study_json(status),
    )
    if status.away:
        raise status.away
    bad = [item for item in status.runs if item.over and item.state != COMPLETED]
    if check and bad:
        failed = next((item.run_id for item in bad if item.status), None)
        hint = (
            f"hpcrun explain {failed}"
            if failed
            else f"hpcrun scale run --resume {study.study_id} submits the missing runs"
        )
        words = f"{len(bad)} of {count(len(status.runs), 'run')} did not complete"
        raise JobFailedError(words, hint=hint)


def list_studies(context: Context) -> Outcomes:
    """Show the studies of a runs folder, oldest first."""
    from hpcrun.features.scaling.scale_display import studies_json, studies_table
    from hpcrun.features.scaling.study import all_studies
    from hpcrun.views.text import one_line

    studies, damaged = all_studies(StudyStore(context.store.root))
    none = stderr([f"no studies in {StudyStore(context.store.root).runs}"])
    yield Outcome(
        lambda: [table(studies_table(studies, context.now_s())) if studies else none],
        lambda: studies_json(studies),
    )
    yield note(one_line(f"hpcrun: {message}") for message in damaged)
