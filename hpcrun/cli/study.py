"""What hpcrun scale does with a study: submit it, wait for it, go on with it, show it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

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


def submit_study(study: Study, jobs: list[Job], context: Context, *, wait: bool, as_json: bool) -> None:
    """Submit all runs of a study, and stay where that was asked for.

    Raises:
        HpcrunError: not all were submitted; the record says which.
        InterruptedByUser: Ctrl-C; what was submitted goes on.
        JobFailedError: with ``wait``: a run did not end well.
    """
    from hpcrun.actions.submit import check_available

    plan = jobs[-1].prepared.plan
    check_available(plan, context.scheduler(plan.scheduler))
    context.studies.save(study)
    with context.studies.submitting(study.study_id):
        done = _submit_jobs(study, jobs, context, None, as_json=as_json)
    _finish(done, context, wait=wait, as_json=as_json)


def resume_study(word: str, context: Context, *, dry_run: bool, wait: bool, as_json: bool) -> None:
    """Submit what is missing of a study, and show its runs.

    Raises:
        HpcrunError: as ``submit_study``, or the scheduler is away and does not say what is missing.
        PlanError: another process is submitting them.
    """
    from hpcrun.actions.study import brought_up, last_open

    found = _find(word, context)
    with context.studies.submitting(found.study_id):
        status = _look(context.studies.load(found.study_id), context)
        if status.away:
            raise status.away
        study = brought_up(status, context.new_run_id)
        jobs, there = _jobs_again(study, context)
        if dry_run:
            show_plan(study, jobs, as_json=as_json)
            return
        if jobs and _stays(study, jobs):
            _wait(status.study, context)
        context.studies.save(study)
        last = last_open(status) if study.one_by_one else None
        done = _submit_jobs(study, jobs, there, last, as_json=as_json)
    _finish(done, there, wait=wait, as_json=as_json, shown=not jobs)


def show_study(word: str, context: Context, *, wait: bool, as_json: bool) -> None:
    """Show the runs of a study as they stand, with ``wait`` when all are over.

    Raises:
        JobFailedError: with ``wait``: a run did not end well.
    """
    study = _find(word, context)
    if wait:
        _wait(study, context)
    _show_status(study, context, as_json=as_json, check=wait)


def _find(word: str, context: Context) -> Study:
    from hpcrun.actions.study import find_study

    found = find_study(word, context.studies)
    tell([found.note] if found.note else [])
    return found.study


@dataclass(frozen=True, slots=True)
class _Done:
    """What came of submissions.

    Attributes:
        jobs: ids of those that were submitted.
        errors: of those that were not.
        stayed: until the last was over, since nothing else lets one wait for the other.
    """

    study: Study
    tried: int
    jobs: tuple[str, ...]
    errors: tuple[HpcrunError, ...]
    stayed: bool


def _submit_jobs(study: Study, jobs: list[Job], context: Context, last: Dependency | None, *, as_json: bool) -> _Done:
    """Submit runs of a study, each shown when it is.

    Raises:
        InterruptedByUser: Ctrl-C; what was submitted goes on.
    """
    from hpcrun.actions.scale import submit_points
    from hpcrun.views.plan import plan_lines
    from hpcrun.views.scale import study_lines, submitted_lines

    if jobs and not as_json:
        show([*plan_lines(jobs[-1].prepared.plan), *study_lines(study)])

    def submit_point(prepared: Prepared, lineage: Lineage, run_id: str) -> SubmitResult:
        return submit_one(prepared, context, lineage, None, run_id)

    items, stays = [], _stays(study, jobs)
    try:
        for item in submit_points(study, jobs, studies=context.studies, folder=context.store.folder,
                                  submit_one=submit_point, last=last):  # fmt: skip
            items.append(item)
            if not as_json:
                show(submitted_lines(item))
            if item.result and stays:
                context.waiter(item.result.run.run_id).wait()
    except (KeyboardInterrupt, InterruptedByUser):
        raise _interrupted(study, context) from None
    return _Done(
        items[-1].study if items else study,
        len(jobs),
        jobs=tuple(str(item.result.run.job_id) for item in items if item.result),
        errors=tuple(item.error for item in items if item.error and not item.point.submitted),
        stayed=stays,
    )


def _stays(study: Study, jobs: list[Job]) -> bool:
    """Whether the command itself lets each run wait for the one before: nothing else would."""
    return study.one_by_one and any(job.prepared.plan.scheduler == "local" for job in jobs)


def _finish(done: _Done, context: Context, *, wait: bool, as_json: bool, shown: bool = False) -> None:
    """Wait where that was asked for, and show how to go on or what became of the runs.

    Args:
        shown: the runs are shown even where nothing was waited for.
    """
    from hpcrun.views.scale import next_lines
    from hpcrun.views.text import count

    study = done.study
    if wait:
        _wait(study, context)
    if as_json or wait or done.stayed or shown:
        _show_status(study, context, as_json=as_json, check=wait or done.stayed)
    else:
        show(next_lines(study, done.jobs))
    if done.errors:
        words = f"{len(done.errors)} of {count(done.tried, 'run')} could not be submitted"
        hint = f"hpcrun scale --resume {study.study_id} submits them again"
        sys.stdout.flush()
        raise type(done.errors[0])(words, hint=hint)


def _wait(study: Study, context: Context) -> None:
    """Wait until every run that was submitted is over.

    Raises:
        InterruptedByUser: Ctrl-C; the runs go on.
    """
    from hpcrun.actions.study import newest_runs

    newest = newest_runs([study], context.store)
    try:
        for point in study.points:
            run_id = newest[point.run_id]
            if context.store.folder(run_id).exists():
                context.waiter(run_id).wait()
    except KeyboardInterrupt:
        raise _interrupted(study, context) from None


def _interrupted(study: Study, context: Context) -> InterruptedByUser:
    study = context.studies.load(study.study_id)  # a generator that was interrupted has not handed out its last one
    left = sum(not point.submitted for point in study.points)
    goes_on = f"{left} of {len(study.points)} runs are not submitted yet" if left else "its runs are not affected"
    come_back = "resume" if left else "show"
    return InterruptedByUser(
        f"study {study.study_id}: {goes_on}",
        hint=f"hpcrun scale --{come_back} {study.study_id} --wait continues",
    )


def _jobs_again(study: Study, context: Context) -> tuple[list[Job], Context]:
    """Return the runs of a study that are to be submitted, and the context as it would be in the study's folder."""
    from hpcrun.actions.resubmit import folder_of, same_python, unmasked
    from hpcrun.actions.scale import prepare_points
    from hpcrun.cli.submit import prepare_request, read_job

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
    from hpcrun.actions.study import look_at, newest_runs

    return look_at(
        study,
        newest_runs([study], context.store),
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
        sys.stdout.flush()
        raise status.away
    bad = [item for item in status.runs if item.over and item.state != "COMPLETED"]
    if check and bad:
        failed = next((item.run_id for item in bad if item.status), None)
        hint = (
            f"hpcrun explain {failed}" if failed else f"hpcrun scale --resume {study.study_id} submits the missing runs"
        )
        words = f"{len(bad)} of {count(len(status.runs), 'run')} did not complete"
        sys.stdout.flush()
        raise JobFailedError(words, hint=hint)


def list_studies(context: Context, *, as_json: bool) -> None:
    """Show the studies of a runs folder, oldest first."""
    from hpcrun.actions.study import all_studies
    from hpcrun.views.scale import studies_json, studies_table
    from hpcrun.views.text import one_line

    studies, damaged = all_studies(context.studies)
    if as_json:
        show_json(studies_json(studies))
    elif studies:
        show_rich(studies_table(studies, context.now_s()))
    else:
        tell([f"no studies in {context.studies.runs}"])
    tell(one_line(f"hpcrun: {message}") for message in damaged)
