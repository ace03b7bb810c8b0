"""resubmit: the request of an earlier run, with changes.

The new run continues from the checkpoints of the earlier run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.after_and_chain import run_of
from hpcrun.actions.jobs.new_run import Lineage
from hpcrun.actions.ports import Ports
from hpcrun.actions.status.run_status import RunStatus, failed_elements, unconfirmed_text
from hpcrun.actions.status.status_query import get_status, one_status
from hpcrun.errors import HpcrunError, PlanError, UsageError
from hpcrun.files.reading import read_text
from hpcrun.files.writing import flocked
from hpcrun.job.launcher.known_launchers import script_arguments
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.after import After
from hpcrun.job.request.job_request import JOB_FIELDS, STDIN
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.recognise_secrets import MASK, is_secret
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

# Fields that say one thing in several ways: a new value of one removes the old values of the
# others.
_INSTEAD = (
    ("gpus", "gpus_per_node"),
    ("cpus", "cpus_per_task", "cpus_per_gpu"),
    ("warm", "no_warm"),
)
# the last value of a name counts
_ADDED = tuple(name for name, option in JOB_FIELDS.items() if option.adds)
_ENVIRONMENTS = ("VIRTUAL_ENV", "CONDA_PREFIX")
_LOCK_WAIT_S = 60.0


def family_of(run: Run, store: RunStore) -> list[Run]:
    """Return the runs that keep their checkpoints in the folder of the same run, oldest first.

    The run itself is one of them. A run whose record cannot be read is left out.
    """
    runs = []
    for run_id in store.run_ids():
        with suppress(HpcrunError):
            runs.append(store.load(run_id))
    before = {item.run_id: item.checkpoints_of for item in runs}
    owner = _owner_of(run.run_id, before)
    return [item for item in runs if _owner_of(item.run_id, before) == owner] or [run]


def _owner_of(run_id: str, before: Mapping[str, str | None]) -> str:
    """Return the run whose folder has the checkpoints of a run.

    Args:
        run_id: the run.
        before: run id → the run from whose checkpoints the run continues.
    """
    owner = run_id
    for _ in before:  # no more often: a record may be wrong, and lead in a circle
        earlier = before.get(owner)
        if earlier is None:
            break
        owner = earlier
    return owner


@contextmanager
def alone_on(run: Run, store: RunStore) -> Iterator[None]:
    """Let one process at a time check a family of runs and submit a run that joins the family.

    Raises:
        PlanError: another process has held the lock for a minute.
    """
    owner = RunFolder(store.folder(family_of(run, store)[0].run_id))
    with ExitStack() as held:
        is_free = True
        with suppress(OSError):  # a folder that cannot be written: the check must do
            is_free = held.enter_context(flocked(owner.resubmit_lock, _LOCK_WAIT_S))
        if not is_free:
            raise PlanError(
                f"another hpcrun resubmits {run.run_id} at this moment",
                hint="hpcrun status shows the new run",
            )
        yield


def check_over(
    run: Run,
    after: Iterable[After],
    ports: Ports,
    elements: Collection[int] = (0,),
    *,
    fresh: bool = False,
) -> None:
    """Refuse to repeat a run while it, or another run of its family, may write the checkpoints.

    Args:
        run: the run to repeat.
        after: the new run starts after the end of these runs, and of the runs for which they wait.
        ports: give the store of runs and the schedulers.
        elements: the elements of the new run, each of which has its own checkpoints.
        fresh: the new run has a folder of checkpoints of its own.

    Raises:
        PlanError: a run of the family has not ended.
    """
    family = [run] if fresh else family_of(run, ports.store)
    earlier = _ended_before([run_of(item, ports).run for item in after], ports.store)
    run_ids = [member.run_id for member in family if member.run_id not in earlier]
    result = get_status(run_ids, ports)
    for item in result.runs:
        if not _may_write(item, elements):
            continue
        if result.away:
            raise result.away
        who = item.run.run_id
        if item.run.run_id != run.run_id:
            who += f", which uses the same checkpoints as {run.run_id},"
        job = item.run.job_id or item.run.run_id
        if item.unconfirmed:
            raise PlanError(
                f"{item.run.run_id}: {unconfirmed_text(item)}",
                hint=f"hpcrun status {job} polls again; --force submits now",
            )
        raise PlanError(
            f"{who} has not ended: {item.status.state}",
            hint=f"--after {job} starts the new job after it; hpcrun cancel {job} cancels it; "
            "--force submits now",
        )


def _ended_before(runs: Sequence[Run], store: RunStore) -> set[str]:
    """Return the ids of runs, and of all runs whose end these wait for."""
    run_ids: set[str] = set()
    waiting = [run.run_id for run in runs]
    while waiting:
        run_id = waiting.pop()
        if run_id in run_ids:
            continue
        run_ids.add(run_id)
        with suppress(HpcrunError):
            waiting += [after["run_id"] for after in store.load(run_id).after]
    return run_ids


def _may_write(item: RunStatus, elements: Collection[int]) -> bool:
    """Whether a run may still write the checkpoints of some elements, or write them again."""
    if item.unconfirmed:
        return True
    if item.status.final:
        return False
    if not item.elements:
        return 0 in elements
    return any(not one.status.final for one in item.elements if one.index in elements)


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


def stdin_of(run: Run, store: RunStore) -> str | None:
    """Return the batch script that submit read from stdin; None of another program.

    Raises:
        PlanError: the run's folder has no copy of it.
    """
    if run.request.get("script") != STDIN:
        return None
    try:
        return read_text(RunFolder(store.folder(run.run_id)).stdin)
    except OSError:
        raise PlanError(
            f"{run.run_id} has no copy of its script, which stdin had: one with a secret is not "
            "kept",
            hint="submit it again: hpcrun submit - <train.sbatch",
        ) from None


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
    if "array" in changes:
        for name in ("elements", "sweep"):  # of other task ids
            request.pop(name, None)
    if not run.plan.get("batch"):  # a script has its own
        directives = dict(run.plan.get("directives", ()))
        request.setdefault("name", directives.get("job-name") or run.name)
    if "script" in changes:
        request.pop("name", None)
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
    code_run = None
    if plan.snapshot and run.plan.get("snapshot") and not new_snapshot:
        code = folder
        snapshot = RunFolder(folder).code
        if not snapshot.is_dir():
            raise PlanError(
                f"the snapshot of {run.run_id} is gone: {snapshot}",
                hint="--snapshot copies the code as it is now",
            )
        with suppress(HpcrunError):  # the record is for the words of the plan alone
            code_run = store.load(snapshot.resolve().parent.name)
    checkpoints = None if fresh else folder
    return Lineage(
        checkpoints=checkpoints, code=code, code_run=code_run, resubmitted_from=run.run_id
    )
