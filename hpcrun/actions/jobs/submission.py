"""submit: record the run, then submit its job, so that no job is ever unknown.

Several jobs are submitted one after the other: the links of a chain, the arrays of a large sweep.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.jobs.check_limits import within_limits
from hpcrun.actions.jobs.new_run import Lineage, NewRun, new_run, new_run_id
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.note_action import note_action
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    PlanError,
    SchedulerError,
    SubmissionUncertainError,
    UsageError,
)
from hpcrun.job.batch.sbatch_input import directives_in
from hpcrun.job.launch_options import unknown_note
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.plan.sweep import parts_of
from hpcrun.job.request.after import dependency_option
from hpcrun.job.run_paths import RunFolder, run_name
from hpcrun.job.script import render_script
from hpcrun.job.text.quoting import with_ending
from hpcrun.job.text.spelling import spell
from hpcrun.job.text.units import count
from hpcrun.machine.command_log import log_message, logged_to
from hpcrun.profiles.folders import load_templates
from hpcrun.runs.record import Run
from hpcrun.schedulers.protocol import Scheduler, Submission, SubmittedJob
from hpcrun.schedulers.submit_claim import close_submission
from hpcrun.version import __version__

_LONGEST_COMMENT = 1023
"""Bytes; slurmctld refuses a longer one (job_mgr.c, _validate_job_desc)."""
NO_LINEAGE = Lineage()
"""No relations to earlier runs."""


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """A submitted run."""

    prepared: Prepared
    run: Run
    folder: Path
    remarks: str = ""  # other messages of the scheduler, and what could not be recorded


@dataclass(frozen=True, slots=True)
class JobArray:
    """The elements of an array: those of a sweep, or calls of a Python function."""

    elements: tuple[int, ...] = ()
    at_once: int | None = None  # how many of them may run at a time, None for any number


_NO_ELEMENTS = JobArray()


def submit(
    prepared: Prepared,
    ports: Ports,
    surroundings: Surroundings,
    run_id: str | None = None,
    *,
    output_dir: Path | None = None,
    files: Mapping[str, str | bytes] | None = None,
    lineage: Lineage = NO_LINEAGE,
    array: JobArray = _NO_ELEMENTS,
) -> SubmitResult:
    """Record a run, then submit its job: every submission passes here, and its limits are checked.

    Args:
        prepared: the job to submit.
        ports: give the store of runs and the scheduler.
        surroundings: the folder and the environment in which the user submits the job.
        run_id: None for a new one.
        output_dir: the folder for the run instead of the runs folder.
        files: path below the run's folder → content, for files that the job needs besides its
            script.
        lineage: the relations of the run to earlier runs.
        array: the elements of an array that is not a sweep.

    Raises:
        LimitError: the job is over a limit, and no person has allowed it; no run is made.
        UsageError: a secret that the job needs is not in the environment; no run is made.
        SubmissionUncertainError: sbatch got no answer; the run is kept, and status will find its
            job.
        SchedulerError: the scheduler refused the submission; no run remains.
        InterruptedByUser: the user interrupted; its job ids are those that were submitted.
        HpcrunError: the submission was refused; no run remains.
    """
    plan = prepared.plan
    scheduler = ports.schedulers(plan.scheduler)
    check_available(plan, scheduler)
    secrets = prepared.secrets()
    env = {**surroundings.env, **secrets}
    _check_secrets(plan, env)
    number = max(1, len(array.elements))
    if plan.sweep:
        array = JobArray(plan.sweep.chosen, plan.sweep.max_parallel)
    with within_limits([prepared], ports, surroundings, elements=number):
        made = new_run(
            prepared,
            ports,
            surroundings,
            run_id or new_run_id(plan.name),
            output_dir=output_dir,
            files=files or {},
            lineage=lineage,
            elements=array.elements,
        )
    submission = Submission(
        folder=made.folder,
        script=prepared.script,
        workdir=Path(prepared.request.workdir or surroundings.cwd),
        env=env,
        walltime_s=plan.walltime_s,
        warn_s=plan.requeue.warn_s if plan.requeue else None,
        dependency=dependency_option(lineage.after) if lineage.after else "",
        elements=array.elements,
        max_parallel=array.at_once,
        called_in=surroundings.cwd if plan.batch else None,
        comment=_comment(prepared, made.run.run_id) if surroundings.config.comment_jobs else "",
    )
    action = "resubmit" if lineage.resubmitted_from else "submit"
    hours = {
        "gpu_hours_at_most": made.run.gpu_hours_at_most,
        "gpu_hours_with_requeues": made.run.gpu_hours_with_requeues,
    }
    try:
        result = _submit_run(made, submission, scheduler, prepared, ports, surroundings)
    except SubmissionUncertainError:
        note_action(ports, action, [made.run], secrets, **hours)
        raise
    note_action(ports, action, [result.run], secrets, **hours)
    return result


def _submit_run(
    made: NewRun,
    submission: Submission,
    scheduler: Scheduler,
    prepared: Prepared,
    ports: Ports,
    surroundings: Surroundings,
) -> SubmitResult:
    """Submit the job of a recorded run; :func:`submit` lists the errors."""  # noqa: DOC501
    run = made.run
    notes = list(made.notes)
    submitted: SubmittedJob | None = None
    try:
        with logged_to(RunFolder(made.folder).journal, "submit"):
            log_message(f"hpcrun {__version__} on {os.uname().nodename} in {surroundings.cwd}")
            submitted = scheduler.submit(submission)
        run = replace(run, job_id=submitted.job_id)
        run = ports.store.change(run, job_id=submitted.job_id)
        with suppress(OSError):
            close_submission(made.folder)
    except PlanError as error:
        lost = f"{error.message}; the job is submitted; hpcrun status finds it by its folder"
        notes.append(lost)
    except SubmissionUncertainError:
        raise
    except SchedulerError as error:
        with suppress(HpcrunError):  # status will show that there is no job
            ports.store.delete(run.run_id)
        if surroundings.detected and surroundings.detected.shaped(prepared.profile):
            surroundings.detected.forget()  # the detected facts may be outdated
        doubts = _doubts(prepared.plan)
        if error.hint or not doubts:
            raise
        raise SchedulerError(error.message, hint=doubts) from None
    except KeyboardInterrupt:
        if submitted is not None:
            raise InterruptedByUser.after([submitted.job_id]) from None
        raise InterruptedByUser(
            f"interrupted while submitting {run.run_id}: the job may have been submitted",
            hint="check with hpcrun status",
        ) from None
    if submitted:
        if submitted.remarks:
            notes.insert(0, submitted.remarks)
        notes += _requeue_note(prepared.plan, submitted.job_id, scheduler)
    return SubmitResult(prepared, run, made.folder, "\n".join(notes))


def _comment(prepared: Prepared, run_id: str) -> str:
    """Return the comment by which accounting counts the jobs of hpcrun, before the person's own.

    It is empty if both together are longer than Slurm takes: the person's own stays.
    """
    mark = f"hpcrun {__version__} {run_id}"
    of_script = directives_in(prepared.script).get("comment")
    comment = f"{mark}; {of_script}" if of_script else mark
    return comment if len(os.fsencode(comment)) <= _LONGEST_COMMENT else ""


def _doubts(plan: Plan) -> str:
    """Return the remarks on directives that are unknown to hpcrun, and perhaps to sbatch."""
    notes = [unknown_note(name) for name, _ in plan.directives]
    return "; ".join(note for note in notes if note)


def _requeue_note(plan: Plan, job_id: str, scheduler: Scheduler) -> list[str]:
    """Return a note if the job is to be requeued, and the site has removed that request."""
    times = plan.requeue.times if plan.requeue else 0
    if not times or scheduler.may_requeue(job_id) is not False:
        return []
    site = "the site does not let this job be requeued (Slurm shows Requeue=0)"
    return [f"{site}: {spell('requeue', times)} has no effect"]


def _check_secrets(plan: Plan, env: Mapping[str, str]) -> None:
    """Check that the environment has each secret that the job needs.

    Raises:
        UsageError: a secret is not set.
    """
    for name, value in plan.env:
        if value is None and not env.get(name):
            raise UsageError(
                f"{name} is not set: the job needs this secret, and its value comes from your "
                "environment",
                hint=f"read -rs {name} && export {name}",
            )


def check_available(plan: Plan, scheduler: Scheduler) -> None:
    """Refuse a job whose scheduler this machine does not have.

    Raises:
        PlanError: the scheduler is not available on this machine.
    """
    reason = scheduler.unavailable()
    if reason:
        raise PlanError(
            f"profile {plan.profile!r} cannot run here: {reason}",
            hint=f"run on this machine with {spell('profile', 'local')}, or see the script with "
            f"{spell('dry-run')}",
        )


LineageOfNext = Callable[[Sequence[SubmitResult]], Lineage]
"""Submitted jobs → the relations of the next job to them and to earlier runs."""


def submit_all(
    jobs: Sequence[Prepared],
    lineage: LineageOfNext,
    ports: Ports,
    surroundings: Surroundings,
    *,
    noun: str,
    output_dir: Path | None = None,
    notes_same: bool = False,
) -> Iterator[SubmitResult]:
    """Submit jobs one after the other; yield each submitted run.

    Each job is submitted when the caller requests the next run.

    Args:
        jobs: the jobs in the order of their submission.
        lineage: submitted runs → the relations of the next job.
        ports: give the store of runs and the scheduler.
        surroundings: the folder and the environment in which the user submits the jobs.
        noun: the word for one of them in messages.
        output_dir: the folder for each run instead of the runs folder.
        notes_same: add a remark to the first run if the same command is pending already.

    Raises:
        LimitError: they are over a limit together, and no person has allowed them.
        HpcrunError: one was refused; those before it remain, and the message says so.
        InterruptedByUser: the user interrupted; it has the ids of the jobs that were submitted.
    """  # noqa: DOC501
    done: list[SubmitResult] = []
    remark = ""
    with ExitStack() as held:
        if len(jobs) > 1:  # together; submit checks a single one
            surroundings = held.enter_context(within_limits(jobs, ports, surroundings))
        if notes_same:
            remark = _same_remark(jobs[0], ports, surroundings)
        for job in jobs:
            try:
                relations = lineage(tuple(done))
                result = submit(job, ports, surroundings, output_dir=output_dir, lineage=relations)
            except HpcrunError as error:
                job_ids = [str(item.run.job_id) for item in done]
                if isinstance(error, InterruptedByUser) and error.job_ids:
                    raise InterruptedByUser.after([*job_ids, *error.job_ids]) from None
                if not done:
                    raise
                refused = f"{noun} {len(done) + 1} of {len(jobs)}"
                raise _partly_submitted(error, job_ids, refused) from None
            if remark and not done:
                remarks = [line for line in (result.remarks, remark) if line]
                result = replace(result, remarks="\n".join(remarks))
            done.append(result)
            yield result


def _same_remark(job: Prepared, ports: Ports, surroundings: Surroundings) -> str:
    """Return the remark that the same command is pending already; empty if it is not."""
    active = sorted(ports.store.active_ids())
    run_ids = [run_id for run_id in active if run_name(run_id) == job.plan.name]
    if not run_ids:
        return ""  # as of most submissions, which need nothing of the statuses of runs
    from hpcrun.actions.jobs.same_pending import same_remark

    return same_remark(job, run_ids, ports, surroundings)


def _partly_submitted(error: HpcrunError, job_ids: Sequence[str], refused: str) -> HpcrunError:
    """Return the error of a job that was refused after others were submitted.

    Args:
        error: why the job was refused.
        job_ids: the submitted jobs.
        refused: the refused job, as text.
    """
    is_unsure = isinstance(error, SubmissionUncertainError | InterruptedByUser)
    which = f"{refused} {'may not be' if is_unsure else 'was not'} submitted"
    if len(job_ids) > 1:
        others = f"{len(job_ids)} jobs before it stay"
    else:
        others = "job before it stays"
    hint = f"hpcrun cancel {' '.join(job_ids)} cancels the submitted jobs"
    if error.hint:
        hint += f"; {error.hint}"
    return type(error)(f"{which}; the {others} submitted:\n{error.message}", hint=hint)


def sweep_parts(
    prepared: Prepared, scheduler: Scheduler, surroundings: Surroundings
) -> list[Prepared]:
    """Return a prepared submission as several, if the cluster's MaxArraySize requires several.

    Mostly the result is one submission. Of several, each is a separate run, NAME-1, NAME-2 ...; the
    numbers of the elements continue from one to the next.

    Raises:
        PlanError: the sweep has more tasks than the cluster takes jobs (MaxJobCount).
    """
    plan, sweep = prepared.plan, prepared.plan.sweep
    limits = scheduler.array_limits() if sweep else None
    # the task ids of a person stay as they are: sbatch accepts them, or not
    if sweep is None or limits is None or sweep.typed_array:
        return [prepared]
    if sweep.tasks > limits.jobs:
        noun = "task" if sweep.pack else "element"
        raise PlanError(
            f"{count(sweep.tasks, noun)} are more than the jobs this cluster takes "
            f"(MaxJobCount {limits.jobs})",
            hint=f"submit it in pieces: --elements 0-{limits.jobs // 2 - 1}, then the rest",
        )
    parts = parts_of(sweep, limits.array)
    if parts == [sweep]:
        return [prepared]
    jobs = []
    for number, part in enumerate(parts, 1):
        suffix = f"-{number}" if len(parts) > 1 else ""
        name = with_ending(plan.name, suffix)
        given_name = plan.directive("job-name") or plan.name
        directives = {"job-name": with_ending(given_name, suffix), "array": part.array}
        request = replace(prepared.request, elements=part.chosen, max_parallel=part.max_parallel)
        job = changed_job(prepared, surroundings, directives, name=name, sweep=part)
        jobs.append(replace(job, request=request))
    return jobs


def changed_job(
    prepared: Prepared, surroundings: Surroundings, directives: Mapping[str, str], **fields: object
) -> Prepared:
    """Return a prepared job with other directives and fields of its plan, and the new script."""
    changed = {**dict(prepared.plan.directives), **directives}
    rows = tuple(changed.items())
    plan = replace(prepared.plan, directives=rows, **fields)  # type: ignore[arg-type]
    script = render_script(plan, load_templates(surroundings.template_folders))
    return replace(prepared, plan=plan, script=script)
