"""Jobs whose program is a Python function: the same plan and script, with submitit's pickles beside them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.errors import UsageError
from hpcrun.job.layout import WITHIN
from hpcrun.job.plan import Plan
from hpcrun.job.request import JobRequest
from hpcrun.job.resources import Machine
from hpcrun.job.script import render_script
from hpcrun.profiles.folder import load_templates
from hpcrun.profiles.load import load_profile

PROGRAM = "hpcrun_function"
"""The module that every task runs; below the run's folder, in ``programs/runtime/``."""


def function_request(fields: Mapping[str, Any], read: Callable[[dict[str, Any]], JobRequest]) -> JobRequest:
    """Return the request of a job that runs functions, from the fields that were said."""
    return read({**fields, "script": PROGRAM, "module": True})


def prepare_functions(
    request: JobRequest,
    profile_name: str,
    surroundings: Surroundings,
    machine: Callable[[], Machine],
    *,
    elements: int = 1,
    at_once: int | None = None,
) -> Prepared:
    """Decide everything about a job that runs functions, one task each as srun starts them.

    Args:
        elements: how many; on Slurm several are an array.
        at_once: how many of them may run at a time, None for any number.

    Raises:
        UsageError, ProfileError, PlanError: the job is not possible; the hint says what to change.
    """
    local = load_profile(profile_name, surroundings.profile_folders).profile.scheduler == "local"
    if local and request.nproc_per_node not in (None, 1):
        raise UsageError(
            f"tasks_per_node={request.nproc_per_node}: profile {profile_name!r} starts one task on each node",
            hint=f"on this machine nodes={request.nproc_per_node} starts as many tasks",
        )
    # said outright, since without a number torch's ranks are one per GPU
    fields = {"launcher": "python" if local else "srun", "nproc_per_node": request.nproc_per_node or 1}
    prepared = prepare(request.model_copy(update=fields), profile_name, surroundings, machine)
    if elements == 1 or local:
        return prepared
    plan = with_array(prepared.plan, elements, at_once)
    return replace(prepared, plan=plan, script=render_script(plan, load_templates(surroundings.template_folders)))


def with_array(plan: Plan, elements: int, at_once: int | None) -> Plan:
    """Return the plan as an array of elements that are numbered from 0."""
    indices = f"0-{elements - 1}" + (f"%{at_once}" if at_once else "")
    return replace(plan, directives=(*plan.directives, ("array", indices)))


def function_files(calls: Sequence[bytes]) -> dict[str, str | bytes]:
    """Return what the run's folder holds for pickled calls, one per element: path → content."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for index, call in enumerate(calls):
            file.writestr(str(index), call)
    return {str(WITHIN.calls): archive.getvalue()}
