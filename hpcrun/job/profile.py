"""What a cluster is, as a person writes it in YAML: the model behind ``cluster_profiles/*.yaml``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from hpcrun.job.quoting import check_env_name
from hpcrun.job.request import Launcher
from hpcrun.job.units import parse_memory, parse_time


def _time(value: Any) -> Any:
    return parse_time(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else value


def _memory(value: Any) -> Any:
    return parse_memory(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else value


def _scalar(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("YAML reads this as true or false; put it in quotes")
    return str(value) if isinstance(value, int | float) else value


Walltime = Annotated[int, BeforeValidator(_time)]
MemoryMb = Annotated[int, BeforeValidator(_memory)]
Text = Annotated[str, BeforeValidator(_scalar), Field(min_length=1)]
EnvName = Annotated[str, BeforeValidator(check_env_name)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class GpuSection(_Section):
    """The GPUs of one node, and the form in which this site wants them asked for."""

    type: Text | None = None
    per_node: int = Field(default=0, ge=0)
    directive: Literal["gres", "gpus-per-node", "gpus"] = "gres"


class CpuSection(_Section):
    """The CPUs of one node, and how many a job gets with each GPU."""

    per_node: int | None = Field(default=None, ge=1)
    per_gpu: int | None = Field(default=None, ge=1)


class MemorySection(_Section):
    """The memory of one node and of each GPU's share, in MB once read."""

    per_node: MemoryMb | None = None
    per_gpu: MemoryMb | None = None


class TimeSection(_Section):
    """The walltime of a job that says nothing, and the most it may ask for, in seconds once read."""

    default: Walltime | None = None
    max: Walltime | None = None


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
    setup: tuple[str, ...] = ()
    env: dict[EnvName, Annotated[str, BeforeValidator(_scalar)]] = {}
    sbatch: dict[str, Annotated[str, BeforeValidator(_scalar)] | Literal[True]] = {}
