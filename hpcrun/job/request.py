"""The user's request, as typed: the options of ``hpcrun submit`` in one frozen model."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SkipValidation, ValidationError, field_validator

from hpcrun.errors import UsageError
from hpcrun.job.notify import check_destination, check_events
from hpcrun.job.parameters import Parameters, parse_assignments, parse_indices
from hpcrun.job.phrases import error_words
from hpcrun.job.quoting import check_env_name, check_job_name, check_mount
from hpcrun.job.secret_hider import HIDER, SecretHider
from hpcrun.job.secrets import is_secret, secret_arguments, secret_in_command, secret_kind
from hpcrun.job.units import parse_memory, parse_time, parse_walltime

Launcher = Literal["torchrun", "srun", "python", "command"]
Preflight = Literal["first", "only"]
MOST = 1_000_000
"""The largest number of nodes, ranks or CPUs: more is a mistake, and Slurm counts nodes in 16 bits."""
# Bytes that are not UTF-8 arrive as surrogates, which pydantic's own check of text refuses.
RawText = Annotated[str, SkipValidation]
_INSTEAD_OF_SECRET = (
    "export NAME=... where you submit, add --secret NAME, and use $NAME in --setup, or in bash -c 'PROGRAM \"$NAME\"'"
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
            ValueError: the text is neither.
        """
        type_, colon, count = text.rpartition(":")
        if not re.fullmatch(r"\d{1,6}", count, re.ASCII) or (colon and not re.fullmatch(r"[\w.-]+", type_, re.ASCII)):
            raise ValueError(f"{text!r} is not a number of GPUs; write 4 or a100:4")
        return cls(count=int(count), type=type_ or None)


def _from_text(parse: Callable[[str], object]) -> BeforeValidator:
    """Return what reads a value as it was typed; a value from a record or from Python is no text."""
    return BeforeValidator(lambda value: parse(value) if isinstance(value, str) else value)


class JobRequest(BaseModel):
    """The request: one field per option of ``hpcrun submit``; ``None`` and ``()`` mean not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: RawText
    args: tuple[RawText, ...] = ()
    module: bool = False

    gpus: Annotated[GpuCount | None, _from_text(GpuCount.parse)] = None
    gpus_per_node: Annotated[GpuCount | None, _from_text(GpuCount.parse)] = None
    nodes: int | None = Field(default=None, ge=1, le=MOST)
    nproc_per_node: int | None = Field(default=None, ge=1, le=MOST)
    cpus: int | None = Field(default=None, ge=1, le=MOST)
    cpus_per_task: int | None = Field(default=None, ge=1, le=MOST)
    cpus_per_gpu: int | None = Field(default=None, ge=1, le=MOST)
    memory_mb: Annotated[int | None, _from_text(parse_memory)] = None
    walltime_s: Annotated[int | None, _from_text(parse_walltime)] = None
    cancel_idle_s: Annotated[int | None, _from_text(lambda text: 0 if text == "0" else parse_time(text))] = Field(
        default=None, ge=0
    )

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclude: str | None = None
    nodelist: str | None = None
    mail_user: str | None = None
    mail_type: str | None = None
    notify: tuple[RawText, ...] = ()
    notify_on: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()
    no_sbatch: tuple[str, ...] = ()
    segment: int | None = Field(default=None, ge=1, le=MOST)

    launcher: Launcher | None = None
    srun: tuple[RawText, ...] = ()
    torchrun: tuple[RawText, ...] = ()
    python: RawText | None = None
    uv: bool = False
    load: tuple[str, ...] = ()
    setup: tuple[RawText, ...] = ()
    env: tuple[tuple[str, RawText], ...] = ()
    secrets: tuple[str, ...] = ()
    container: RawText | None = None
    mounts: tuple[str, ...] = ()
    workdir: RawText | None = None
    name: str | None = None
    preflight: Preflight | None = None

    @field_validator("preflight", mode="before")
    @classmethod
    def _preflight(cls, value: Any) -> Any:
        return {True: "first", False: None}.get(value, value)

    requeue: int | None = Field(default=None, ge=0, le=1000)
    restarts: int | None = Field(default=None, ge=0, le=1000)
    spares: int | None = Field(default=None, ge=0, le=1000)
    warn_s: Annotated[int | None, _from_text(parse_time)] = None
    retry_on_failure: bool = False
    exclude_bad_nodes: bool = False

    snapshot: bool = False
    snapshot_limit_mb: Annotated[int | None, _from_text(lambda text: parse_memory(text, "200M or 1G"))] = None
    snapshot_include: tuple[str, ...] = ()
    sweep: Annotated[tuple[Parameters, ...], SkipValidation] = ()
    sweep_file: str | None = None
    max_parallel: int | None = Field(default=None, ge=1, le=MOST)
    elements: tuple[int, ...] = ()

    @field_validator("sweep", mode="before")
    @classmethod
    def _sweep(cls, value: Any) -> Any:
        said = tuple(value)
        if said and isinstance(said[0], str):
            return parse_assignments(said)
        # as read from JSON: lists of pairs
        return tuple(tuple((name, text) for name, text in row) for row in said)

    @field_validator("elements", mode="before")
    @classmethod
    def _elements(cls, value: Any) -> Any:
        return parse_indices(value) if isinstance(value, str) else tuple(sorted(set(value)))

    @field_validator("name")
    @classmethod
    def _name(cls, value: str | None) -> str | None:
        return value if value is None else check_job_name(value)

    @field_validator("env", mode="before")
    @classmethod
    def _env(cls, value: Any) -> Any:
        pairs = []
        for item in value:
            if isinstance(item, str):
                key, equals, content = item.partition("=")
                if not equals:  # do not repeat the text after a name: it may be a secret
                    name = f"{key!r} has" if key.isidentifier() else "one variable has"
                    raise ValueError(
                        f"{name} no '='; write NAME=VALUE. What your shell exports reaches the job without --env"
                    )
                item = (check_env_name(key), content)
            pairs.append(item)
        return tuple(pairs)

    @field_validator("notify")
    @classmethod
    def _notify(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_destination(text) for text in value)

    @field_validator("notify_on", mode="before")
    @classmethod
    def _notify_on(cls, value: Any) -> Any:
        return check_events(value.split(",") if isinstance(value, str) else value)

    @field_validator("mounts")
    @classmethod
    def _mounts(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(check_mount(mount) for mount in value)

    @field_validator("secrets")
    @classmethod
    def _secrets(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if "=" in name:
                raise ValueError(
                    f"takes a name, not {name.partition('=')[0]!r} and a value, which comes from your environment"
                )
            check_env_name(name)
        return value

    @field_validator(
        "partition",
        "account",
        "qos",
        "constraint",
        "reservation",
        "exclude",
        "nodelist",
        "mail_user",
        "mail_type",
        "container",
    )
    @classmethod
    def _not_empty(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("is empty")
        return value


_MOST_SHOWN = 60
_OPTION = {"walltime_s": "--time", "warn_s": "--warn", "memory_mb": "--mem", "script": "SCRIPT", "args": "ARGS",
           "cancel_idle_s": "--cancel-idle", "secrets": "--secret", "mounts": "--mount",
           "snapshot_limit_mb": "--snapshot-limit"}  # fmt: skip


def option_of(field: str) -> str:
    """Return the option for a field of the request."""
    return _OPTION.get(field) or "--" + field.replace("_", "-")


def read_request(asked: dict[str, Any]) -> JobRequest:
    """Build the request from the typed options.

    Raises:
        UsageError: a value cannot be read; the message names the option and shows how to write it.
    """
    try:
        return JobRequest(**asked)
    except ValidationError as error:
        learn_secrets(asked)
        lines = dict.fromkeys(_error_line(one) for one in error.errors())
        raise UsageError(HIDER.hide("\n".join(lines)), hint="--help shows how to write every option") from None


def _error_line(error: Any) -> str:
    """Return one mistake of a request: the option, and how its value is written."""
    field = str(error["loc"][0]) if error["loc"] else "request"
    if field not in ("env", "secrets") and (name := HIDER.variable_in(str(error["input"]))):
        return f"{option_of(field)} holds the value of {name}"  # a proposal may have it in another form
    given = repr(error["input"])
    given = given if len(given) <= _MOST_SHOWN else f"{given[:_MOST_SHOWN]}..."
    detail = error_words(error) + ("" if error["type"] == "value_error" else f", not {given}")
    return f"{option_of(field)}: {detail}"


def learn_secrets(asked: Mapping[str, Any]) -> None:
    """Let no message repeat the value of a variable that a request, not yet read, declares as secret."""
    variables = dict(text.split("=", 1) for text in _texts(asked.get("env")) if "=" in text)
    HIDER.learn(variables, [*_texts(asked.get("secrets"))])


def check_secrets(
    request: JobRequest, env: Mapping[str, str] = MappingProxyType({}), named: Collection[str] = ()
) -> None:
    """Refuse secrets everywhere but in ``--env``. The messages name the kind of secret, never its value.

    Args:
        env: variables of the job: the shell may have filled in the value of one that is a secret.
        named: names of variables that are declared as secret.

    Raises:
        UsageError: a set-up command, an argument, a value of a sweep or another option holds one.
    """
    for place, kind in _secrets_in(request, SecretHider(env, named), named):
        raise UsageError(
            f"{place} holds {kind}, which the script, the run's record and process lists would show",
            hint=_INSTEAD_OF_SECRET,
        )


def _secrets_in(request: JobRequest, hider: SecretHider, named: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield options, and the kind of secret that each holds: by its form or name, and the known values."""
    words = (request.script, *request.args, *(f"--{name}={value}" for row in request.sweep for name, value in row))
    yield from (("the command", kind) for kind in secret_arguments(words))
    for field, value in request:
        place = "the command" if field in ("script", "args", "sweep") else option_of(field)
        if field == "env":
            value = [text for name, text in request.env if not is_secret(name, text, named)]
        for text in _texts(value):
            kind = secret_in_command(text) if field == "setup" else None if field in _APART else secret_kind(text)
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
