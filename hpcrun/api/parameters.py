"""The parameters of an Executor: those of ``hpcrun submit``, as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from hpcrun.errors import UsageError, nearest
from hpcrun.job.request import JobRequest, learn_secrets
from hpcrun.job.secret_hider import HIDER

_FIELDS = {"time": "walltime_s", "mem": "memory_mb", "warn": "warn_s", "tasks_per_node": "nproc_per_node",
           "cancel_idle": "cancel_idle_s"}  # fmt: skip
"""Parameter → field of the request, where a person writes it otherwise."""
_SPELLED = {field: name for name, field in _FIELDS.items()}
# what runs is the function, with this very Python, and one process for each task
_NOT_ASKED = {"script", "args", "module", "launcher", "torchrun", "uv"}
_OWN = ("profile", "array_parallelism", "stderr_to_stdout")
# hpcrun submit reads these as text, with a unit or without
_TEXTS = {"gpus", "gpus_per_node", "walltime_s", "memory_mb", "warn_s", "cancel_idle_s"}
_LISTS = {"sbatch", "no_sbatch", "srun", "load", "setup", "secrets", "snapshot_include", "notify"}


def names() -> list[str]:
    """Return the parameters there are."""
    return sorted(
        {_SPELLED.get(field, field) for field in JobRequest.model_fields if field not in _NOT_ASKED} | {*_OWN}
    )


def check_names(values: Mapping[str, Any]) -> None:
    """Refuse a parameter that there is not.

    Raises:
        UsageError: with the nearest name.
    """
    for name in values:
        if name not in names():
            close = nearest(name, names())
            raise UsageError(
                f"Executor has no parameter {name!r}",
                hint=f"did you mean {close!r}?" if close else f"there are: {', '.join(names())}",
            )


def fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as fields of the request, without the parameters that are the Executor's own."""
    request = {
        _FIELDS.get(name, name): value for name, value in values.items() if name not in _OWN and value is not None
    }
    return {field: _as_typed(field, value) for field, value in request.items()}


def array_parallelism(values: Mapping[str, Any]) -> int | None:
    """Return how many elements of an array may run at a time, None for any number.

    Raises:
        UsageError: it is no such number.
    """
    value = values.get("array_parallelism")
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise UsageError(f"array_parallelism={value!r}: is not a number of elements; write 1 or more")


def stderr_to_stdout(values: Mapping[str, Any]) -> bool:
    """Return whether the tasks write stderr into the log of stdout.

    Raises:
        UsageError: the value is neither True nor False.
    """
    value = values.get("stderr_to_stdout")
    if value is None or isinstance(value, bool):
        return bool(value)
    raise UsageError(f"stderr_to_stdout={value!r}: write True or False")


def read_function_request(fields: dict[str, Any]) -> JobRequest:
    """Build the request.

    Raises:
        UsageError: a value cannot be read; the message names the parameter.
    """
    try:
        return JobRequest(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        detail = first["msg"].removeprefix("Value error, ")
        is_text = field not in ("env", "notify")  # these may be secrets
        given = repr(fields.get(field)) if is_text else "..."
        learn_secrets(fields)
        raise UsageError(
            HIDER.hide(f"{_SPELLED.get(field, field)}={given}: {detail[0].lower()}{detail[1:]}"),
            hint="the parameters of an Executor are the options of hpcrun submit, in Python's spelling",
        ) from None


def _as_typed(field: str, value: Any) -> Any:
    """Return a value as it would be typed: 240 minutes, 64 MB and 4 GPUs are numbers in Python."""
    if field in _TEXTS and isinstance(value, int) and not isinstance(value, bool):
        return f"{value}m" if field == "walltime_s" else str(value)
    if field == "env" and isinstance(value, Mapping):
        return [f"{name}={content}" for name, content in value.items()]
    if field in ("sbatch", "srun") and isinstance(value, Mapping):
        return [key if content in (None, True) else f"{key}={content}" for key, content in value.items()]
    if field in _LISTS and isinstance(value, str):
        return [value]
    return value
