"""The names of submitit and of Hydra's launcher for it, as parameters of ``hpcrun.Executor``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.batch.sbatch_input import gpus_in


def _number(value: Any) -> Any:
    if type(value) not in (int, float):
        raise ValueError("is not a number")
    return value


def _directives(values: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ValueError("is not a mapping")
    return {name.replace("_", "-"): value for name, value in values.items()}


def _mapping(sbatch: Any) -> dict[str, Any]:
    """Return the parameter ``sbatch`` as a mapping: it may be a list or one text, too."""
    if isinstance(sbatch, Mapping):
        return dict(sbatch)
    items = [sbatch] if isinstance(sbatch, str) else sbatch or ()
    values = {}
    for item in items:
        key, equals, value = item.partition("=")
        values[key] = value if equals else None
    return values


_RENAMED: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "timeout_min": ("time", _number),
    "mem_gb": ("mem", lambda value: f"{round(_number(value) * 1024)}M"),
    "signal_delay_s": ("warn", lambda value: f"{_number(value)}s"),
    "max_num_timeout": ("requeue", _number),
    "srun_args": ("srun", lambda items: [item.removeprefix("--") for item in items]),
}
"""Name → the Executor's name for it, and its value there."""
_DIRECTIVES = ("comment", "exclusive", "gres", "mem_per_cpu", "mem_per_gpu", "wckey")
"""Names of directives for which the Executor has only ``sbatch={...}``."""
_NO_EFFECT = {
    "submitit_folder": "the files of a job are in the folder of its run",
    "use_srun": "srun starts the tasks",
    "wait_for_completion": "Hydra waits for the jobs",
}
NAMES = (*_RENAMED, *_DIRECTIVES, *_NO_EFFECT, "additional_parameters", "gpus_per_task")
"""The names that the Executor does not have itself."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of the Executor, and notes on names that differ or have no effect."""

    values: dict[str, Any]
    notes: tuple[str, ...]


def read_names(given: Mapping[str, Any], before: Mapping[str, Any]) -> Parameters:
    """Return parameters by the names of the Executor.

    The Executor's own name overrides a name of submitit that means the same.

    Args:
        given: parameters by the names of submitit and of the Executor.
        before: the parameters that the Executor has already.

    Raises:
        UsageError: a value is of the wrong type.
    """
    values: dict[str, Any] = {}
    directives: dict[str, Any] = {}
    notes = []
    for name, value in given.items():
        if name in _RENAMED:
            parameter, convert = _RENAMED[name]
            values[parameter] = None if value is None else _convert(name, value, convert)
        elif name not in NAMES or value in (None, False):
            continue
        elif name in _NO_EFFECT:
            notes.append(f"{name} has no effect: {_NO_EFFECT[name]}")
        elif name == "gpus_per_task":
            tasks = _tasks_per_node(given, before)
            values["gpus_per_node"] = _convert(name, value, _number) * tasks
            notes.append("gpus_per_task: each task sees all GPUs of its node, and has LOCAL_RANK")
        elif name == "gres" and gpus_in("gres", str(value)):
            values["gpus_per_node"] = str(value).removeprefix("gpu").removeprefix(":") or 1
        elif name == "additional_parameters":
            directives |= _convert(name, value, _directives)
        else:
            directives[name.replace("_", "-")] = value
    values |= {name: value for name, value in given.items() if name not in NAMES}
    if directives:
        values["sbatch"] = _sbatch(directives, given, before)
    return Parameters(values, tuple(notes))


def _tasks_per_node(given: Mapping[str, Any], before: Mapping[str, Any]) -> int:
    """Return the tasks of each node.

    Raises:
        UsageError: this is no number.
    """
    tasks = given.get("tasks_per_node") or before.get("tasks_per_node") or 1
    number: int = _convert("tasks_per_node", tasks, int)
    return number


def _sbatch(
    directives: dict[str, Any], given: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameter ``sbatch`` with these directives.

    A given ``sbatch`` overrides the directives; the Executor's own does not.
    """
    if "sbatch" in given:
        overriding: dict[str, Any] = _convert("sbatch", given["sbatch"], _mapping)
        return directives | overriding
    return _mapping(before.get("sbatch")) | directives


def _convert(name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a value as the parameter of the Executor has it.

    Raises:
        UsageError: the value is of the wrong type.
    """
    try:
        return convert(value)
    except (AttributeError, TypeError, ValueError) as error:
        raise UsageError(f"{name}={value!r}: {error}") from None
