"""What a cluster is, as a person writes it in YAML: the model behind ``cluster_profiles/*.yaml``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from hpcrun.errors import UsageError
from hpcrun.job.directives import check_free_key
from hpcrun.job.quoting import check_env_name, quote_directive
from hpcrun.job.request import Launcher
from hpcrun.job.units import parse_memory, parse_time


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("YAML reads this as true or false; put it in quotes if it is a word")
    return value


def _no_nul(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a NUL character cannot stand in a script")
    return _no_bool(value)


def _time(value: Any) -> Any:
    return parse_time(value) if isinstance(value, str) else _no_bool(value)


def _memory(value: Any) -> Any:
    return parse_memory(value) if isinstance(value, str) else _no_bool(value)


def _directive_value(value: Any) -> Any:
    if value is not True and not isinstance(value, str):
        raise ValueError("a directive takes text, or true for a bare flag")
    if isinstance(value, str):
        quote_directive(value)
    return value


def _directive_key(key: str) -> str:
    try:
        return check_free_key(key, key)
    except UsageError as error:
        raise ValueError(f"{error.message} ({error.hint})") from None


Count = Annotated[int, BeforeValidator(_no_bool)]
Walltime = Annotated[int, BeforeValidator(_time)]
MemoryMb = Annotated[int, BeforeValidator(_memory)]
Text = Annotated[str, BeforeValidator(_no_nul), Field(min_length=1)]
# as --gpus TYPE:N can name it
GpuTypeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
EnvName = Annotated[str, BeforeValidator(check_env_name)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CpuSection(_Section):
    """The CPUs of one node, and how many a job gets with each GPU."""

    per_node: Count | None = Field(default=None, ge=1)
    per_gpu: Count | None = Field(default=None, ge=1)


class MemorySection(_Section):
    """The memory of one node and of each GPU's share, in MB once read."""

    per_node: MemoryMb | None = None
    per_gpu: MemoryMb | None = None


class TimeSection(_Section):
    """The walltime of a job that says nothing, and the most it may ask for, in seconds once read."""

    default: Walltime | None = None
    max: Walltime | None = None


class GpuTypeSection(_Section):
    """What is different for jobs on GPUs of one type; what it leaves out is as in the profile."""

    per_node: Count | None = Field(default=None, ge=1)
    partition: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    cpu: CpuSection = CpuSection()
    memory: MemorySection = MemorySection()
    time: TimeSection = TimeSection()


class GpuSection(_Section):
    """The GPUs of one node, and the form in which this site wants them asked for.

    Attributes:
        type: the type of a request that names none.
        types: the types there are, where a site has several; ``--gpus TYPE:N`` chooses.
    """

    type: Text | None = None
    per_node: Count = Field(default=0, ge=0)
    directive: Literal["gres", "gpus-per-node", "gpus"] = "gres"
    types: dict[GpuTypeName, GpuTypeSection] = {}

    @model_validator(mode="after")
    def _every_type_has_gpus(self) -> GpuSection:
        for name, entry in self.types.items():
            if not (entry.per_node or self.per_node):
                raise ValueError(f"types.{name} does not say per_node, and neither does gpu")
        return self


class Profile(_Section):
    """A kind of machine: its GPUs, limits, directives, environment and set-up."""

    name: str
    description: str = ""
    scheduler: Literal["slurm", "local"] = "slurm"
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    gpu: GpuSection = GpuSection()
    cpu: CpuSection = CpuSection()
    memory: MemorySection = MemorySection()
    time: TimeSection = TimeSection()
    launcher: Launcher | None = None
    python: Text | None = None
    modules: tuple[Text, ...] = ()
    setup: tuple[Annotated[str, BeforeValidator(_no_nul)], ...] = ()
    env: dict[EnvName, Annotated[str, BeforeValidator(_no_nul)]] = {}
    sbatch: dict[
        Annotated[str, BeforeValidator(_directive_key)], Annotated[Any, BeforeValidator(_directive_value)]
    ] = {}
