"""A request as the ``hpcrun submit`` line that asks for the same. Pure: no I/O."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.parameters import Parameters, cross
from hpcrun.job.request import JobRequest, option_of, option_text
from hpcrun.job.secrets import MASK

_PROGRAM = ("script", "args", "module")
_SWEEP = ("sweep", "sweep_file", "max_parallel", "elements")
Words = tuple[str, ...]


def option_groups(request: Mapping[str, Any], profile: str) -> list[Words]:
    """Return the words of a request's options, those of each option together; the sweep's as far as options can say it.

    The request is as a run's record has it: only what was given. The profile is a name or a file.
    """
    groups: list[Words] = [("--profile", profile)]
    for field in JobRequest.model_fields:
        if field in request and field not in _PROGRAM:
            groups += [words for words in _option(field, request[field]) if words]
    return groups


def program_words(request: Mapping[str, Any]) -> Words:
    """Return the program of a request and its arguments, as they stand behind the options."""
    return (*(("-m",) if request.get("module") else ()), request["script"], *request.get("args", ()))


def editable_line(request: Mapping[str, Any], profile: str, head: Sequence[str]) -> str:
    """Return the line of a request for an editor: each option on a line of its own, below a head of comments."""
    lines = (" ".join(map(shlex.quote, words)) for words in option_groups(request, profile))
    program = " ".join(map(shlex.quote, program_words(request)))
    # a folder's name may have a line end, and must not become a command
    comments = (f"# {' '.join(line.splitlines())}" for line in head)
    return "".join(
        f"{line}\n" for line in (*comments, "hpcrun submit", *(f"  {line}" for line in lines), f"  {program}")
    )


def with_remark(text: str, remark: str) -> str:
    """Return an edited text with a remark as a comment at its top, in place of the one before."""
    mark = "# ERROR: "
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(mark)]
    return "".join(f"{mark}{line}\n" for line in remark.splitlines()) + "".join(kept)


def read_edited_line(text: str) -> Words:
    """Return the words behind ``hpcrun submit`` of an edited text; empty if only comments are left.

    Quotes are a shell's, nothing is expanded, line ends separate words. Lines that begin with # are comments.
    """
    kept = ""
    for line in text.splitlines(keepends=True):
        if not (line.lstrip().startswith("#") and _split(kept) is not None):
            kept += line
    words = _split(kept)
    if words is None:
        raise UsageError("a quote is not closed", hint="write each ' and each \" twice, around a word")
    words = [item for item in words if item != "\n"]  # a backslash at the end of a line
    if words and words[:2] != ["hpcrun", "submit"]:
        raise UsageError(f"the command begins with {' '.join(words[:2])!r}", hint="it begins with: hpcrun submit")
    return tuple(words[2:])


def _split(text: str) -> list[str] | None:
    try:
        return shlex.split(text)
    except ValueError:
        return None


def of_one_element(request: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the request of one element of a sweep, with its arguments, as that of a plain job."""
    return {**{name: value for name, value in request.items() if name not in _SWEEP}, "args": tuple(arguments)}


def with_named_secrets(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded request in which masked variables are named with ``--secret``: its line has no values."""
    env = request.get("env", ())
    masked = [name for name, value in env if value == MASK]
    if not masked:
        return dict(request)
    kept = [(name, value) for name, value in env if value != MASK]
    return {**request, "env": kept, "secrets": list(dict.fromkeys((*request.get("secrets", ()), *masked)))}


def sweep_options(rows: Sequence[Parameters]) -> list[Words] | None:
    """Return the ``--sweep`` options whose product is these rows; None where only a file can say them."""
    columns: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row:
            columns.setdefault(name, [])
            if value not in columns[name]:
                columns[name].append(value)
    plain = all(value and "," not in value for values in columns.values() for value in values)
    if (
        not plain
        or prod(map(len, columns.values())) != len(rows)
        or cross(columns) != tuple(tuple(map(tuple, row)) for row in rows)
    ):
        return None
    return [("--sweep", f"{name}={','.join(values)}") for name, values in columns.items()]


def _option(field: str, value: Any) -> Iterator[Words]:
    option = option_of(field)
    if field == "sweep":
        yield from sweep_options(value) or ()
    elif isinstance(value, bool) or field == "preflight":
        yield (option,) if value else ()
    elif field == "env":
        yield from ((option, f"{name}={text}") for name, text in value)
    elif isinstance(text := option_text(field, value), list | tuple):
        yield from ((option, item) for item in text)
    elif value is not None:
        yield (option, text)
