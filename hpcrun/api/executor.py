"""``hpcrun.Executor``: submitit's executor, with hpcrun's profiles, scripts and run folders."""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import cloudpickle
from submitit.core import core
from submitit.core.utils import DelayedSubmission

from hpcrun import hpcrun_function
from hpcrun.actions.jobs.callables import function_files, function_request, prepare_functions
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submit import Array, SubmitResult, submit
from hpcrun.api import parameters
from hpcrun.api.job import FunctionJob
from hpcrun.cli.context import Context, make_context
from hpcrun.errors import UsageError
from hpcrun.job.plan import Plan
from hpcrun.job.quoting import job_name_from

_log = logging.getLogger("hpcrun")


class Executor(core.Executor):
    """Submits Python functions as jobs::

        executor = hpcrun.Executor(profile="a100", gpus=4, time="4h")
        job = executor.submit(train, lr=1e-3)
        print(job.result())

    ``submit``, ``map_array``, ``submit_array`` and ``batch`` are submitit's own. Several calls are one
    array and one run.

    Args:
        profile: name of the profile; chosen as ``hpcrun submit`` chooses where it is not said.
        tasks_per_node: processes on each node that call the function, 1 by default; see ``job.results()``.
        array_parallelism: how many elements of an array run at a time; by default as many as fit, and on this machine
            all, or one after the other where they use its GPUs.
        stderr_to_stdout: the tasks write stderr into the log of stdout.
        **said: the options of ``hpcrun submit``, in Python's spelling: ``gpus=4`` or ``"h100:4"``, ``nodes=2``,
            ``time="4h"``, ``mem="64G"``, ``env={...}``, ``setup=[...]``, ``sbatch={...}``, ``requeue=3`` ...

    Raises:
        UsageError: a parameter is misspelt, or its value cannot be read.
    """

    job_class = FunctionJob
    checkpoint_requeues = 0
    """How often a function with a ``checkpoint`` method is requeued if neither ``requeue`` nor the profile says it."""

    def __init__(self, profile: str | None = None, **values: Any) -> None:
        super().__init__(make_context(announce=None).store.root)
        self._internal_update_parameters(profile=profile, **values)

    def _internal_update_parameters(self, **values: Any) -> None:
        parameters.check_names(values)
        together = {**self.parameters, **values}
        function_request(parameters.fields(together), parameters.read_function_request)
        parameters.array_parallelism(together)
        parameters.stderr_to_stdout(together)
        self.parameters.update(values)  # submitit.AutoExecutor shows this very dictionary

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(parameters.names())

    def script(self, elements: int = 1) -> str:
        """Return the script that would be submitted, as ``hpcrun submit --dry-run`` prints it.

        Raises:
            UsageError, ProfileError, PlanError: as ``submit``.
        """
        return self._prepare(make_context(announce=None), "function", elements).script.text

    def _internal_process_submissions(self, delayed_submissions: Sequence[DelayedSubmission]) -> list[core.Job[Any]]:
        context = make_context(announce=None)
        name = _name(delayed_submissions[0].function)
        prepared = self._prepare(context, name, len(delayed_submissions))
        if self._requeues_checkpoints(prepared.plan, delayed_submissions):
            with suppress(UsageError):  # its time limit is too short for Slurm's warning
                prepared = self._prepare(context, name, len(delayed_submissions), requeue=self.checkpoint_requeues)
        for note in (*context.surroundings.warnings, *prepared.plan.notes):
            _log.warning(note)
        requeue = prepared.plan.requeue
        for delayed in delayed_submissions:
            # submitit's count of time-outs; how often a job starts again is --requeue's to say
            delayed.set_timeout((prepared.plan.walltime_s or 0) // 60, requeue.times if requeue else 0)
        calls = [_pickled(delayed) for delayed in delayed_submissions]
        return self._submit_calls(context, prepared, calls)

    def _requeues_checkpoints(self, plan: Plan, calls: Sequence[DelayedSubmission]) -> bool:
        if not self.checkpoint_requeues or self.parameters.get("requeue") is not None:
            return False
        return not (plan.requeue and plan.requeue.times) and any(map(_has_checkpoint, calls))

    def _prepare(self, context: Context, name: str, elements: int, **defaults: Any) -> Prepared:
        surroundings = context.surroundings
        profile = context.profile_name(self.parameters.get("profile"))
        fields = {"name": name, **_python(context), **parameters.fields(self.parameters), **defaults}
        if parameters.stderr_to_stdout(self.parameters):
            fields["env"] = [*fields.get("env", ()), f"{hpcrun_function.STDERR_TO_STDOUT}=1"]
        if "workdir" in fields:
            fields["workdir"] = _folder(context.cwd / Path(fields["workdir"]).expanduser())
        return prepare_functions(
            function_request(fields, parameters.read_function_request),
            profile,
            surroundings,
            context.machine,
            elements=elements,
            at_once=parameters.array_parallelism(self.parameters),
        )

    def _submit_calls(self, context: Context, prepared: Prepared, calls: Sequence[bytes]) -> list[core.Job[Any]]:
        result = submit(
            prepared,
            context.ports,
            context.surroundings,
            files=function_files(calls),
            array=self._local_array(prepared, len(calls)),
        )
        if result.remarks:
            _log.warning(result.remarks)
        return [_job(result, index, of=len(calls)) for index in range(len(calls))]

    def _local_array(self, prepared: Prepared, calls: int) -> Array | None:
        """Return what this machine's scheduler is told of an array; to Slurm the script's directive says it."""
        if prepared.plan.scheduler != "local" or calls == 1:
            return None
        # each call takes all GPUs of the plan
        default = 1 if prepared.plan.local_gpus else calls
        return Array(tuple(range(calls)), parameters.array_parallelism(self.parameters) or default)


def _job(result: SubmitResult, index: int, *, of: int) -> core.Job[Any]:
    job_id = str(result.run.job_id)
    plan = result.prepared.plan
    return FunctionJob.of_run(
        result.folder,
        result.run.scheduler,
        job_id if of == 1 else f"{job_id}_{index}",
        plan.shape.world_size,
        index=index,
        keeps_trying=plan.requeue is not None and plan.requeue.times > 0,
    )


def _python(context: Context) -> dict[str, str]:
    """Return this very Python, whose pickles no other version reads; nothing where it is the active environment's."""
    active = context.env.get("VIRTUAL_ENV") or context.env.get("CONDA_PREFIX")
    if active and Path(active).resolve() == Path(sys.prefix).resolve():
        return {}
    return {"python": sys.executable}


def _folder(path: Path) -> str:
    if not path.is_dir():
        raise UsageError(f"workdir: there is no folder {path}")
    return str(path)


def _has_checkpoint(call: DelayedSubmission) -> bool:
    return any(hasattr(call.function, name) for name in ("checkpoint", "__submitit_checkpoint__"))


def _name(function: Callable[..., Any]) -> str:
    inner = getattr(function, "func", function)  # of a partial
    return job_name_from(getattr(inner, "__name__", type(inner).__name__))


def _pickled(delayed: DelayedSubmission) -> bytes:
    try:
        return bytes(cloudpickle.dumps(delayed, pickle.HIGHEST_PROTOCOL))
    except Exception as error:  # whatever an object's own __reduce__ raises
        name = _name(delayed.function)
        raise UsageError(
            f"{name} and its arguments cannot be pickled: {type(error).__name__}: {error}",
            hint="open files, locks and connections cannot be pickled: create them inside the function",
        ) from error
