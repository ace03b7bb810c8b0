"""``hpcrun.Executor``: submitit's executor, with hpcrun's profiles, scripts and run folders.

Its parameters are the options of ``hpcrun submit``, as Python values.
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
from submitit.core import core
from submitit.core.utils import DelayedSubmission

from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.jobs.submission import JobArray, changed_job, submit
from hpcrun.api.executor_parameters import ChangedParameters, ExecutorParameters
from hpcrun.api.function_job import FunctionJob
from hpcrun.api.own_parameters import OwnParameters, show_parameters
from hpcrun.api.python_spelling import as_parameter, as_parameter_of_submitit, in_python
from hpcrun.api.submitit_names import NAMES, read_names
from hpcrun.cli.context import Context, make_context
from hpcrun.errors import UsageError, did_you_mean
from hpcrun.in_job import hpcrun_function
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.job_request import JOB_FIELDS, JobRequest
from hpcrun.job.request.node_choice import choice_of
from hpcrun.job.request.read_options import read_values
from hpcrun.job.request.read_request import learn_secrets
from hpcrun.job.run_paths import WITHIN
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.quoting import job_name_from
from hpcrun.profiles.load import load_profile

if TYPE_CHECKING:
    from typing_extensions import Unpack

PROGRAM = "hpcrun_function"
"""The module that every task runs; below the run's folder, in ``programs/runtime/``."""
_IN_PYTHON = {field: option for field, option in JOB_FIELDS.items() if option.in_python}
_NAMES = {field: option.python_name or field for field, option in _IN_PYTHON.items()}
"""Field of the request → parameter."""
_FIELDS = {name: field for field, name in _NAMES.items()}
_OWN = ("profile", *OwnParameters.__annotations__)
_log = logging.getLogger("hpcrun")


class Executor(core.Executor):
    """Submits Python functions as jobs.

    An example::

        executor = hpcrun.Executor(profile="a100", gpus=4, time="4h")
        job = executor.submit(train, lr=1e-3)
        print(job.result())

    ``submit``, ``map_array``, ``submit_array`` and ``batch`` are submitit's own. Several calls are
    one array and one run.

    Args:
        profile: name of the profile; by default chosen as ``hpcrun submit`` does.
        **values: the options of ``hpcrun submit``, in Python's spelling: ``gpus="h100:4"``,
            ``time="4h"``, ``env={...}``, ``setup=[...]``, ``sbatch={...}`` ... ``docs/api.md``
            has all. submitit's names are known, too: ``timeout_min=240``, ``mem_gb=64`` ...

    Raises:
        UsageError: a parameter is misspelt, or its value cannot be read.
    """

    job_class = FunctionJob
    checkpoint_requeues = 0
    """How often a function with a ``checkpoint`` method is requeued if neither ``requeue`` nor the
    profile says it.
    """
    speller = staticmethod(as_parameter)
    """How messages spell parameters."""

    def __init__(self, profile: str | None = None, **values: Unpack[ExecutorParameters]) -> None:
        super().__init__(make_context(announce=None).store.root)
        self._internal_update_parameters(profile=profile, **values)

    def update_parameters(  # type: ignore[override]  # submitit's takes anything
        self, **values: Unpack[ChangedParameters]
    ) -> None:
        """Change parameters, for the calls that follow; None resets one."""
        super().update_parameters(**values)

    @in_python
    def _internal_update_parameters(self, **values: Any) -> None:
        check_names(values)
        named = read_names(values, self.parameters)
        together = {**self.parameters, **named.values}
        _read_request(_fields(together))
        _check_own(together)
        for note in named.notes:
            _log.warning(note)
        self.parameters.update(named.values)  # submitit.AutoExecutor shows this very dictionary

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(_names())

    @in_python
    def script(self, elements: int = 1) -> str:
        """Return the script that would be submitted, as ``hpcrun submit --dry-run`` prints it."""
        return self._prepare(make_context(announce=None), "function", elements).script

    @in_python
    def _internal_process_submissions(
        self, delayed_submissions: Sequence[DelayedSubmission]
    ) -> list[core.Job[Any]]:
        context = make_context(announce=None)
        name = _name(delayed_submissions[0].function)
        number = len(delayed_submissions)
        prepared = self._prepare(context, name, number)
        if self._requeues_checkpoints(prepared.plan, delayed_submissions):
            with suppress(UsageError):  # the time limit is too short for Slurm's warning
                prepared = self._prepare(context, name, number, requeue=self.checkpoint_requeues)
        plan = prepared.plan
        requeues = plan.requeue.times if plan.requeue else 0
        for note in (*context.surroundings.warnings, *plan.notes):
            _log.warning(note)
        for delayed in delayed_submissions:
            # submitit's number of time-outs; --requeue decides how often a job starts again
            delayed.set_timeout((plan.walltime_s or 0) // 60, requeues)
        result = submit(
            prepared,
            context.ports,
            context.surroundings,
            files={str(WITHIN.calls): _archive(delayed_submissions)},
            array=self._array(plan, number),
        )
        if result.remarks:
            _log.warning(result.remarks)
        jobs: list[core.Job[Any]] = []
        for index in range(number):
            job_id = str(result.run.job_id)
            if number > 1:
                job_id += f"_{index}"
            job = FunctionJob.of_run(
                result.folder,
                job_id,
                plan.shape.world_size,
                index=index,
                keeps_trying=requeues > 0,
            )
            jobs.append(job)
        return jobs

    def _array(self, plan: Plan, number: int) -> JobArray:
        at_once = self.parameters.get("array_parallelism")
        if not at_once:
            at_once = 1 if plan.local_gpus else number  # a call takes all GPUs
        elements = range(number) if number > 1 else ()
        return JobArray(tuple(elements), at_once)

    def _requeues_checkpoints(self, plan: Plan, calls: Sequence[DelayedSubmission]) -> bool:
        if not self.checkpoint_requeues or self.parameters.get("requeue") is not None:
            return False
        if plan.requeue and plan.requeue.times:
            return False
        return any(_has_checkpoint(call.function) for call in calls)

    def _prepare(self, context: Context, name: str, elements: int, **defaults: Any) -> Prepared:
        """Decide everything about a job that runs functions, one task each as srun starts them.

        Several functions are an array.

        Raises:
            UsageError: the folder of ``workdir`` does not exist, or a local profile cannot start
                several tasks on a node; or, like the errors below, the job is not possible.
            ProfileError: the job is not possible; the hint says what to change.
            PlanError: the job is not possible; the hint says what to change.
        """
        surroundings = context.surroundings
        profile = context.profile_name(self.parameters.get("profile"))
        fields = {"name": name, **_python(context), **_fields(self.parameters), **defaults}
        if self.parameters.get("stderr_to_stdout"):
            fields["env"] = [*fields.get("env", ()), f"{hpcrun_function.STDERR_TO_STDOUT}=1"]
        if "workdir" in fields:
            folder = context.cwd / os.path.expanduser(fields["workdir"])
            if not folder.is_dir():
                raise UsageError(f"workdir: there is no folder {folder}")
            fields["workdir"] = str(folder)
        request = _read_request(fields)
        loaded = load_profile(profile, surroundings.profile_folders)
        is_local = loaded.profile.scheduler == "local"
        tasks = request.nproc_per_node
        if is_local and tasks not in (None, 1):
            raise UsageError(
                f"tasks_per_node={tasks}: profile {profile!r} starts one task on each node",
                hint=f"on this machine nodes={tasks} starts as many tasks",
            )
        # explicit, since without a number there is one rank per GPU
        tasks = tasks or 1
        request = replace(request, launcher="python" if is_local else "srun", nproc_per_node=tasks)
        prepared = prepare(request, profile, surroundings, context.machine)
        if elements == 1 or is_local:
            return prepared
        array = f"0-{elements - 1}"
        at_once = self.parameters.get("array_parallelism")
        if at_once:
            array += f"%{at_once}"
        return changed_job(prepared, surroundings, {"array": array})


show_parameters(Executor.__init__, ExecutorParameters)
show_parameters(Executor.update_parameters, ChangedParameters)


class ExecutorOfSubmitit(Executor):
    """The Executor behind submitit's AutoExecutor."""

    checkpoint_requeues = 3  # submitit's max_num_timeout
    speller = staticmethod(as_parameter_of_submitit)


def _has_checkpoint(function: Callable[..., Any]) -> bool:
    return hasattr(function, "checkpoint") or hasattr(function, "__submitit_checkpoint__")


def _python(context: Context) -> dict[str, str]:
    """Return this Python, since no other version reads its pickles.

    The result is empty if this Python belongs to the active environment.
    """
    active = context.env.get("VIRTUAL_ENV") or context.env.get("CONDA_PREFIX")
    if active and Path(active).resolve() == Path(sys.prefix).resolve():
        return {}
    return {"python": sys.executable}


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # of a partial
    return job_name_from(getattr(inner, "__name__", type(inner).__name__))


def _archive(calls: Sequence[DelayedSubmission]) -> bytes:
    """Return a ZIP archive with each call, pickled, under its number."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for index, delayed in enumerate(calls):
            archive.writestr(str(index), _pickled(delayed))
    return buffer.getvalue()


def _pickled(delayed: DelayedSubmission) -> bytes:
    try:
        return bytes(cloudpickle.dumps(delayed, pickle.HIGHEST_PROTOCOL))
    except Exception as error:  # an object's own __reduce__ may raise anything
        name = _name(delayed.function)
        raise UsageError(
            f"{name} and its arguments cannot be pickled: {type(error).__name__}: {error}",
            hint="open files, locks and connections cannot be pickled: create them inside the "
            "function",
        ) from error


# --- parameters ----------------------------------------------------------------------------------


def _names() -> list[str]:
    return sorted((*_FIELDS, *_OWN, *NAMES))


def check_names(values: Mapping[str, Any]) -> None:
    """Refuse an unknown parameter.

    Raises:
        UsageError: a parameter is not known; the hint has the nearest name.
    """
    names = _names()
    for name in values:
        if name not in names:
            hint = did_you_mean(name, names, f"there are: {', '.join(names)}")
            raise UsageError(f"Executor has no parameter {name!r}", hint=hint)


def _check_own(values: Mapping[str, Any]) -> None:
    """Refuse wrong values of the parameters that are no options of ``hpcrun submit``.

    Raises:
        UsageError: a value is of the wrong type, or too small.
    """
    at_once = values.get("array_parallelism")
    if at_once is not None and (type(at_once) is not int or at_once < 1):
        raise UsageError(
            f"array_parallelism={at_once!r}: is not a number of elements; write 1 or more"
        )
    merged = values.get("stderr_to_stdout")
    if not isinstance(merged, bool | None):
        raise UsageError(f"stderr_to_stdout={merged!r}: write True or False")


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as fields of the request.

    The parameters that are the Executor's own are left out.
    """
    fields = {}
    for name, value in values.items():
        if name in _OWN or value is None:
            continue
        field = _FIELDS[name]
        fields[field] = _as_typed(field, value)
    return fields


def _as_typed(field: str, value: Any) -> Any:
    """Return a value as a user would type it.

    In Python, 240 minutes, 64 MB and 4 GPUs are numbers.
    """
    option = JOB_FIELDS[field]
    if isinstance(value, int) and not isinstance(value, bool) and option.python_number:
        return option.python_number.format(value)
    if isinstance(value, str) and option.repeatable:
        return [value]
    if isinstance(value, Mapping):
        if option.metavar == "NAME=VALUE":
            return [f"{name}={content}" for name, content in value.items()]
        if option.metavar == "KEY[=VALUE]":
            return [_key_and_value(key, content) for key, content in value.items()]
    return value


def _key_and_value(key: str, value: Any) -> str:
    if value is None or value is True:  # 1 == True
        return key
    return f"{key}={value}"


def _read_request(fields: Mapping[str, Any]) -> JobRequest:
    """Return the request of a job that runs functions.

    Raises:
        UsageError: a value cannot be read, the message names the value by its parameter; or Slurm
            is to choose the nodes.
    """
    values, mistakes = read_values(JOB_FIELDS, {**fields, "script": PROGRAM, "module": True})
    choice = choice_of(values.get("nodes"))
    if choice:
        raise UsageError(
            f"nodes={choice!r}: a function has a result for each task, and Slurm would choose "
            "their number",
            hint=f"nodes={int(values['nodes'])}",
        )
    if not mistakes:
        return JobRequest(**values)
    mistake = mistakes[0]
    name = _NAMES.get(mistake.field, mistake.field)
    value = repr(fields.get(mistake.field))
    if mistake.field in ("env", "notify"):  # these may be secrets
        value = "..."
    learn_secrets({**fields})
    raise UsageError(
        HIDER.hide(f"{name}={value}: {mistake.error}"),
        hint="the parameters of an Executor are the options of hpcrun submit, in Python's spelling",
    )
