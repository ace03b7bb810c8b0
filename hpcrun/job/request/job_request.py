"""The user's request, as typed: the options of ``hpcrun submit`` in one frozen model.

The module also writes a request as a line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SkipValidation,
    ValidationError,
)

from hpcrun.errors import UsageError
from hpcrun.job.request.notify_options import check_destination, check_events
from hpcrun.job.request.parameters import Parameters, cross, parse_assignments, parse_indices
from hpcrun.job.request.role_options import RoleRequest, role_words, split_roles
from hpcrun.job.text.hide_secrets import HIDER, SecretHider
from hpcrun.job.text.quoting import check_env_name, check_job_name, check_mount
from hpcrun.job.text.recognise_secrets import (
    MASK,
    is_secret,
    secret_arguments,
    secret_in_command,
    secret_kind,
)
from hpcrun.job.text.units import (
    error_words,
    format_memory,
    format_time,
    index_ranges,
    parse_memory,
    parse_time,
    parse_walltime,
)

Launcher = Literal["torchrun", "srun", "python", "command", "ray"]
Preflight = Literal["first", "only"]
# the largest number of nodes, ranks or CPUs: more is a mistake, and Slurm counts nodes in 16 bits
MOST = 1_000_000
# Bytes that are not UTF-8 arrive as surrogates, which pydantic's own check of text refuses.
RawText = Annotated[str, SkipValidation]
_INSTEAD_OF_SECRET = (
    "export NAME=... where you submit, add --secret NAME, and use $NAME in "
    "--setup, or in bash -c 'PROGRAM \"$NAME\"'"
)
# In these fields secrets have their own rules, or they have no text from the user.
_APART = frozenset({"args", "env", "secrets", "setup", "sweep", "elements", "snapshot_include"})


class GpuCount(BaseModel):
    """A number of GPUs, optionally with a type: ``4`` or ``a100:4``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int = Field(ge=0)
    type: str | None = None

    @classmethod
    def parse(cls, text: str) -> GpuCount:
        """Read ``N`` or ``TYPE:N``, as Slurm's ``--gpus`` does.

        Raises:
            ValueError: the text has another form.
        """
        type_, colon, count = text.rpartition(":")
        if not re.fullmatch(r"\d{1,6}", count, re.ASCII) or (
            colon and not re.fullmatch(r"[\w.-]+", type_, re.ASCII)
        ):
            raise ValueError(f"{text!r} is not a number of GPUs; write 4 or a100:4")
        return cls(count=int(count), type=type_ or None)


def _from_text(parse: Callable[[str], object]) -> BeforeValidator:
    """Return the validator that reads a value as it was typed.

    A value from a record or from Python is no text.
    """
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


def _secret_name(name: str) -> str:
    if "=" in name:
        raise ValueError(
            f"takes a name, not {name.partition('=')[0]!r} and a value, which comes from your "
            "environment"
        )
    return check_env_name(name)


def _env_pair(item: Any) -> Any:
    if not isinstance(item, str):
        return item
    key, equals, content = item.partition("=")
    if not equals:  # do not repeat the text after a name: it may be a secret
        name = f"{key!r} has" if key.isidentifier() else "one variable has"
        raise ValueError(
            f"{name} no '='; write NAME=VALUE. What your shell exports reaches the job without "
            "--env"
        )
    return check_env_name(key), content


def _parameters(value: Any) -> Any:
    rows = tuple(value)
    if rows and isinstance(rows[0], str):
        return parse_assignments(rows)
    # as read from JSON: lists of pairs
    return tuple(tuple((name, text) for name, text in row) for row in rows)


Number = Annotated[int, Field(ge=1, le=MOST)]
Times = Annotated[int, Field(ge=0, le=1000)]
Named = Annotated[str, AfterValidator(_not_empty)]
Gpus = Annotated[GpuCount | None, _from_text(GpuCount.parse)]
Destination = Annotated[RawText, AfterValidator(check_destination)]
Mount = Annotated[str, AfterValidator(check_mount)]
Elements = Annotated[
    tuple[int, ...], _from_text(parse_indices), AfterValidator(lambda them: tuple(sorted({*them})))
]
_PREFLIGHTS = {True: "first", False: None}
PreflightOption = Annotated[
    Preflight | None, BeforeValidator(lambda value: _PREFLIGHTS.get(value, value))
]


class JobRequest(BaseModel):
    """The request: one field per option of ``hpcrun submit``.

    ``None`` and ``()`` mean that the option is not given.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: RawText
    args: tuple[RawText, ...] = ()
    module: bool = False

    gpus: Gpus = None
    gpus_per_node: Gpus = None
    nodes: Number | None = None
    nproc_per_node: Number | None = None
    cpus: Number | None = None
    cpus_per_task: Number | None = None
    cpus_per_gpu: Number | None = None
    memory_mb: Annotated[int | None, _from_text(parse_memory)] = None
    walltime_s: Annotated[int | None, _from_text(parse_walltime)] = None
    cancel_idle_s: Annotated[
        int | None, _from_text(lambda text: 0 if text == "0" else parse_time(text))
    ] = Field(default=None, ge=0)

    partition: Named | None = None
    account: Named | None = None
    qos: Named | None = None
    constraint: Named | None = None
    reservation: Named | None = None
    exclude: Named | None = None
    nodelist: Named | None = None
    mail_user: Named | None = None
    mail_type: Named | None = None
    notify: tuple[Destination, ...] = ()
    notify_on: Annotated[
        tuple[str, ...], _from_text(lambda text: text.split(",")), AfterValidator(check_events)
    ] = ()
    sbatch: tuple[str, ...] = ()
    no_sbatch: tuple[str, ...] = ()
    segment: Number | None = None

    launcher: Launcher | None = None
    srun: tuple[RawText, ...] = ()
    torchrun: tuple[RawText, ...] = ()
    python: RawText | None = None
    uv: bool = False
    load: tuple[str, ...] = ()
    setup: tuple[RawText, ...] = ()
    env: tuple[Annotated[tuple[str, RawText], BeforeValidator(_env_pair)], ...] = ()
    secrets: tuple[Annotated[str, AfterValidator(_secret_name)], ...] = ()
    container: Annotated[RawText, AfterValidator(_not_empty)] | None = None
    mounts: tuple[Mount, ...] = ()
    workdir: RawText | None = None
    stage: tuple[Annotated[RawText, AfterValidator(_not_empty)], ...] = ()
    name: Annotated[str, AfterValidator(check_job_name)] | None = None
    preflight: PreflightOption = None

    requeue: Times | None = None
    restarts: Times | None = None
    spares: Times | None = None
    warn_s: Annotated[int | None, _from_text(parse_time)] = None
    retry_on_failure: bool = False
    exclude_bad_nodes: bool = False

    snapshot: bool = False
    snapshot_limit_mb: Annotated[
        int | None, _from_text(lambda text: parse_memory(text, "200M or 1G"))
    ] = None
    snapshot_include: tuple[str, ...] = ()
    sweep: Annotated[tuple[Parameters, ...], SkipValidation, BeforeValidator(_parameters)] = ()
    sweep_file: str | None = None
    max_parallel: Number | None = None
    pack: Number | None = None
    pack_memory: bool = False
    elements: Elements = ()
    roles: tuple[RoleRequest, ...] = ()


_MOST_SHOWN = 60
_OPTION = {
    "walltime_s": "--time",
    "warn_s": "--warn",
    "memory_mb": "--mem",
    "script": "SCRIPT",
    "args": "ARGS",
    "cancel_idle_s": "--cancel-idle",
    "secrets": "--secret",
    "mounts": "--mount",
    "snapshot_limit_mb": "--snapshot-limit",
    "roles": "--role",
}


def option_of(field: str) -> str:
    """Return the option for a field of the request."""
    return _OPTION.get(field) or "--" + field.replace("_", "-")


def _gpu_text(count: Mapping[str, Any]) -> str:
    if count.get("type"):
        return f"{count['type']}:{count['count']}"
    return str(count["count"])


_TEXTS: dict[str, Callable[[Any], str]] = {
    "gpus": _gpu_text,
    "gpus_per_node": _gpu_text,
    "walltime_s": format_time,
    "warn_s": lambda seconds: f"{seconds}s",
    "cancel_idle_s": lambda seconds: f"{seconds}s" if seconds else "0",
    "memory_mb": format_memory,
    "snapshot_limit_mb": format_memory,
    "elements": index_ranges,
    "notify_on": ",".join,
}
"""How the value of a field is written on a command line, where it is not written as it is."""


def option_text(field: str, value: Any) -> str | list[str] | tuple[str, ...]:
    """Return the value of a field as the value is written behind its option.

    There is one text for each repetition of the option.
    """
    if field in _TEXTS:
        return _TEXTS[field](value)
    return value if isinstance(value, list | tuple) else str(value)


def read_request(fields: dict[str, Any]) -> JobRequest:
    """Build the request from the typed options.

    Raises:
        UsageError: an option has a wrong value; the message shows how to write the option.
    """
    if (roles := fields.get("roles")) and isinstance(roles[0], str):
        program = (
            *(["-m"] if fields.get("module") else []),
            fields["script"],
            *fields.get("args", ()),
        )
        fields = {**fields, **split_roles(roles, program)}
    try:
        return JobRequest(**fields)
    except ValidationError as error:
        learn_secrets(fields)
        lines = dict.fromkeys(_error_line(one) for one in error.errors())
        raise UsageError(
            HIDER.hide("\n".join(lines)), hint="--help shows how to write every option"
        ) from None


def _error_line(error: Any) -> str:
    """Return one mistake of a request: the option, and how its value is written."""
    field = str(error["loc"][0]) if error["loc"] else "request"
    if field not in ("env", "secrets") and (name := HIDER.variable_in(str(error["input"]))):
        # a proposal may have it in another form
        return f"{option_of(field)} holds the value of {name}"
    given = repr(error["input"])
    if len(given) > _MOST_SHOWN:
        given = f"{given[:_MOST_SHOWN]}..."
    detail = error_words(error) + ("" if error["type"] == "value_error" else f", not {given}")
    return f"{option_of(field)}: {detail}"


def learn_secrets(fields: Mapping[str, Any]) -> None:
    """Let no message repeat the value of a variable that a request declares as secret.

    The request has not been read yet.
    """
    variables = dict(text.split("=", 1) for text in _texts(fields.get("env")) if "=" in text)
    HIDER.learn(variables, [*_texts(fields.get("secrets"))])


def check_secrets(
    request: JobRequest, env: Mapping[str, str] = MappingProxyType({}), named: Collection[str] = ()
) -> None:
    """Raise UsageError for a secret anywhere but in ``--env``.

    The messages name the kind of secret, never its value.

    Args:
        request: the request to check.
        env: the variables of the job; the shell may have filled in the value of a variable that is
            a secret.
        named: the names of variables that are declared as secret.

    Raises:
        UsageError: an option or the command holds a secret.
    """
    for place, kind in _secrets_in(request, SecretHider(env, named), named):
        raise UsageError(
            f"{place} holds {kind}, which the script, the run's record and process lists would "
            "show",
            hint=_INSTEAD_OF_SECRET,
        )


def _secrets_in(
    request: JobRequest, hider: SecretHider, named: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield options, and the kind of secret that each option holds.

    The function recognises a secret by its form or name, and by the known values.
    """
    parameters = (f"--{name}={value}" for row in request.sweep for name, value in row)
    words = (
        request.script,
        *request.args,
        *parameters,
        *(text for role in request.roles for text in role.command),
    )
    yield from (("the command", kind) for kind in secret_arguments(words))
    for field, given in request:
        value = given
        if field in ("script", "args", "sweep"):
            place = "the command"
        else:
            place = option_of(field)
        if field == "env":
            value = [text for name, text in request.env if not is_secret(name, text, named)]
        for text in _texts(value):
            if field == "setup":
                kind = secret_in_command(text)
            elif field in _APART:
                kind = None
            else:
                kind = secret_kind(text)
            if kind:
                yield place, kind
            elif field != "secrets" and (name := hider.variable_in(text)):
                yield place, f"the value of {name}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Iterable):  # of a model: pairs of fields and values
        for item in value:
            yield from _texts(item)


_PROGRAM = ("script", "args", "module")
_GPUS = ("gpus", "gpus_per_node")
_SWEEP = ("sweep", "sweep_file", "max_parallel", "pack", "pack_memory", "elements")
Words = tuple[str, ...]


def option_groups(request: Mapping[str, Any], profile: str) -> list[Words]:
    """Return the words of a request's options, with the words of each option together.

    The options of a sweep go as far as options can say the sweep. The request is as a run's record
    has it: only what was given. The profile is a name or a file.
    """
    groups: list[Words] = [("--profile", profile)]
    for field in JobRequest.model_fields:
        if field in request and field not in (*_PROGRAM, "roles"):
            groups += [words for words in _option(field, request[field]) if words]
    return groups


def program_words(request: Mapping[str, Any]) -> Words:
    """Return the program of a request and its arguments, as they stand behind the options."""
    words = (
        *(("-m",) if request.get("module") else ()),
        request["script"],
        *request.get("args", ()),
    )
    return (*(text for role in request.get("roles", ()) for text in role_words(role)), *words)


def editable_line(request: Mapping[str, Any], profile: str, head: Sequence[str]) -> str:
    """Return the line of a request for an editor: each option on a line of its own.

    The lines come below a head of comments.
    """
    lines = (" ".join(map(shlex.quote, words)) for words in option_groups(request, profile))
    program = " ".join(map(shlex.quote, program_words(request)))
    # a folder's name may have a line end, and must not become a command
    comments = (f"# {' '.join(line.splitlines())}" for line in head)
    return "".join(
        f"{line}\n"
        for line in (*comments, "hpcrun submit", *(f"  {line}" for line in lines), f"  {program}")
    )


def with_remark(text: str, remark: str) -> str:
    """Return an edited text with a remark as a comment at its top, in place of the one before."""
    mark = "# ERROR: "
    kept = [line for line in text.splitlines(keepends=True) if not line.startswith(mark)]
    return "".join(f"{mark}{line}\n" for line in remark.splitlines()) + "".join(kept)


def read_edited_line(text: str) -> Words:
    """Return the words behind ``hpcrun submit`` of an edited text.

    The result is empty if only comments are left. Quotes are a shell's, nothing is expanded, and
    line ends separate words. Lines that begin with # are comments.

    Raises:
        UsageError: a quote is not closed, or the command does not begin with ``hpcrun submit``.
    """
    kept = ""
    for line in text.splitlines(keepends=True):
        if not (line.lstrip().startswith("#") and _split(kept) is not None):
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
    plain = {
        **{name: value for name, value in request.items() if name not in _SWEEP},
        "args": tuple(arguments),
    }
    if request.get("pack"):  # an element is one process, on one of the GPUs
        plain["launcher"] = request.get("launcher") or "python"
        plain |= {
            name: {**plain[name], "count": min(1, plain[name]["count"])}
            for name in _GPUS
            if plain.get(name)
        }
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
    return {
        **request,
        "env": kept,
        "secrets": list(dict.fromkeys((*request.get("secrets", ()), *masked))),
    }


def sweep_options(rows: Sequence[Parameters]) -> list[Words] | None:
    """Return the ``--sweep`` options whose product is these rows.

    The result is None if only a file can say the rows.
    """
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
