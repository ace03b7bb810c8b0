"""Several jobs, submitted one after the other: links of a chain, points of a study, arrays of a large sweep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.lineage import Lineage
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submit import SubmitResult, submit
from hpcrun.actions.ports import Ports
from hpcrun.errors import HpcrunError, InterruptedByUser, PlanError, SubmissionUncertainError
from hpcrun.job.plan import Plan
from hpcrun.job.quoting import check_job_name
from hpcrun.job.script import render_script
from hpcrun.job.sweep import Sweep, parts_of
from hpcrun.profiles.folder import load_templates
from hpcrun.schedulers.protocol import Scheduler


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
