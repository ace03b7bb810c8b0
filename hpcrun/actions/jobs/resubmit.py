"""resubmit: the request of an earlier run, with changes.

The new run continues from the checkpoints of the earlier run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.after_and_chain import run_of
from hpcrun.actions.jobs.new_run import Lineage
from hpcrun.actions.ports import Ports
from hpcrun.actions.status.run_status import failed_elements
from hpcrun.actions.status.status_query import one_status
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.launcher.known_launchers import script_arguments
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.after import After
from hpcrun.job.request.job_request import JOB_FIELDS
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.recognise_secrets import MASK, is_secret
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

# Fields that say one thing in several ways: a new value of one removes the old values of the
# others.
_INSTEAD = (("gpus", "gpus_per_node"), ("cpus", "cpus_per_task", "cpus_per_gpu"))
# the last value of a name counts
_ADDED = tuple(name for name, option in JOB_FIELDS.items() if option.adds)
_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")


def check_over(run: Run, after: Iterable[After], ports: Ports, *, force: bool) -> None:
    """Refuse to repeat a run that may still write checkpoints.

    The run is repeated if the new run starts after the run's end.

    Raises:
        PlanError: the run has not ended.
    """
    if force or any(run_of(each, ports).run == run for each in after):
        return
    result = one_status(run.run_id, ports)
    status = result.runs[0].status
    if status.final:
        return
    if result.away:
        raise result.away
    raise PlanError(
        f"{run.run_id} has not ended: {status.state}",
        hint=f"--after {run.job_id or run.run_id} starts the new job after it; hpcrun cancel "
        "cancels it; --force submits now",
    )


def check_no_calls(run: Run, store: RunStore) -> None:
    """Refuse to repeat a run of Python functions.

    The calls belong to the program that made the calls.

    Raises:
        PlanError: the run called Python functions.
    """
    if RunFolder(store.folder(run.run_id)).calls.exists():
        raise PlanError(
            f"{run.run_id} called Python functions", hint="submit them again from Python"
        )


def failed_of(run: Run, ports: Ports) -> tuple[int, ...]:
    """Return the elements of a sweep that have ended and did not complete; others may still run.

    Raises:
        PlanError: the run is no sweep, or no element has failed.
    """
    item = one_status(run.run_id, ports).runs[0]
    if not item.elements:
        raise PlanError(
            f"{run.run_id} is no sweep: it has no elements",
            hint=f"hpcrun resubmit {run.job_id} repeats it",
        )
    failed = failed_elements(item.elements)
    if not failed:
        raise PlanError(
            f"no element of {run.run_id} has failed: {item.status.reason}",
            hint=f"hpcrun resubmit {run.job_id} repeats all of it",
        )
    return tuple(failed)


def repeated(run: Run, changes: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the request of a run, with changes, as a user would type it.

    Args:
        run: the run to repeat.
        changes: the new values. Variables and sbatch directives are added to those of the run.
        env: the source of the values of secrets, which the record does not have.
    """
    request = dict(run.request)
    for group in _INSTEAD:
        if not changes.keys().isdisjoint(group):
            for name in group:
                request.pop(name, None)
    request.setdefault("name", run.name)
    if "script" in changes:
        request.pop("name")
    elif "args" in changes and not request.get("module"):
        # of the script, not of the interpreter before it
        args = list(request.get("args", ()))
        replaced = script_arguments((request["script"], *args))
        kept_args = args[: len(args) - len(replaced)]
        changes = {**changes, "args": [*kept_args, *changes["args"]]}
    request["env"] = _recorded_env(request, changes.get("env", ()), env)
    for name, value in changes.items():
        if name in _ADDED:
            request[name] = [*request.get(name, ()), *value]
        else:
            request[name] = value
    return request


def _recorded_env(
    request: Mapping[str, Any], changed: Iterable[Any], env: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Return the recorded variables that no ``NAME=VALUE`` of the changes replaces."""
    replaced = {item.partition("=")[0] for item in changed if isinstance(item, str)}
    kept = [(name, value) for name, value in request.get("env", ()) if name not in replaced]
    return unmasked(kept, env, request.get("secrets", ()))


def unmasked(
    recorded: Iterable[tuple[str, str]], env: Mapping[str, str], named: Collection[str] = ()
) -> list[tuple[str, str]]:
    """Return a request's recorded variables; the values of secrets come from the environment.

    Args:
        recorded: the names and values of the variables; a secret has a mask as its value.
        env: the environment, with the values of the secrets.
        named: the names that the record lists as secret.

    Raises:
        UsageError: a secret is not in the environment.
    """
    variables = []
    for name, text in recorded:
        value = text
        if text == MASK and (name in named or is_secret(name)):
            if name not in env:
                raise UsageError(
                    f"{name} is a secret, which is not in the run's record, and it is not set here",
                    hint=f"export {name}, or add --env {name}=VALUE",
                )
            value = env[name]
        variables.append((name, value))
    return variables


def same_python(python: Mapping[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the Python of an earlier run's plan as the only active one.

    The plan names a virtual environment, a conda environment, or neither.
    """
    kept = {name: value for name, value in env.items() if name not in _ENVIRONMENTS}
    if python.get("prefix"):
        kept[python["variable"]] = python["prefix"]
    return kept


def folder_of(cwd: str | None, whose: str) -> Path:
    """Return the folder from which a run was submitted.

    Raises:
        PlanError: the folder is not known or no longer exists.
    """
    if cwd is not None and Path(cwd).is_dir():
        return Path(cwd)
    raise PlanError(
        f"the folder that {whose} was submitted from no longer exists: {cwd}",
        hint="submit it from another folder: hpcrun submit",
    )


def lineage_of(
    run: Run, plan: Plan, *, store: RunStore, fresh: bool, new_snapshot: bool
) -> Lineage:
    """Return the relations of the new run to the earlier one.

    Args:
        run: the earlier run.
        plan: the plan of the new run.
        store: finds the folder of the earlier run.
        fresh: the new run begins with its own empty folder of checkpoints.
        new_snapshot: the code is copied again instead of taken from the earlier run's snapshot.

    Raises:
        PlanError: the snapshot of the earlier run is gone.
    """
    folder = store.folder(run.run_id)
    code = None
    if plan.snapshot and run.plan.get("snapshot") and not new_snapshot:
        code = folder
        snapshot = RunFolder(folder).code
        if not snapshot.is_dir():
            raise PlanError(
                f"the snapshot of {run.run_id} is gone: {snapshot}",
                hint="--snapshot copies the code as it is now",
            )
    checkpoints = None if fresh else folder
    return Lineage(checkpoints=checkpoints, code=code, resubmitted_from=run.run_id)
