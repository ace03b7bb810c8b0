"""submit: make the run, then its job: the record comes first, so that no job is ever unknown."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from hpcrun import journal
from hpcrun.actions.jobs.new_run import Lineage, new_run, new_run_id
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    PlanError,
    SchedulerError,
    SubmissionUncertainError,
    UsageError,
)
from hpcrun.job.after import dependency_option
from hpcrun.job.directives import unknown_note
from hpcrun.job.layout import RunFolder
from hpcrun.job.plan import Plan
from hpcrun.job.quoting import check_job_name
from hpcrun.job.script import render_script
from hpcrun.job.sweep import Sweep, parts_of
from hpcrun.profiles.folder import load_templates
from hpcrun.runs.record import Run
from hpcrun.schedulers.protocol import Scheduler, Submission
from hpcrun.schedulers.submit_claim import close_submission
from hpcrun.version import __version__

_ALONE = Lineage()


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """A submitted run.

    Attributes:
        remarks: what the scheduler said besides, and what could not be noted.
    """

    prepared: Prepared
    run: Run
    folder: Path
    remarks: str = ""


@dataclass(frozen=True, slots=True)
class Array:
    """The elements of a run for a scheduler that reads no directives, and how many of them may run at once."""

    elements: tuple[int, ...]
    at_once: int | None


def submit(
    prepared: Prepared,
    ports: Ports,
    surroundings: Surroundings,
    run_id: str | None = None,
    *,
    output_dir: Path | None = None,
    files: Mapping[str, str | bytes] | None = None,
    lineage: Lineage = _ALONE,
    array: Array | None = None,
) -> SubmitResult:
    """Record a run and submit its job: the record comes first, so that no job is ever unknown.

    Args:
        run_id: a new one where it is None.
        output_dir: where the run's folder goes, instead of the runs folder.
        files: path below the run's folder → content, for what the job needs besides its script.
        lineage: what it has to do with earlier runs.
        array: the elements of a run that is no sweep, on this machine; None for a plain job.

    Raises:
        SubmissionUncertainError: no answer came; the run is kept, and status will find its job.
        HpcrunError: refused; no run is left.
    """
    scheduler = ports.schedulers(prepared.plan.scheduler)
    check_available(prepared.plan, scheduler)
    check_secrets_set(prepared, surroundings)
    run_id = run_id or new_run_id(prepared.plan.name)
    made = new_run(prepared, ports, surroundings, run_id, output_dir=output_dir, files=files or {}, lineage=lineage)
    run, folder, notes = made.run, made.folder, made.notes
    try:
        with journal.kept_in(RunFolder(folder).journal, "submit"):
            journal.note(f"hpcrun {__version__} on {os.uname().nodename} in {surroundings.cwd}")
            submitted = scheduler.submit(_submission(prepared, folder, surroundings, lineage, array))
    except SubmissionUncertainError:
        raise
    except SchedulerError as error:
        with suppress(HpcrunError):  # status will say that no job came of it
            ports.store.delete(run.run_id)
        if surroundings.detected and surroundings.detected.shaped(prepared.profile):
            surroundings.detected.forget()  # what was detected may be out of date
        raise _with_doubts(error, prepared.plan) from None
    except KeyboardInterrupt:
        raise InterruptedByUser(
            f"interrupted while submitting {run.run_id}: the job may have been submitted",
            hint="check with hpcrun status",
        ) from None
    run = replace(run, job_id=submitted.job_id)
    try:
        ports.store.save(run)
        with suppress(OSError):
            close_submission(folder)
    except PlanError as error:
        note = f"{error.message}; the job is submitted; hpcrun status finds it by its folder"
        notes = (*notes, note)
    return SubmitResult(prepared, run, folder, "\n".join(filter(None, (submitted.remarks, *notes))))


def check_available(plan: Plan, scheduler: Scheduler) -> None:
    """Refuse a job whose scheduler is not here.

    Raises:
        PlanError: it is not.
    """
    if reason := scheduler.unavailable():
        raise PlanError(f"profile {plan.profile!r} cannot run here: {reason}",
                        hint="run on this machine with --profile local, or see the script with --dry-run")  # fmt: skip


def check_secrets_set(prepared: Prepared, surroundings: Surroundings) -> None:
    """Refuse a job whose secrets have no value here: it would find out only when it starts.

    Raises:
        UsageError: one has none.
    """
    given = {**surroundings.env, **prepared.secrets()}
    for name, value in prepared.plan.env:
        if value is None and not given.get(name):
            raise UsageError(
                f"{name} is not set: the job needs this secret, and its value comes from your environment",
                hint=f"read -rs {name} && export {name}",
            )


def _submission(
    prepared: Prepared, folder: Path, surroundings: Surroundings, lineage: Lineage, array: Array | None
) -> Submission:
    plan = prepared.plan
    if plan.sweep:
        array = Array(plan.sweep.chosen, plan.sweep.max_parallel)
    return Submission(
        name=plan.name,
        folder=folder,
        script=prepared.script.text,
        workdir=Path(prepared.request.workdir or surroundings.cwd),
        env={**surroundings.env, **prepared.secrets()},
        walltime_s=plan.walltime_s,
        warn_s=plan.requeue.warn_s if plan.requeue else None,
        dependency=dependency_option(lineage.after),
        elements=array.elements if array else (),
        max_parallel=array.at_once if array else None,
    )


def _with_doubts(error: SchedulerError, plan: Plan) -> HpcrunError:
    """Hint at a misspelt directive where sbatch refused and hpcrun had its doubts."""
    doubts = [note for key, _ in plan.directives if (note := unknown_note(key))]
    if error.hint or not doubts:
        return error
    return SchedulerError(error.message, hint="; ".join(doubts))


@dataclass(frozen=True, slots=True)
class JobSeries:
    """Jobs that are submitted one after the other.

    Attributes:
        noun: what a message calls one of them.
        lineage: the jobs submitted so far → what the next one has to do with them, and with earlier runs.
        run_ids: their ids; new ones where there are none.
    """

    noun: str
    jobs: Sequence[Prepared]
    lineage: Callable[[Sequence[SubmitResult]], Lineage]
    run_ids: Sequence[str] = ()


def submit_many(
    series: JobSeries, ports: Ports, surroundings: Surroundings, output_dir: Path | None = None
) -> Iterator[SubmitResult | HpcrunError]:
    """Submit jobs one after the other, and yield each, or why it was refused, as soon as it is known.

    The next one is submitted when the caller asks for it.
    """
    done: list[SubmitResult] = []
    for job, run_id in zip_longest(series.jobs, series.run_ids):
        item: SubmitResult | HpcrunError
        try:
            item = submit(job, ports, surroundings, run_id, output_dir=output_dir, lineage=series.lineage(tuple(done)))
            done.append(item)
        except HpcrunError as error:
            item = error
        yield item


def submit_all(
    series: JobSeries, ports: Ports, surroundings: Surroundings, output_dir: Path | None = None
) -> Iterator[SubmitResult]:
    """Submit jobs one after the other, and yield each as soon as it is submitted.

    Raises:
        HpcrunError: one was refused; those before it stay, and the message says so.
    """
    done: list[SubmitResult] = []
    for item in submit_many(series, ports, surroundings, output_dir):
        if isinstance(item, HpcrunError):
            raise _half_made(item, series, done) from None
        done.append(item)
        yield item


def _half_made(error: HpcrunError, series: JobSeries, done: Sequence[SubmitResult]) -> HpcrunError:
    if not done:
        return error
    is_unsure = isinstance(error, SubmissionUncertainError | InterruptedByUser)
    what = f"{series.noun} {len(done) + 1} of {len(series.jobs)} {'may not be' if is_unsure else 'was not'} submitted"
    remaining = (
        f"the {len(done)} jobs before it stay submitted" if len(done) > 1 else "the job before it stays submitted"
    )
    cancel = f"hpcrun cancel {' '.join(str(item.run.job_id) for item in done)} cancels the submitted jobs"
    return type(error)(f"{what}; {remaining}:\n{error.message}", hint="; ".join(filter(None, (cancel, error.hint))))


def sweep_parts(prepared: Prepared, scheduler: Scheduler, surroundings: Surroundings) -> list[Prepared]:
    """Return a prepared submission in as many as the cluster's MaxArraySize makes of it: mostly one.

    Each is a run of its own, NAME-1, NAME-2 ...; the numbers of the elements go on from one to the next.

    Raises:
        PlanError: the cluster does not take so many jobs.
    """
    sweep = prepared.plan.sweep
    limits = scheduler.array_limits() if sweep else None
    if sweep is None or limits is None:
        return [prepared]
    if len(sweep.chosen) > limits.jobs:
        raise PlanError(
            f"{len(sweep.chosen)} elements are more than the jobs this cluster takes (MaxJobCount {limits.jobs})",
            hint=f"submit it in pieces: --elements 0-{limits.jobs // 2 - 1}, then the rest",
        )
    parts = parts_of(sweep, limits.array)
    if len(parts) == 1 and parts[0] == sweep:
        return [prepared]
    templates = load_templates(surroundings.template_folders)
    jobs = []
    for number, part in enumerate(parts, 1):
        plan = _with_sweep(prepared.plan, part, f"-{number}" if len(parts) > 1 else "")
        request = prepared.request.model_copy(update={"elements": part.chosen, "max_parallel": part.max_parallel})
        jobs.append(replace(prepared, request=request, plan=plan, script=render_script(plan, templates)))
    return jobs


def _with_sweep(plan: Plan, sweep: Sweep, suffix: str) -> Plan:
    name = check_job_name(plan.name[: 100 - len(suffix)] + suffix)
    directives = {**dict(plan.directives), "job-name": name, "array": sweep.array}
    return replace(plan, name=name, sweep=sweep, directives=tuple(directives.items()))
