"""How messages for programs in Python spell the options of a job: as parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from hpcrun.job.request.job_request import JOB_FIELDS
from hpcrun.job.text.spelling import spelled_by

Function = TypeVar("Function", bound=Callable[..., Any])
PREFIX = "hpcrun_"
SHARED = frozenset({"nodes", "cpus_per_task", "gpus_per_node", "tasks_per_node", "name"})
"""The parameters that submitit's AutoExecutor takes without the prefix."""
_INSTEAD = {
    "after": "sbatch={'dependency': ...}",
    "dry-run": "executor.script()",
    "json": "job.job_id",
    "max-parallel": "array_parallelism",
    "launcher": "(srun starts the tasks)",
    "output-dir": "HPCRUN_RUNS",
    "sweep": "executor.map_array()",
    "wait": "job.wait()",
}
"""What Python has for options that are no parameters."""
_FIELDS = {option.name[2:]: field for field, option in JOB_FIELDS.items() if option.in_python}


def as_parameter(name: str, value: object = None) -> str:
    """Return an option and its value, if there is one, as a parameter of ``hpcrun.Executor``."""
    if name in _INSTEAD:
        return _INSTEAD[name]
    field = _FIELDS.get(name)
    if field is None:
        return name if value is None else f"{name}={_literal(value)}"
    option = JOB_FIELDS[field]
    parameter = option.python_name or field
    if option.metavar is None:
        return f"{parameter}=True"
    if value is None:
        return parameter
    if "=VALUE" in option.metavar and not option.metavar.endswith("..."):
        key, equals, content = str(value).partition("=")
        return f"{parameter}={{{key!r}: {_literal(content) if equals else True}}}"
    text = _literal(value)
    return f"{parameter}=[{text}]" if option.repeatable else f"{parameter}={text}"


def as_parameter_of_submitit(name: str, value: object = None) -> str:
    """Return an option as a parameter of submitit's AutoExecutor."""
    text = as_parameter(name, value)
    is_shared = text.partition("=")[0] in SHARED
    return text if is_shared or name in _INSTEAD else PREFIX + text


def in_python(function: Function) -> Function:
    """Let the messages of a method spell options as parameters: by its object's ``speller``."""

    @wraps(function)
    def wrapper(owner: Any, *args: Any, **values: Any) -> Any:
        with spelled_by(getattr(owner, "speller", as_parameter)):
            return function(owner, *args, **values)

    return cast(Function, wrapper)


def _literal(value: object) -> str:
    """Return a number as it is, and another value as a text in quotes."""
    text = str(value).strip("'")
    return text if text.isdigit() or text == "N" else repr(text)
