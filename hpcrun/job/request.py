"""The user's request, as typed: the options of ``hpcrun submit`` in one frozen model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, ValidationError, field_validator

from hpcrun.errors import UsageError
from hpcrun.job.notify import check_destination, check_events
from hpcrun.job.parameters import Parameters, parse_assignments, parse_indices
from hpcrun.job.quoting import check_env_name, check_job_name, check_mount
from hpcrun.job.secrets import is_secret_option, secret_arguments, secret_in_command, secret_kind
from hpcrun.job.units import parse_memory, parse_time, parse_walltime
from hpcrun.job.value_errors import error_words

Launcher = Literal["torchrun", "srun", "python", "command"]
Preflight = Literal["first", "only"]
MOST = 1_000_000
"""The largest number of nodes, ranks or CPUs: more is a mistake, and Slurm counts nodes in 16 bits."""
# Bytes that are not UTF-8 arrive as surrogates, which pydantic's own check of text refuses.
RawText = Annotated[str, SkipValidation]
_INSTEAD_OF_SECRET = "export NAME=... where you submit, add --secret NAME, and use $NAME"
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


class JobRequest(BaseModel):
    """The request: one field per option of ``hpcrun submit``; ``None`` and ``()`` mean not given."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    script: RawText
    args: tuple[RawText, ...] = ()
    module: bool = False

    gpus: GpuCount | None = None
    gpus_per_node: GpuCount | None = None
    nodes: int | None = Field(default=None, ge=1, le=MOST)
    nproc_per_node: int | None = Field(default=None, ge=1, le=MOST)
    cpus: int | None = Field(default=None, ge=1, le=MOST)
    cpus_per_task: int | None = Field(default=None, ge=1, le=MOST)
    cpus_per_gpu: int | None = Field(default=None, ge=1, le=MOST)
    memory_mb: int | None = None
    walltime_s: int | None = None
    cancel_idle_s: int | None = Field(default=None, ge=0)

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
    warn_s: int | None = None
    retry_on_failure: bool = False
    exclude_bad_nodes: bool = False

    snapshot: bool = False
    snapshot_limit_mb: int | None = None
    snapshot_include: tuple[str, ...] = ()
    sweep: Annotated[tuple[Parameters, ...], SkipValidation] = ()
    sweep_file: str | None = None
    max_parallel: int | None = Field(default=None, ge=1, le=MOST)
    elements: tuple[int, ...] = ()

    @field_validator("gpus", "gpus_per_node", mode="before")
    @classmethod
    def _gpus(cls, value: Any) -> Any:
        return GpuCount.parse(value) if isinstance(value, str) else value

    @field_validator("memory_mb", mode="before")
    @classmethod
    def _memory(cls, value: Any) -> Any:
        return parse_memory(value) if isinstance(value, str) else value

    @field_validator("snapshot_limit_mb", mode="before")
    @classmethod
    def _size(cls, value: Any) -> Any:
        return parse_memory(value, "200M or 1G") if isinstance(value, str) else value

    @field_validator("walltime_s", mode="before")
    @classmethod
    def _walltime(cls, value: Any) -> Any:
        return parse_walltime(value) if isinstance(value, str) else value

    @field_validator("cancel_idle_s", mode="before")
    @classmethod
    def _cancel_idle(cls, value: Any) -> Any:
        return 0 if value == "0" else cls._warn(value)

    @field_validator("warn_s", mode="before")
    @classmethod
    def _warn(cls, value: Any) -> Any:
        # minutes to --time, seconds to sbatch --signal
        if isinstance(value, str) and re.fullmatch(r"0*[1-9]\d{0,8}", number := value.strip(), re.ASCII):
            raise ValueError(f"{number!r} has no unit; write {number}m for minutes or {number}s for seconds")
        return parse_time(value) if isinstance(value, str) else value

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
                raise ValueError(f"{name.partition('=')[0]}: takes a name; the value comes from your environment")
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
        lines = dict.fromkeys(_error_line(one) for one in error.errors())
        raise UsageError("\n".join(lines), hint="hpcrun submit --help lists every option") from None


def _error_line(error: Any) -> str:
    """Return one mistake of a request: the option, and how its value is written."""
    field = str(error["loc"][0]) if error["loc"] else "request"
    given = repr(error["input"])
    given = given if len(given) <= _MOST_SHOWN else f"{given[:_MOST_SHOWN]}..."
    detail = error_words(error) + ("" if error["type"] == "value_error" else f", not {given}")
    return f"{option_of(field)}: {detail}"


def check_secrets(request: JobRequest) -> tuple[str, ...]:
    """Return notes on arguments that look like secrets; refuse secrets in all other parts of the script.

    The messages name the kind of secret, never its value.

    Raises:
        UsageError: a set-up command, a directive or another option holds one.
    """
    for command in request.setup:
        if found := secret_in_command(command):
            raise UsageError(
                f"--setup holds {found}: set-up commands are written to the script", hint=_INSTEAD_OF_SECRET
            )
    for field, text in _texts(request):
        if found := secret_kind(text):
            raise UsageError(
                f"{option_of(field)} holds {found}: it would be written to the script", hint=_INSTEAD_OF_SECRET
            )
    found_in_arguments = dict.fromkeys((*secret_arguments(request.args), *_in_sweep(request)))
    return tuple(
        f"the arguments hold {found}: they appear in the script, in the run's record and in process lists; "
        "read a variable in the script, and pass it with --secret NAME"
        for found in found_in_arguments
    )


def _texts(request: JobRequest) -> Iterator[tuple[str, str]]:
    for field in type(request).model_fields:
        value = getattr(request, field)
        texts: Iterable[object] = value if isinstance(value, tuple) else (value,)
        if field not in _APART:
            yield from ((field, text) for text in texts if isinstance(text, str))


def _in_sweep(request: JobRequest) -> Iterator[str]:
    for name, value in dict.fromkeys(pair for row in request.sweep for pair in row):
        if kind := secret_kind(value):
            yield kind
        elif is_secret_option(name, value):
            yield f"the value of {name}"
