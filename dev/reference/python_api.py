"""The parameters of ``hpcrun.Executor``: their types, and the page of the functions for Python."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dev.reference import markdown
from hpcrun.api import executor, function_job, own_parameters, tables
from hpcrun.in_job import hpcrun_runtime
from hpcrun.job.request.job_request import JOB_FIELDS, JobRequest
from hpcrun.job.request.options import DeclaredOption
from hpcrun.profiles.key_docs import attribute_docs

_PATH = "str | PathLike[str]"
_OF_PATHS = ("PATH", "DIR", "IMAGE", "SRC[:NAME]")
_WIDTH = 96
_MOST_SHOWN = 5
_OF_SUBMITIT = {
    "submit": "Submit one call of a function; return its job.",
    "map_array": "Submit a call for each item, as `map()` does; return their jobs, of one array.",
    "submit_array": "Submit functions without arguments; return their jobs, of one array.",
    "batch": "Submit the calls inside the `with` block as one array, at its end.",
    "result": "Wait for the end; return the function's result in the first task.",
    "wait": "Wait for the end.",
    "task": "Return the job of one task.",
}
"""What the methods do that are submitit's own."""
_MODULE = '''\
"""The parameters of ``hpcrun.Executor``, with their types.

Generated: make golden, from the options of ``hpcrun submit``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from hpcrun.api.own_parameters import OwnParameters, SubmititParameters


class ExecutorParameters(OwnParameters, SubmititParameters, total=False):
    """The parameters beside ``profile``; None resets one."""

'''
_PROFILE = '''

class ChangedParameters(ExecutorParameters, total=False):
    """The parameters that an executor may change later."""

    profile: str | None
'''


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of the Executor."""

    name: str
    type: str
    text: str
    option: str  # of ``hpcrun submit``
    panel: str


def parameters() -> Iterator[Parameter]:
    """Yield the parameters that are options of ``hpcrun submit``, in the order of its help."""
    for field, option in JOB_FIELDS.items():
        if option.in_python:
            yield Parameter(
                name=option.python_name or field,
                type=type_of(field, option),
                text=option.python_help or option.help.replace(" Repeatable.", ""),
                option=option.name,
                panel=option.panel.title or "",
            )


def type_of(field: str, option: DeclaredOption) -> str:
    """Return the type of the values that the Executor takes for an option."""
    kept = JobRequest.__annotations__[field].removesuffix(" | None")
    text = _PATH if option.metavar in _OF_PATHS else "str"
    if option.kind is bool:
        return "bool"
    if "=VALUE" in (option.metavar or "") and not str(option.metavar).endswith("..."):
        return f"Mapping[str, Any] | Sequence[{text}] | str"
    if kept.startswith("tuple[int"):
        return "Sequence[int] | str"
    if kept.startswith("tuple"):
        return f"Sequence[{text}] | str"
    if option.kind is int:
        return "int"
    if kept in ("int", "GpuCount") and _reads_numbers(option):
        return "int | str"
    return text


def _reads_numbers(option: DeclaredOption) -> bool:
    """Return whether an option takes a number in Python; a time may need a unit."""
    try:
        option.read((option.python_number or "{}").format(30))
    except ValueError:
        return False
    return True


# --- the module ---


def module() -> str:
    """Return the module with the types of the parameters, for editors and mypy."""
    lines = []
    panel = ""
    for parameter in parameters():
        if parameter.panel != panel:
            panel = parameter.panel
            lines.append(f"    # {panel}")
        lines.append(f"    {parameter.name}: {parameter.type} | None")
        lines += _docstring(parameter.text)
    return _MODULE + "\n".join(lines) + "\n" + _PROFILE


def _docstring(text: str) -> list[str]:
    lines = textwrap.wrap(f'"""{text}', _WIDTH, break_long_words=False, break_on_hyphens=False)
    if len(lines) == 1 and len(lines[0]) + 3 <= _WIDTH:
        return [f'    {lines[0]}"""']
    return [*(f"    {line}" for line in lines), '    """']


# --- the page ---


def page() -> str:
    """Return the page of what Python programs may use."""
    lines = markdown.head("Python reference")
    lines += ["[From Python](python.md) shows how these are used.", "", "## hpcrun.Executor", ""]
    rows = [("`profile`", "`str`", "", "The profile, by default chosen as `hpcrun submit` does.")]
    for each in parameters():
        rows.append(
            (
                f"`{each.name}`",
                markdown.code(each.type),
                f"`{each.option}`",
                markdown.plain(each.text),
            )
        )
    rows += _typed_rows(own_parameters.OwnParameters)
    lines += markdown.table(["parameter", "type", "option", "meaning"], rows)
    lines += ["### Names of submitit", ""]
    cells = [
        (name, kind, text) for name, kind, _, text in _typed_rows(own_parameters.SubmititParameters)
    ]
    lines += markdown.table(["parameter", "type", "meaning"], cells)
    lines += ["### Methods", ""]
    names = ["submit", "map_array", "submit_array", "batch", "update_parameters", "script"]
    lines += _functions([getattr(executor.Executor, name) for name in names])
    lines += ["## The job that submit returns", ""]
    names = ["result", "results", "exception", "done", "wait", "cancel", "task", "run_id", "state"]
    lines += _functions([getattr(function_job.FunctionJob, name) for name in names])
    lines += ["## Runs as tables", ""]
    lines += _functions([tables.read_status, tables.read_metrics])
    lines += ["## hpcrun_runtime, in every job", ""]
    runtime = [
        function
        for name, function in inspect.getmembers(hpcrun_runtime, inspect.isfunction)
        if not name.startswith("_") and function.__module__ == hpcrun_runtime.__name__
    ]
    lines += _functions(runtime)
    return "\n".join(lines)


def _typed_rows(typed: type) -> list[tuple[str, str, str, str]]:
    docs = attribute_docs(typed)
    rows = []
    for name, annotation in typed.__annotations__.items():
        kind = annotation.__forward_arg__.removesuffix(" | None")
        rows.append((f"`{name}`", markdown.code(kind), "", markdown.plain(docs[name])))
    return rows


def _functions(members: list[Any]) -> list[str]:
    rows = []
    for member in members:
        function: Any = member.fget if isinstance(member, property) else member
        signature = "" if isinstance(member, property) else _signature(function)
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("``", "`")
        if function.__module__.startswith("submitit."):
            summary = _OF_SUBMITIT[function.__name__]
        rows.append((markdown.code(f"{function.__name__}{signature}"), markdown.plain(summary)))
    return markdown.table(["", ""], rows)


def _signature(function: Callable[..., Any]) -> str:
    """Return the parameters of a function without their types and without ``self``."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    if len(parameters) > _MOST_SHOWN:
        return "(...)"
    return str(inspect.Signature(parameters))
