"""What hpcrun scale does with a study: submit it, wait for it, go on with it, show it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

import typer

from hpcrun.cli.context import Context
from hpcrun.cli.output import show, show_json, show_rich, tell, write
from hpcrun.cli.start import submit_one
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError

if TYPE_CHECKING:
    from hpcrun.actions.lineage import Lineage
    from hpcrun.actions.prepare import Prepared
    from hpcrun.actions.scale import Job
    from hpcrun.actions.status import StatusResult
    from hpcrun.actions.study import StudyStatus
    from hpcrun.actions.submit import SubmitResult
    from hpcrun.job.after import Dependency
    from hpcrun.runs.studies import Study


def show_plan(study: Study, jobs: list[Job], *, as_json: bool) -> None:
    """Show what would be submitted: all runs and a plan on stderr, one script on stdout; or one document."""
    from hpcrun.views.plan import plan_lines, prepared_json
    from hpcrun.views.scale import job_line, planned_json, study_lines

    if as_json:
        show_json(planned_json(study, jobs, prepared_json))
        return
    tell([*study_lines(study), *(job_line(study, job) for job in jobs), ""])
    if jobs:
        tell([*plan_lines(jobs[0].prepared.plan), ""])
        write(jobs[0].prepared.script.text)


def submit_study(
    study: Study, jobs: list[Job], context: Context, last: Dependency | None, *, wait: bool, as_json: bool
) -> None:
    """Submit runs of a study, and stay where that was asked for.

    Raises:
        HpcrunError: not all were submitted; the record says which.
        InterruptedByUser: Ctrl-C; what was submitted goes on.
        JobFailedError: with ``wait``: a run did not end well.
    """
    from hpcrun.actions.submit import check_available
    from hpcrun.views.plan import plan_lines
    from hpcrun.views.scale import next_lines, study_lines
    from hpcrun.views.text import count

    plan = jobs[-1].prepared.plan
    check_available(plan, context.scheduler(plan.scheduler))
    context.studies.save(study)
    if not as_json:
        show([*plan_lines(plan), *study_lines(study)])
    stays = study.one_by_one and plan.scheduler == "local"  # where nothing else would wait for the one before
    try:
        study, submitted, errors = _submit_jobs(study, jobs, context, last, stays=stays, as_json=as_json)
        if wait or stays:
            _wait(study, context)
    except (KeyboardInterrupt, InterruptedByUser):
        raise _interrupted(study, context) from None
    if as_json or wait or stays:
        _show_status(study, context, as_json=as_json, check=wait or stays)
    else:
        show(next_lines(study, submitted))
    if errors:
        words = f"{len(errors)} of {count(len(jobs), 'run')} could not be submitted"
        _end(type(errors[0])(words, hint=f"hpcrun scale --resume {study.study_id} tries again"), as_json=as_json)


def _submit_jobs(
    study: Study, jobs: list[Job], context: Context, last: Dependency | None, *, stays: bool, as_json: bool
) -> tuple[Study, list[str], list[HpcrunError]]:
    from hpcrun.actions.scale import submit_points
    from hpcrun.views.scale import submitted_lines

    def submit_point(prepared: Prepared, lineage: Lineage, run_id: str) -> SubmitResult:
        return submit_one(prepared, context, lineage, None, run_id)

    submitted, errors = [], []
    for item in submit_points(study, jobs, studies=context.studies, folder=context.store.folder,
                              submit_one=submit_point, last=last):  # fmt: skip
        study = item.study
        if item.error and not item.point.submitted:
            errors.append(item.error)
        if not as_json:
            show(submitted_lines(item))
        if item.result:
            submitted.append(str(item.result.run.job_id))
            if stays:
                context.waiter(item.result.run.run_id).wait()
    return study, submitted, errors


def _wait(study: Study, context: Context) -> None:
    """Wait until every run that was submitted is over."""
    for point in study.points:
        if context.store.folder(point.run_id).exists():
            context.waiter(point.run_id).wait()


def _interrupted(study: Study, context: Context) -> InterruptedByUser:
    study = context.studies.load(study.study_id)
    left = sum(not point.submitted for point in study.points)
    goes_on = f"{left} of {len(study.points)} runs are not submitted yet" if left else "its runs go on"
    return InterruptedByUser(
        f"study {study.study_id}: {goes_on}",
        hint=f"hpcrun scale --resume {study.study_id} --wait comes back to it",
    )


def resume_study(word: str, context: Context, *, dry_run: bool, wait: bool, as_json: bool) -> None:
    """Submit what is missing of a study; show its runs where nothing is.

    Raises:
        SchedulerError: the scheduler is away, and does not say what is missing.
    """
    from hpcrun.actions.study import brought_up, find_study, last_open, missing

    found = find_study(word, context.studies)
    tell([found.note] if found.note else [])
    status = _look(found.study, context)
    if not missing(status):
        if wait:
            try:
                _wait(found.study, context)
            except KeyboardInterrupt:
                raise _interrupted(found.study, context) from None
        _show_status(found.study, context, as_json=as_json, check=wait)
        return
    if status.away:
        raise status.away
    study = brought_up(status, context.new_run_id)
    jobs, there = _jobs_again(study, {point.run_id for point in found.study.points}, context)
    if dry_run:
        show_plan(study, jobs, as_json=as_json)
        return
    if study.one_by_one and jobs[0].prepared.plan.scheduler == "local":
        _wait(found.study, context)
    submit_study(study, jobs, there, last_open(status) if study.one_by_one else None, wait=wait, as_json=as_json)


def _jobs_again(study: Study, known: set[str], context: Context) -> tuple[list[Job], Context]:
    """Return the runs of a study with new ids, and the context as it would be in the study's folder."""
    from hpcrun.actions.resubmit import folder_of, same_python, unmasked
    from hpcrun.actions.scale import prepare_points
    from hpcrun.cli.submit import prepare_request, read_job

    env = {**same_python(study.python, context.env), "HPCRUN_RUNS": str(context.store.root)}
    there = Context(env, folder_of(study.cwd, study.study_id))
    said = {**study.request, "profile": study.profile, "env": unmasked(study.request.get("env", ()), context.env)}
    template, profile = read_job(said, there)
    points = [point for point in study.points if point.run_id not in known]
    return prepare_points(study, template, points, lambda request: prepare_request(request, profile, there)), there


def _look(study: Study, context: Context) -> StudyStatus:
    from hpcrun.actions.study import look_at, newest_runs

    return look_at(
        study,
        newest_runs(study, context.store),
        store=context.store,
        schedulers=context.scheduler,
        host=context.host,
        now_s=context.now_s(),
        explained=explained(context),
    )


def explained(context: Context) -> Callable[[StatusResult], StatusResult]:
    """Return what adds to runs that failed the first line of their explanation."""

    def explain(result: StatusResult) -> StatusResult:
        from hpcrun.actions.first_line import with_first_lines
        from hpcrun.actions.rules import load_rules  # ruamel is imported only where a run has failed

        return with_first_lines(result, context.store, lambda: load_rules(context.layers.values()))

    return explain


def _show_status(study: Study, context: Context, *, as_json: bool, check: bool) -> None:
    """Show the runs of a study as they stand.

    Raises:
        JobFailedError: with ``check``: one did not end well.
        SchedulerError: the scheduler is away; what was last known is shown.
    """
    from hpcrun.views.scale import next_lines, study_json, study_lines, study_table
    from hpcrun.views.text import count

    status = _look(study, context)
    if as_json:
        show_json(study_json(status))
    else:
        show(study_lines(study))
        show_rich(study_table(status))
        show(next_lines(study, [])[1:])
    if status.away:
        _end(status.away, as_json=as_json)
    bad = [item for item in status.runs if item.over and item.state != "COMPLETED"]
    if check and bad:
        failed = next((item.run_id for item in bad if item.status), None)
        hint = (
            f"hpcrun explain {failed}" if failed else f"hpcrun scale --resume {study.study_id} submits what is missing"
        )
        words = f"{len(bad)} of {count(len(status.runs), 'run')} did not complete"
        _end(JobFailedError(words, hint=hint), as_json=as_json)


def _end(error: HpcrunError, *, as_json: bool) -> NoReturn:
    """End with a failure; where a document was printed it says so itself, and a second one would make it unreadable."""
    sys.stdout.flush()
    raise typer.Exit(error.exit_code) if as_json else error


def list_studies(context: Context, *, as_json: bool) -> None:
    """Show the studies of a runs folder, oldest first."""
    from hpcrun.actions.study import all_studies
    from hpcrun.views.scale import studies_json, studies_table

    studies, damaged = all_studies(context.studies)
    if as_json:
        show_json(studies_json(studies))
    elif studies:
        show_rich(studies_table(studies, context.now_s()))
    else:
        tell([f"no studies in {context.studies.runs}"])
    tell(f"hpcrun: {message}" for message in damaged)
