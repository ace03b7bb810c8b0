"""The limits of a person and a site on what a command submits, checked before the submission.

They prevent mistakes. Slurm enforces: an account or QOS with GrpTRESMins or MaxTRESPerUser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from hpcrun.actions.jobs.partition_limits import partition_problems
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.ports import Consent, Ports, Surroundings
from hpcrun.errors import PlanError
from hpcrun.job.plan.cost import Cost, gpu_hours_text, hours_at_most, total_hours
from hpcrun.job.text.units import count
from hpcrun.profiles.limits import CostLimit, Limits
from hpcrun.profiles.site_locks import LIMITS, PARTITION_LIMITS


class LimitError(PlanError):
    """A submission over a limit that no person at a terminal has allowed."""


@contextmanager
def within_limits(
    jobs: Sequence[Prepared], ports: Ports, surroundings: Surroundings, *, elements: int = 1
) -> Iterator[Surroundings]:
    """Check that jobs are within the limits together, or that a person allows them.

    No other process checks the limit of a day until the jobs are recorded, at the end of the
    context. Jobs that were checked already are not checked again.

    Args:
        jobs: the jobs that a command is about to submit.
        ports: give the store of runs and the scheduler.
        surroundings: give the limits, and ask the person.
        elements: the elements of each job that is an array on this machine and no sweep.

    Yields:
        The surroundings in which exactly these jobs are allowed.

    Raises:
        LimitError: they are over a limit, and no person has allowed them.
        PlanError: other processes submit for more than a minute.
    """
    consent = surroundings.consent
    if all(consent.has(job) for job in jobs):
        yield surroundings
        return
    problems: list[str] = []
    with ExitStack() as held:
        if has_limits(surroundings):
            costs = [job.cost(elements) for job in jobs]
            problems = list(_all_problems(jobs, costs, ports, surroundings, held))
            if problems:
                held.close()  # a person may think for long, and may allow any number of GPU-hours
                _check_locked(jobs, costs, ports, surroundings)
                _ask("; ".join(problems), consent)
        consent = replace(consent, jobs=tuple(jobs), by_person=bool(problems))
        yield replace(surroundings, consent=consent)


def over_limits(
    jobs: Sequence[Prepared], ports: Ports, surroundings: Surroundings
) -> Iterator[str]:
    """Yield each limit that jobs would be over together, in words: nobody is asked."""
    costs = [job.cost() for job in jobs]
    with ExitStack() as held:
        yield from _all_problems(jobs, costs, ports, surroundings, held)


def has_limits(surroundings: Surroundings) -> bool:
    """Return whether there is any limit on what a command submits."""
    if surroundings.partition_limits():
        return True
    return not surroundings.limits().is_empty


def _all_problems(
    jobs: Sequence[Prepared],
    costs: Sequence[Cost],
    ports: Ports,
    surroundings: Surroundings,
    held: ExitStack,
) -> Iterator[str]:
    """Yield each limit of a person, a site or a partition that jobs are over."""
    yield from _problems(costs, surroundings.limits(), ports, held)
    if jobs[0].plan.scheduler == "slurm":
        yield from partition_problems(costs, surroundings.partition_limits(), surroundings)


def _ask(message: str, consent: Consent) -> None:
    """Ask a person to allow jobs that are over a limit.

    Raises:
        LimitError: the person does not allow the jobs, or there is none.
    """
    if consent.ask is None:
        raise LimitError(message, hint=consent.hint or None)
    if not consent.ask(message):
        raise LimitError(f"{message}; nothing was submitted")


def _check_locked(
    jobs: Sequence[Prepared], costs: Sequence[Cost], ports: Ports, surroundings: Surroundings
) -> None:
    """Refuse jobs over a limit that the site has locked: no person allows them.

    Raises:
        PlanError: they are over such a limit; the hint is the site's sentence.
    """
    site = surroundings.config.site
    if LIMITS in site.locks:
        with ExitStack() as held:
            problems = list(_problems(costs, site.limits, ports, held))
        if problems:
            raise site.locks[LIMITS].refusal("; ".join(problems))
    if PARTITION_LIMITS in site.locks and jobs[0].plan.scheduler == "slurm":
        problems = list(partition_problems(costs, site.partition_limits, surroundings))
        if problems:
            raise site.locks[PARTITION_LIMITS].refusal("; ".join(problems))


def _problems(
    costs: Sequence[Cost], limits: Limits, ports: Ports, held: ExitStack
) -> Iterator[str]:
    """Yield each limit that jobs are over, in words; what is not known is over any limit.

    The lock of the limit of a day goes to ``held``, if there is such a limit.
    """
    if limits.gpus_per_job is not None:
        yield from _gpus_problem(costs, limits.gpus_per_job)
    per_job = limits.gpu_hours_per_job
    per_day = limits.gpu_hours_per_day
    hours = total_hours(cost.gpu_hours_with_requeues for cost in costs)
    if hours is None:
        reason = next(cost.unknown for cost in costs if cost.gpu_hours_with_requeues is None)
        unknown = f"the GPU-hours are unknown ({reason})"
        if per_job is not None:
            yield f"{unknown}; {_limit_text('gpu_hours_per_job', per_job)}"
        elif per_day is not None:
            yield f"{unknown}; {_limit_text('gpu_hours_per_day', per_day)}"
        return
    if per_job is not None and hours > per_job.most:
        yield f"{_at_most(costs, hours)}; {_limit_text('gpu_hours_per_job', per_job)}"
    if per_day is not None and hours > 0:
        for problem in _day_problems(hours, per_day, ports, held):
            text = _limit_text("gpu_hours_per_day", per_day)
            yield f"{_at_most(costs, hours)} besides {problem}; {text}"


def _gpus_problem(costs: Sequence[Cost], limit: CostLimit) -> Iterator[str]:
    """Yield how a job is over the limit of GPUs, if one is."""
    text = _limit_text("gpus_per_job", limit)
    for cost in costs:
        if cost.gpus is None:
            yield f"the number of GPUs is unknown ({cost.unknown}); {text}"
            return
    most = max(cost.gpus or 0 for cost in costs)
    if most > limit.most:
        yield f"{count(most, 'GPU')} in a job; {text}"


def _day_problems(hours: float, limit: CostLimit, ports: Ports, held: ExitStack) -> Iterator[str]:
    """Yield what is used and reserved already, if these GPU-hours do not fit into the day."""
    # few people have this limit
    from hpcrun.actions.status.gpu_hours_of_day import UnknownUseError, alone_in_day, hours_of_day

    # HPCRUN_* variables move a person's folder and not the site's: the folder that knows of most
    # runs counts
    limiting = max(limit.folders, key=lambda folder: len(ports.run_lists(folder)))
    held.enter_context(alone_in_day(ports, limiting))
    try:
        used = hours_of_day(ports, limiting)
    except UnknownUseError as error:
        yield f"those of {error.message}, which are unknown ({error.hint})"
        return
    if used + hours > limit.most:
        yield f"{hours_at_most(used)} used or reserved in the last 24 hours"


def _at_most(costs: Sequence[Cost], hours: float) -> str:
    text = f"at most {gpu_hours_text(hours)}"
    requeues = max(cost.requeues or 0 for cost in costs)
    if requeues:
        text += f" with {count(requeues, 'requeue')}"
    return text


def _limit_text(name: str, limit: CostLimit) -> str:
    return f"the limit is {limit.most:g} ({name} in {limit.path})"
