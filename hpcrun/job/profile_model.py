"""The description of a cluster in YAML: the model of ``cluster_profiles/*.yaml``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from hpcrun.errors import UsageError
from hpcrun.files.reading import flag
from hpcrun.job.launch_options import Program, check_option
from hpcrun.job.request.job_request import Launcher
from hpcrun.job.request.notify_options import check_destination, check_events
from hpcrun.job.text.patterns import check_metric_pattern
from hpcrun.job.text.quoting import check_env_name, check_mount, quote_directive
from hpcrun.job.text.units import format_time, parse_memory, parse_slurm_time


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("YAML reads this as true or false; put it in quotes if it is a word")
    return value


def _no_nul(value: Any) -> Any:
    if isinstance(value, str) and "\0" in value:
        raise ValueError("a NUL character cannot stand in a script")
    return _no_bool(value)


def _short(value: float) -> float:
    return int(value) if value.is_integer() else value  # show 80 as written, not as 80.0


def _read(parse: Callable[[str], int]) -> BeforeValidator:
    return BeforeValidator(
        lambda value: parse(value) if isinstance(value, str) else _no_bool(value)
    )


def _text_or_flag(value: Any) -> Any:
    if value is not True and not isinstance(value, str):
        raise ValueError("an option takes text, or true for a bare flag")
    return value


def _directive_value(value: Any) -> Any:
    if _text_or_flag(value) is not True:
        quote_directive(value)
    return value


Count = Annotated[int, BeforeValidator(_no_bool)]
Walltime = Annotated[int, _read(parse_slurm_time)]
MemoryMb = Annotated[int, _read(parse_memory)]
Text = Annotated[str, BeforeValidator(_no_nul), Field(min_length=1)]
Rate = Annotated[
    float, BeforeValidator(_no_bool), AfterValidator(_short), Field(gt=0, allow_inf_nan=False)
]
RateOrNone = Annotated[
    float, BeforeValidator(_no_bool), AfterValidator(_short), Field(ge=0, allow_inf_nan=False)
]
Switch = Annotated[bool, BeforeValidator(flag)]
# "=", "^" and "," have a meaning for NCCL, and hpcrun adds them itself
DeviceName = Annotated[Text, Field(pattern=r"^[A-Za-z0-9_.:@-]+$")]
# as --gpus TYPE:N can name it
GpuTypeName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]+$")]
EnvName = Annotated[str, BeforeValidator(check_env_name)]
MountText = Annotated[str, BeforeValidator(_no_nul), AfterValidator(check_mount)]
MetricName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]+$")]
Destination = Annotated[Text, AfterValidator(check_destination)]
MetricPattern = Annotated[Text, AfterValidator(check_metric_pattern)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CpuSection(_Section):
    """The CPUs of one node, and the number of CPUs for each GPU of a job."""

    per_node: Count | None = Field(default=None, ge=1)
    per_gpu: Count | None = Field(default=None, ge=1)


class MemorySection(_Section):
    """The memory of one node, and the memory for each GPU of a job; in MB after reading."""

    per_node: MemoryMb | None = None
    per_gpu: MemoryMb | None = None


class TimeSection(_Section):
    """The default time limit of a job, and the longest one; in seconds after reading."""

    default: Walltime | None = None
    max: Walltime | None = None

    @model_validator(mode="after")
    def _default_is_allowed(self) -> TimeSection:
        if self.default and self.max and self.default > self.max:
            raise ValueError(
                f"default {format_time(self.default)} is longer than max {format_time(self.max)}"
            )
        return self


class RequeueSection(_Section):
    """How often an interrupted job is requeued, and how long before its time limit it is warned.

    Attributes:
        times: further attempts after a time limit, a preemption or a node failure.
        warn: seconds between the warning and the time limit, after reading.
        expedite: after a node failure Slurm requeues the job first, on nodes that it reserves for
            it (25.11).
        restarts: further attempts in the same allocation after a node failure.
        spares: additional nodes that a job with restarts requests.
    """

    times: Count = Field(default=0, ge=0, le=1000)
    restarts: Count = Field(default=0, ge=0, le=1000)
    spares: Count = Field(default=0, ge=0, le=1000)
    warn: Walltime = 120
    expedite: Switch = False


class TflopsSection(_Section):
    """The rates of a card, dense (without 2:4 sparsity).

    The card does not have the types that are missing.
    """

    fp32: Rate | None = None
    tf32: Rate | None = None
    bf16: Rate | None = None
    fp16: Rate | None = None
    fp8: Rate | None = None


class CardSection(_Section):
    """The properties of one GPU, from its manufacturer; without the network.

    Attributes:
        nvlink_gb_s: both directions together; 0 for a card without NVLink.
        bf16: whether it has bfloat16 units; without them torch emulates the type.
    """

    model: Text | None = None
    memory_gb: Rate | None = None
    memory_bandwidth_gb_s: Rate | None = None
    tflops: TflopsSection = TflopsSection()
    nvlink_gb_s: RateOrNone | None = None
    pcie_generation: Count | None = Field(default=None, ge=1)
    compute_capability: Annotated[Text, Field(pattern=r"^\d+\.\d+$")] | None = None
    power_w: Rate | None = None
    bf16: Switch | None = None


class FabricSection(_Section):
    """The network between the nodes.

    Attributes:
        bandwidth_gbit_s: of one port or adapter.
        interface: the interface between the nodes, if the automatic choice is wrong.
        hcas: the RDMA adapters to use, if the automatic choice is wrong.
        host_suffix: what a node's name ends with in the fast network, such as ``-ib``.
    """

    kind: Literal["infiniband", "roce", "efa", "ethernet"] | None = None
    bandwidth_gbit_s: Rate | None = None
    interface: DeviceName | None = None
    hcas: tuple[DeviceName, ...] = ()
    host_suffix: Annotated[Text, Field(pattern=r"^[A-Za-z0-9.-]+$")] | None = None

    def env(self) -> dict[str, str]:
        """Return the variables for NCCL and gloo, and those of the rendezvous.

        NCCL and gloo need the same name in different forms.
        For NCCL a name without "=" before it is a prefix (mlx5_1 also means mlx5_10); gloo uses the
        whole name.
        """
        variables = {}
        if self.interface:
            variables = {
                "NCCL_SOCKET_IFNAME": f"={self.interface}",
                "GLOO_SOCKET_IFNAME": self.interface,
            }
        if self.hcas:
            variables["NCCL_IB_HCA"] = f"={','.join(self.hcas)}"
        if self.host_suffix:
            variables["HPCRUN_HOST_SUFFIX"] = self.host_suffix
        return variables


class PriceSection(_Section):
    """The price of a job, in the site's currency or unit.

    The unit is euros, dollars, or units of an allocation.
    """

    per_gpu_hour: Rate | None = None


class GpuTypeSection(_Section):
    """Values for jobs on GPUs of one type; missing values come from the profile.

    Attributes:
        card: replaces the profile's card as a whole.
    """

    per_node: Count | None = Field(default=None, ge=1)
    nodes: Count | None = Field(default=None, ge=1)
    partition: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    cpu: CpuSection = CpuSection()
    memory: MemorySection = MemorySection()
    time: TimeSection = TimeSection()
    card: CardSection = CardSection()


class GpuSection(_Section):
    """The GPUs of one node, and the form of the site's GPU directive.

    Attributes:
        type: the type for a request that names none.
        per_node: 0 for nodes without GPUs; None if that is not known, and Slurm decides.
        nodes: how many nodes with these GPUs a job can have in its partition; None if that is not
            known.
        types: the types of a site that has several; ``--gpus TYPE:N`` chooses one.
    """

    type: Text | None = None
    per_node: Count | None = Field(default=None, ge=0)
    nodes: Count | None = Field(default=None, ge=1)
    directive: Literal["gres", "gpus-per-node", "gpus"] = "gres"
    types: dict[GpuTypeName, GpuTypeSection] = {}

    @model_validator(mode="after")
    def _every_type_has_gpus(self) -> GpuSection:
        for name, entry in self.types.items():
            if not (entry.per_node or self.per_node):
                raise ValueError(f"types.{name} does not say per_node, and neither does gpu")
        return self


class ContainerSection(_Section):
    """The container of the ranks; there is none without an image.

    Attributes:
        image: a file, or a name that the runtime pulls: ``docker://...``.
        mounts: ``SOURCE[:TARGET[:ro]]``; the job's own folders are always mounted.
        nv: whether a job with GPUs sees them in the container.
        python: the image's Python, with torch.
    """

    runtime: Literal["apptainer", "singularity", "pyxis", "podman"] = "apptainer"
    image: Text | None = None
    mounts: tuple[MountText, ...] = ()
    nv: Switch = True
    python: Text = "python3"


class Profile(_Section):
    """A kind of machine: its GPUs, limits, directives, environment and set-up.

    Attributes:
        cancel_idle: a job whose GPUs are all idle for so long ends; in seconds after reading.
        sample_use: a job records what it uses of its nodes.
    """

    name: str
    description: str = ""
    scheduler: Literal["slurm", "local"] = "slurm"
    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    segment: Count | None = Field(default=None, ge=1)
    cancel_idle: Walltime | None = None
    sample_use: Switch = True
    gpu: GpuSection = GpuSection()
    cpu: CpuSection = CpuSection()
    memory: MemorySection = MemorySection()
    time: TimeSection = TimeSection()
    requeue: RequeueSection = RequeueSection()
    card: CardSection = CardSection()
    fabric: FabricSection = FabricSection()
    price: PriceSection = PriceSection()
    container: ContainerSection = ContainerSection()
    launcher: Launcher | None = None
    python: Text | None = None
    modules: tuple[Text, ...] = ()
    setup: tuple[Annotated[str, BeforeValidator(_no_nul)], ...] = ()
    metrics: dict[MetricName, MetricPattern] = {}
    notify: tuple[Destination, ...] = ()
    notify_on: Annotated[tuple[str, ...], AfterValidator(check_events)] = ()
    notify_waiting: Walltime | None = Field(default=None, ge=1)
    env: dict[EnvName, Annotated[str, BeforeValidator(_no_nul)]] = {}
    secrets: tuple[EnvName, ...] = ()
    sbatch: dict[str, Annotated[Any, BeforeValidator(_directive_value)]] = {}
    srun: dict[str, Annotated[Any, BeforeValidator(_text_or_flag)]] = {}
    torchrun: dict[str, Annotated[Any, BeforeValidator(_text_or_flag)]] = {}

    @field_validator("sbatch", "srun", "torchrun")
    @classmethod
    def _options(cls, values: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        program = cast(Program, info.field_name)
        options: dict[str, Any] = {}
        try:
            for key, value in values.items():
                text = None if value is True else value
                options[check_option(program, key, text, f"{program}.{key}")] = value
        except UsageError as error:
            message = error.message
            if error.hint:
                message += f" ({error.hint})"
            raise ValueError(message) from None
        return options
