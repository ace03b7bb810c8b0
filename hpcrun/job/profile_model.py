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
from hpcrun.job.text.metric_patterns import check_metric_pattern
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
# a time or a size is written as Slurm does, and read as seconds or MB
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
    """CPUs of one node."""
    per_gpu: Count | None = Field(default=None, ge=1)
    """CPUs that a job gets for each of its GPUs."""


class MemorySection(_Section):
    """The memory of one node, and the memory for each GPU of a job."""

    per_node: MemoryMb | None = None
    """Memory of one node: 500G."""
    per_gpu: MemoryMb | None = None
    """Memory that a job gets for each of its GPUs: 120G. Less than an equal share: a node with
    MemSpecLimit refuses jobs that want all of its memory.
    """


class TimeSection(_Section):
    """The default time limit of a job, and the longest one."""

    default: Walltime | None = None
    """Time limit of a job without --time: 4h, 1-00:00:00."""
    max: Walltime | None = None
    """Longest time limit of the partition; hpcrun refuses a longer one, with which a job would stay
    pending.
    """

    @model_validator(mode="after")
    def _default_is_allowed(self) -> TimeSection:
        if self.default and self.max and self.default > self.max:
            raise ValueError(
                f"default {format_time(self.default)} is longer than max {format_time(self.max)}"
            )
        return self


class RequeueSection(_Section):
    """How often an interrupted job is requeued, and how long before its time limit it is warned."""

    times: Count = Field(default=0, ge=0, le=1000)
    """Further attempts after a time limit, a preemption or a node failure (--requeue)."""
    restarts: Count = Field(default=0, ge=0, le=1000)
    """Further attempts in the same allocation after a node failure (--restarts)."""
    spares: Count = Field(default=0, ge=0, le=1000)
    """Additional nodes that a job with restarts requests (--spares)."""
    warn: Walltime = 120
    """Time between the warning of the ranks and the time limit (--warn): 120s, 5m."""
    expedite: Switch = False
    """Whether Slurm reserves nodes for the job after a node failure and starts it first; needs
    Slurm 25.11 and enable_expedited_requeue.
    """


class TflopsSection(_Section):
    """The rates of a card, dense (without 2:4 sparsity); the card lacks the types without one."""

    fp32: Rate | None = None
    """Dense FP32 rate, in TFLOPS."""
    tf32: Rate | None = None
    """Dense TF32 rate, in TFLOPS."""
    bf16: Rate | None = None
    """Dense bfloat16 rate, in TFLOPS."""
    fp16: Rate | None = None
    """Dense FP16 rate, in TFLOPS."""
    fp8: Rate | None = None
    """Dense FP8 rate, in TFLOPS."""


class CardSection(_Section):
    """The properties of one GPU, from its manufacturer; without the network."""

    model: Text | None = None
    """Name of the card, for people."""
    memory_gb: Rate | None = None
    """Memory of the card, in GB."""
    memory_bandwidth_gb_s: Rate | None = None
    """Bandwidth of the card's memory, in GB/s."""
    tflops: TflopsSection = TflopsSection()
    nvlink_gb_s: RateOrNone | None = None
    """NVLink bandwidth of the card, both directions together, in GB/s; 0 for a card without NVLink.
    """
    pcie_generation: Count | None = Field(default=None, ge=1)
    """Generation of the PCIe bus."""
    compute_capability: Annotated[Text, Field(pattern=r"^\d+\.\d+$")] | None = None
    """CUDA compute capability: 9.0."""
    power_w: Rate | None = None
    """Power limit of the card, in watts."""
    bf16: Switch | None = None
    """Whether the card has bfloat16 units; without them torch emulates the type."""


class FabricSection(_Section):
    """The network between the nodes."""

    kind: Literal["infiniband", "roce", "efa", "ethernet"] | None = None
    """Kind of the network."""
    bandwidth_gbit_s: Rate | None = None
    """Bandwidth of one port or adapter, in Gbit/s."""
    interface: DeviceName | None = None
    """Network interface between the nodes, a plain name, if the automatic choice is wrong; sets
    NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME.
    """
    hcas: tuple[DeviceName, ...] = ()
    """RDMA adapters to use, plain names, if the automatic choice is wrong; sets NCCL_IB_HCA."""
    host_suffix: Annotated[Text, Field(pattern=r"^[A-Za-z0-9.-]+$")] | None = None
    """What a node's name ends with in the fast network: -ib, if node n1 is n1-ib there."""

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
    """The price of a job, in the site's currency or unit of allocations."""

    per_gpu_hour: Rate | None = None
    """Price of a GPU for an hour, for `hpcrun scale plan`."""


class GpuTypeSection(_Section):
    """Values for jobs on GPUs of one type; missing values come from the profile."""

    per_node: Count | None = Field(default=None, ge=1)
    """GPUs of this type on one node."""
    nodes: Count | None = Field(default=None, ge=1)
    """Nodes with these GPUs that a job can have in its partition; hpcrun refuses a larger job."""
    partition: Text | None = None
    """Partition of jobs on these GPUs."""
    qos: Text | None = None
    """Quality of service of jobs on these GPUs."""
    constraint: Text | None = None
    """Node features that jobs on these GPUs need."""
    cpu: CpuSection = CpuSection()
    memory: MemorySection = MemorySection()
    time: TimeSection = TimeSection()
    card: CardSection = CardSection()


class GpuSection(_Section):
    """The GPUs of one node, and the form of the site's GPU directive."""

    type: Text | None = None
    """Type for a job that names none, as Slurm calls it (sinfo -o %G): a100."""
    per_node: Count | None = Field(default=None, ge=0)
    """GPUs of one node; 0 for nodes without GPUs. Without the key, Slurm decides."""
    nodes: Count | None = Field(default=None, ge=1)
    """Nodes with these GPUs that a job can have in its partition; hpcrun refuses a larger job."""
    directive: Literal["gres", "gpus-per-node", "gpus"] = "gres"
    """Directive with which jobs request GPUs at this site: --gres, --gpus-per-node or --gpus."""
    types: dict[GpuTypeName, GpuTypeSection] = {}
    """The types of a site that has several, by Slurm's names; --gpus TYPE:N chooses one."""

    @model_validator(mode="after")
    def _every_type_has_gpus(self) -> GpuSection:
        for name, entry in self.types.items():
            if not (entry.per_node or self.per_node):
                raise ValueError(f"types.{name} does not say per_node, and neither does gpu")
        return self


class LaunchSection(_Section):
    """What a job keeps from one start to the next."""

    warm: Switch = False
    """Whether compiled files are kept for the next job of the same program (--warm)."""
    warm_variables: tuple[EnvName, ...] = ()
    """Further variables of compilers that name a folder: [VLLM_CACHE_ROOT]."""


class ContainerSection(_Section):
    """The container of the ranks; there is none without an image."""

    runtime: Literal["apptainer", "singularity", "pyxis", "podman"] = "apptainer"
    """Program that starts the container."""
    image: Text | None = None
    """Image of the ranks: a file, or a name that the runtime pulls: docker://pytorch/pytorch
    (apptainer), nvcr.io#nvidia/pytorch:26.01-py3 (pyxis). Without it there is no container.
    """
    mounts: tuple[MountText, ...] = ()
    """Folders to mount in the container, besides the job's own: SOURCE[:TARGET[:ro]] (--mount)."""
    nv: Switch = True
    """Whether a job with GPUs sees them in the container."""
    python: Text = "python3"
    """Python of the image, with torch (--python)."""


class Profile(_Section):
    """A kind of machine: its GPUs, limits, directives, environment and set-up.

    In --json, times are in seconds and memory is in MB.
    """

    name: str
    """Name of the profile: that of its file."""
    description: str = ""
    """What `hpcrun profile list` says about the profile."""
    scheduler: Literal["slurm", "local"] = "slurm"
    """Who starts the job: Slurm, or hpcrun on this machine."""
    partition: Text | None = None
    """Partition of the job (--partition)."""
    account: Text | None = None
    """Account of the job (--account)."""
    qos: Text | None = None
    """Quality of service of the job (--qos)."""
    constraint: Text | None = None
    """Node features that the job needs (--constraint)."""
    segment: Count | None = Field(default=None, ge=1)
    """Nodes per network block (--segment, Slurm 23.11 or later)."""
    cancel_idle: Walltime | None = None
    """Time after which a job ends whose GPUs are all idle (--cancel-idle): 30m, 2h."""
    sample_use: Switch = True
    """Whether a job records what it uses of its nodes."""
    gpu: GpuSection = GpuSection()
    cpu: CpuSection = CpuSection()
    memory: MemorySection = MemorySection()
    time: TimeSection = TimeSection()
    requeue: RequeueSection = RequeueSection()
    card: CardSection = CardSection()
    fabric: FabricSection = FabricSection()
    price: PriceSection = PriceSection()
    container: ContainerSection = ContainerSection()
    launch: LaunchSection = LaunchSection()
    launcher: Launcher | None = None
    """How the ranks of all jobs start (--launcher); a role has torchrun instead of srun."""
    python: Text | None = None
    """Python of the job, if no environment is active (--python)."""
    modules: tuple[Text, ...] = ()
    """Environment modules that the job loads (--load)."""
    setup: tuple[Annotated[str, BeforeValidator(_no_nul)], ...] = ()
    """Shell commands that run before the ranks start (--setup)."""
    metrics: dict[MetricName, MetricPattern] = {}
    """Numbers that `hpcrun metrics` finds in the logs, as NAME: REGULAR EXPRESSION."""
    notify: tuple[Destination, ...] = ()
    """Destinations of messages about runs (--notify)."""
    notify_on: Annotated[tuple[str, ...], AfterValidator(check_events)] = ()
    """Events to send messages about (--notify-on)."""
    notify_waiting: Walltime | None = Field(default=None, ge=1)
    """Time after which a message says that a job is still pending: 2h."""
    env: dict[EnvName, Annotated[str, BeforeValidator(_no_nul)]] = {}
    """Environment variables of the job (--env)."""
    secrets: tuple[EnvName, ...] = ()
    """Names of variables that the job gets from your environment without a file holding their
    values (--secret).
    """
    sbatch: dict[str, Annotated[Any, BeforeValidator(_directive_value)]] = {}
    """Any other directives of sbatch: {comment: mine, exclusive: true} (--sbatch)."""
    srun: dict[str, Annotated[Any, BeforeValidator(_text_or_flag)]] = {}
    """Options of the srun that starts the ranks: {mpi: pmix} (--srun)."""
    torchrun: dict[str, Annotated[Any, BeforeValidator(_text_or_flag)]] = {}
    """Options of torchrun: {numa-binding: node} (--torchrun)."""

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
