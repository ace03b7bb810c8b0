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
from typing import Any

import cloudpickle
from submitit.core import core
from submitit.core.utils import DelayedSubmission

from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.jobs.submission import FunctionArray, changed_job, submit
from hpcrun.api.function_job import FunctionJob
from hpcrun.cli.context import Context, make_context
from hpcrun.errors import UsageError, did_you_mean
from hpcrun.in_job import hpcrun_function
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.job_request import JOB_FIELDS, JobRequest
from hpcrun.job.request.read_options import read_values
from hpcrun.job.request.read_request import learn_secrets
from hpcrun.job.run_paths import WITHIN
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.quoting import job_name_from
from hpcrun.profiles.load import load_profile

PROGRAM = "hpcrun_function"
"""The module that every task runs; below the run's folder, in ``programs/runtime/``."""
_NAMES = {
    field: option.python_name or field for field, option in JOB_FIELDS.items() if option.in_python
}
"""Field of the request → parameter."""
_FIELDS = {name: field for field, name in _NAMES.items()}
_OWN = ("profile", "array_parallelism", "stderr_to_stdout")
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
        tasks_per_node: processes on each node that call the function, 1 by default; see
            ``job.results()``.
        array_parallelism: how many elements of an array run at a time; by default as many as fit,
            and on this machine all, or one after the other where they use its GPUs.
        stderr_to_stdout: the tasks write stderr into the log of stdout.
        **said: the options of ``hpcrun submit``, in Python's spelling: ``gpus=4`` or ``"h100:4"``,
            ``nodes=2``, ``time="4h"``, ``mem="64G"``, ``env={...}``, ``setup=[...]``,
            ``sbatch={...}``, ``requeue=3`` ...

    Raises:
        UsageError: a parameter is misspelt, or its value cannot be read.
    """

    job_class = FunctionJob
    checkpoint_requeues = 0
    """How often a function with a ``checkpoint`` method is requeued if neither ``requeue`` nor the
    profile says it.
    """

    def __init__(self, profile: str | None = None, **values: Any) -> None:
        super().__init__(make_context(announce=None).store.root)
        self._internal_update_parameters(profile=profile, **values)

    def _internal_update_parameters(self, **values: Any) -> None:
        check_names(values)
        together = {**self.parameters, **values}
        _read_request(_fields(together))
        at_once = together.get("array_parallelism")
        merged = together.get("stderr_to_stdout")
        if at_once is not None and (type(at_once) is not int or at_once < 1):
            raise UsageError(
                f"array_parallelism={at_once!r}: is not a number of elements; write 1 or more"
            )
        if not isinstance(merged, bool | None):
            raise UsageError(f"stderr_to_stdout={merged!r}: write True or False")
        self.parameters.update(values)  # submitit.AutoExecutor shows this very dictionary

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(_names())

    def script(self, elements: int = 1) -> str:
        """Return the script that would be submitted, as ``hpcrun submit --dry-run`` prints it."""
        return self._prepare(make_context(announce=None), "function", elements).script

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
        plan, requeue = prepared.plan, prepared.plan.requeue
        for note in (*context.surroundings.warnings, *plan.notes):
            _log.warning(note)
        for delayed in delayed_submissions:
            # submitit's number of time-outs; --requeue decides how often a job starts again
            delayed.set_timeout((plan.walltime_s or 0) // 60, requeue.times if requeue else 0)
        calls = io.BytesIO()
        with zipfile.ZipFile(calls, "w") as archive:
            for index, delayed in enumerate(delayed_submissions):
                archive.writestr(str(index), _pickled(delayed))
        elements = range(number) if number > 1 else ()
        at_once = self.parameters.get("array_parallelism") or (
            1 if plan.local_gpus else number
        )  # a call takes all GPUs
        files = {str(WITHIN.calls): calls.getvalue()}
        result = submit(
            prepared,
            context.ports,
            context.surroundings,
            files=files,
            array=FunctionArray(tuple(elements), at_once),
        )
        if result.remarks:
            _log.warning(result.remarks)
        job_id, keeps_trying = str(result.run.job_id), requeue is not None and requeue.times > 0
        return [
            FunctionJob.of_run(
                result.folder,
                job_id if number == 1 else f"{job_id}_{index}",
                plan.shape.world_size,
                index=index,
                keeps_trying=keeps_trying,
            )
            for index in range(number)
        ]

    def _requeues_checkpoints(self, plan: Plan, calls: Sequence[DelayedSubmission]) -> bool:
        if not self.checkpoint_requeues or self.parameters.get("requeue") is not None:
            return False
        methods = ("checkpoint", "__submitit_checkpoint__")
        return not (plan.requeue and plan.requeue.times) and any(
            hasattr(call.function, method) for call in calls for method in methods
        )

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
        local = load_profile(profile, surroundings.profile_folders).profile.scheduler == "local"
        if local and request.nproc_per_node not in (None, 1):
            raise UsageError(
                f"tasks_per_node={request.nproc_per_node}: profile {profile!r} starts one task on "
                "each node",
                hint=f"on this machine nodes={request.nproc_per_node} starts as many tasks",
            )
        # explicit, since without a number there is one rank per GPU
        request = replace(
            request,
            launcher="python" if local else "srun",
            nproc_per_node=request.nproc_per_node or 1,
        )
        prepared = prepare(request, profile, surroundings, context.machine)
        if elements == 1 or local:
            return prepared
        at_once = self.parameters.get("array_parallelism")
        array = f"0-{elements - 1}" + (f"%{at_once}" if at_once else "")
        return changed_job(prepared, surroundings, {"array": array})


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
    return sorted((*_FIELDS, *_OWN))


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


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as fields of the request.

    The parameters that are the Executor's own are left out.
    """
    request = {
        _FIELDS[name]: value
        for name, value in values.items()
        if name not in _OWN and value is not None
    }
    return {field: _as_typed(field, value) for field, value in request.items()}


def _as_typed(field: str, value: Any) -> Any:
    """Return a value as a user would type it.

    In Python, 240 minutes, 64 MB and 4 GPUs are numbers.
    """
    option = JOB_FIELDS[field]
    if option.python_number and isinstance(value, int) and not isinstance(value, bool):
        return option.python_number.format(value)
    if isinstance(value, Mapping) and option.metavar == "NAME=VALUE":
        return [f"{name}={content}" for name, content in value.items()]
    if isinstance(value, Mapping) and option.metavar == "KEY[=VALUE]":
        return [
            key if content in (None, True) else f"{key}={content}" for key, content in value.items()
        ]
    if isinstance(value, str) and option.repeatable:
        return [value]
    return value


def _read_request(fields: Mapping[str, Any]) -> JobRequest:
    """Return the request of a job that runs functions.

    Raises:
        UsageError: a value cannot be read; the message names the value by its parameter.
    """
    values, mistakes = read_values(JOB_FIELDS, {**fields, "script": PROGRAM, "module": True})
    if not mistakes:
        return JobRequest(**values)
    field = mistakes[0].field
    # these may be secrets
    if field in ("env", "notify"):
        given = "..."
    else:
        given = repr(fields.get(field))
    learn_secrets({**fields})
    raise UsageError(
        HIDER.hide(f"{_NAMES.get(field, field)}={given}: {mistakes[0].error}"),
        hint="the parameters of an Executor are the options of hpcrun submit, in Python's spelling",
    )
