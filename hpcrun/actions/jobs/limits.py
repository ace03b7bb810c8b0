"""The limits of a person and a site on what a command submits, checked before the submission.

They prevent mistakes. Slurm enforces: an account or QOS with GrpTRESMins or MaxTRESPerUser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcrun.actions.jobs.partition_limits import partition_problems
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.errors import PlanError
from hpcrun.job.plan.cost import Cost, gpu_hours_text, hours_at_most, total_hours
from hpcrun.job.text.units import count
from hpcrun.profiles.limits import CostLimit, Limits
from hpcrun.profiles.site_locks import LIMITS, PARTITION_LIMITS


class LimitError(PlanError):
    """A submission over a limit that no person at a terminal has allowed."""


def check_limits(
    jobs: Sequence[Prepared], ports: Ports, surroundings: Surroundings, *, elements: int = 1
) -> Surroundings:
    """Check that jobs are within the limits together, or that a person allows them.

    Args:
        jobs: the jobs that a command is about to submit.
        ports: give the store of runs and the scheduler.
        surroundings: give the limits, and ask the person.
        elements: the elements of each job that is an array on this machine and no sweep.

    Returns:
        The surroundings in which exactly these jobs are allowed.

    Raises:
        LimitError: they are over a limit, and no person has allowed them.
    """
    limits = surroundings.limits()
    partitions = surroundings.config.partition_limits
    consent = surroundings.consent
    allowed = replace(surroundings, consent=replace(consent, jobs=tuple(jobs)))
    if (limits.is_empty and not partitions) or not jobs:
        return allowed
    costs = [job.cost(elements) for job in jobs]
    problems = [*_problems(costs, limits, ports)]
    if jobs[0].plan.scheduler == "slurm":
        problems += partition_problems(costs, partitions, surroundings)
    if not problems:
        return allowed
    _check_locked(jobs, costs, ports, surroundings)
    message = "; ".join(problems)
    if consent.ask is None:
        raise LimitError(message, hint=consent.hint or None)
    if not consent.ask(message):
        raise LimitError(f"{message}; nothing was submitted")
    return allowed


def _check_locked(
    jobs: Sequence[Prepared], costs: Sequence[Cost], ports: Ports, surroundings: Surroundings
) -> None:
    """Refuse jobs over a limit that the site has locked: no person allows them.

    Raises:
        PlanError: they are over such a limit; the hint is the site's sentence.
    """
    site = surroundings.config.site
    if LIMITS in site.locks:
        problems = list(_problems(costs, site.limits, ports))
        if problems:
            raise site.locks[LIMITS].refusal("; ".join(problems))
    if PARTITION_LIMITS in site.locks and jobs[0].plan.scheduler == "slurm":
        problems = list(partition_problems(costs, site.partition_limits, surroundings))
        if problems:
            raise site.locks[PARTITION_LIMITS].refusal("; ".join(problems))


def _problems(costs: Sequence[Cost], limits: Limits, ports: Ports) -> Iterator[str]:
    """Yield each limit that jobs are over, in words; what is not known is over any limit."""
    if limits.gpus_per_job is not None:
        yield from _gpus_problem(costs, limits.gpus_per_job)
    per_job = limits.gpu_hours_per_job
    per_day = limits.gpu_hours_per_day
    hours = total_hours(cost.gpu_hours_with_requeues for cost in costs)
    if hours is None:
        reason = next(cost.unknown for cost in costs if cost.gpu_hours is None)
        unknown = f"the GPU-hours are unknown ({reason})"
        if per_job is not None:
            yield f"{unknown}; {_limit_text('gpu_hours_per_job', per_job)}"
        elif per_day is not None:
            yield f"{unknown}; {_limit_text('gpu_hours_per_day', per_day)}"
        return
    if per_job is not None and hours > per_job.most:
        yield f"{_at_most(costs, hours)}; {_limit_text('gpu_hours_per_job', per_job)}"
    if per_day is not None and hours > 0:
        for problem in _day_problems(hours, per_day, ports):
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


def _day_problems(hours: float, limit: CostLimit, ports: Ports) -> Iterator[str]:
    """Yield what is used and reserved already, if these GPU-hours do not fit into the day."""
    from hpcrun.actions.status.day_use import hours_of_day  # few people have this limit

    use = hours_of_day(ports, limit.path.parent)
    if use.unknown:
        yield f"those of {use.unknown}, which are unknown"
    elif use.hours + hours > limit.most:
        yield f"{hours_at_most(use.hours)} used or reserved in the last 24 hours"


def _at_most(costs: Sequence[Cost], hours: float) -> str:
    text = f"at most {gpu_hours_text(hours)}"
    requeues = max(cost.requeues for cost in costs)
    if requeues:
        text += f" with {count(requeues, 'requeue')}"
    return text


def _limit_text(name: str, limit: CostLimit) -> str:
    return f"the limit is {limit.most:g} ({name} in {limit.path})"
