"""A sweep on its way: the arrays that a cluster takes it in."""

from __future__ import annotations

from dataclasses import replace

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.errors import PlanError
from hpcrun.job.plan import Plan
from hpcrun.job.quoting import check_job_name
from hpcrun.job.script import render_script
from hpcrun.job.sweep import Sweep, parts_of
from hpcrun.profiles.templates import load_templates
from hpcrun.schedulers.protocol import Scheduler


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
    found = []
    for number, part in enumerate(parts, 1):
        plan = _with_sweep(prepared.plan, part, f"-{number}" if len(parts) > 1 else "")
        request = prepared.request.model_copy(update={"elements": part.chosen, "max_parallel": part.max_parallel})
        found.append(replace(prepared, request=request, plan=plan, script=render_script(plan, templates)))
    return found


def _with_sweep(plan: Plan, sweep: Sweep, suffix: str) -> Plan:
    name = check_job_name(plan.name[: 100 - len(suffix)] + suffix)
    said = {**dict(plan.directives), "job-name": name, "array": sweep.array}
    return replace(plan, name=name, sweep=sweep, directives=tuple(said.items()))
