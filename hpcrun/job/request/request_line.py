"""A request as a command line, for editors, messages and pages; and reading an edited line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hpcrun.errors import UsageError
from hpcrun.job.request.job_request import JOB_FIELDS
from hpcrun.job.request.option_values import sweep_product
from hpcrun.job.request.parameters import Parameters
from hpcrun.job.request.role_options import role_words
from hpcrun.job.text.recognise_secrets import MASK

_PROGRAM = ("script", "args", "module")
_GPUS = ("gpus", "gpus_per_node")
_SWEEP = ("sweep", "sweep_file", "array", "max_parallel", "pack", "pack_memory", "elements")
Words = tuple[str, ...]


def option_groups(request: Mapping[str, Any], profile: str) -> list[Words]:
    """Return the words of a request's options, with the words of each option together.

    The options of a sweep go as far as options can say the sweep. The request is as a run's record
    has it: only what was given. The profile is a name or a file.
    """
    groups: list[Words] = [("--profile", profile)]
    for field in JOB_FIELDS:
        if field in request and field not in (*_PROGRAM, "roles"):
            groups += [words for words in _option(field, request[field]) if words]
    return groups


def program_words(request: Mapping[str, Any]) -> Words:
    """Return the program of a request and its arguments, as they stand behind the options."""
    if request.get("wrap"):
        return ()  # an option has it
    words: list[str] = []
    for role in request.get("roles", ()):
        words += role_words(role)
    if request.get("module"):
        words.append("-m")
    return (*words, request["script"], *request.get("args", ()))


def editable_line(request: Mapping[str, Any], profile: str, head: Sequence[str]) -> str:
    """Return the line of a request for an editor: each option on a line of its own.

    The lines come below a head of comments.
    """
    # a folder's name may have a line end, and must not become a command
    lines = [f"# {' '.join(line.splitlines())}" for line in head]
    lines.append("hpcrun submit")
    for words in (*option_groups(request, profile), program_words(request)):
        lines.append(f"  {shlex.join(words)}")
    return "".join(f"{line}\n" for line in lines)


def with_remark(text: str, remark: str) -> str:
    """Return an edited text with a remark as a comment at its top, in place of the one before."""
    mark = "# ERROR: "
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(mark)]
    marked = [f"{mark}{line}\n" for line in remark.splitlines()]
    return "".join((*marked, *kept))


def read_edited_line(text: str) -> Words:
    """Return the words behind ``hpcrun submit`` of an edited text.

    The result is empty if only comments are left. Quotes are a shell's, nothing is expanded, and
    line ends separate words. Lines that begin with # are comments.

    Raises:
        UsageError: a quote is not closed, or the command does not begin with ``hpcrun submit``.
    """
    kept = ""
    for line in text.splitlines(keepends=True):
        is_comment = line.lstrip().startswith("#") and _split(kept) is not None
        if not is_comment:
            kept += line
    words = _split(kept)
    if words is None:
        raise UsageError(
            "a quote is not closed", hint="write each ' and each \" twice, around a word"
        )
    words = [item for item in words if item != "\n"]  # a backslash at the end of a line
    if words and words[:2] != ["hpcrun", "submit"]:
        raise UsageError(
            f"the command begins with {' '.join(words[:2])!r}", hint="it begins with: hpcrun submit"
        )
    return tuple(words[2:])


def _split(text: str) -> list[str] | None:
    try:
        return shlex.split(text)
    except ValueError:
        return None


def of_one_element(request: Mapping[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Return the request of one element of a sweep, with its arguments, as that of a plain job."""
    plain = {name: value for name, value in request.items() if name not in _SWEEP}
    plain["args"] = tuple(arguments)
    if request.get("pack"):  # an element is one process, on one of the GPUs
        plain["launcher"] = request.get("launcher") or "python"
        for name in _GPUS:
            gpus = plain.get(name)
            if gpus:
                plain[name] = {**gpus, "count": min(1, gpus["count"])}
    return plain


def with_named_secrets(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a recorded request in which masked variables are named with ``--secret``.

    The line of the request has no values of these variables.
    """
    env = request.get("env", ())
    masked = [name for name, value in env if value == MASK]
    if not masked:
        return dict(request)
    kept = [(name, value) for name, value in env if value != MASK]
    secrets = dict.fromkeys((*request.get("secrets", ()), *masked))
    return {**request, "env": kept, "secrets": list(secrets)}


def sweep_options(rows: Sequence[Parameters]) -> list[Words] | None:
    """Return the ``--sweep`` options whose product is these rows.

    The result is None if only a file can say the rows.
    """
    texts = sweep_product(rows)
    if texts is None:
        return None
    return [("--sweep", text) for text in texts]


def _option(field: str, value: Any) -> Iterator[Words]:
    option = JOB_FIELDS[field]
    if value is None:
        return
    if option.kind is bool:
        if value:
            yield (option.name,)
        return
    texts = option.write(option.read(value))
    if isinstance(texts, str):
        texts = [texts]
    for text in texts:
        yield (option.name, text)
