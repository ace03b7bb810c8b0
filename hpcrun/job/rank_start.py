"""How the ranks start: the options of their srun and torchrun, and their container. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.launch_options import Options, Program, check_option
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import Shape


def srun_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return the options of the srun that starts the ranks: the profile's, overridden by the request's."""
    if profile.scheduler != "slurm":
        if request.srun:
            raise UsageError(f"--srun {request.srun[0]}: profile {profile.name!r} runs on this machine, without srun",
                             hint="leave it out, or choose a Slurm profile with --profile")  # fmt: skip
        return ()
    options = _laid_over("srun", profile.srun, request.srun)
    check_binding("srun", options, shape)
    return tuple(options.items())


def check_binding(of: Literal["sbatch", "srun"], options: Mapping[str, str | None], shape: Shape) -> None:
    """Raise UsageError for an option that hides GPUs from a rank, which uses the GPU with the number LOCAL_RANK."""
    for key in ("gpu-bind", "tres-bind"):
        value = options.get(key) or "none"
        if shape.gpus_per_node and shape.tasks_per_node > 1 and "none" not in value:
            raise UsageError(
                f"{'srun ' if of == 'srun' else ''}--{key}={value} would show each of the {shape.tasks_per_node} ranks "
                "of a node only some of its GPUs",
                hint=f"leave it out, or --{of} {key}={'gres/gpu:' if key == 'tres-bind' else ''}none",
            )


def torchrun_options(request: JobRequest, profile: Profile, shape: Shape) -> Options:
    """Return torchrun's options: the profile's, overridden by the request's; none if torchrun starts no ranks."""
    if shape.launcher == "torchrun":
        return tuple(_laid_over("torchrun", profile.torchrun, request.torchrun).items())
    if request.torchrun:
        raise UsageError(f"--torchrun {request.torchrun[0]} has no effect with --launcher {shape.launcher}",
                         hint="leave it out, or add --launcher torchrun")  # fmt: skip
    return ()


def torchrun_words(options: Options, nodes: int) -> tuple[str, ...]:
    """Return torchrun's options besides its sizes.

    A job on one node needs no port, unless an endpoint is given. On several nodes Slurm has numbered the nodes, which
    the static rendezvous takes as they are. c10d's nodes agree on numbers of their own, and ask each other once a
    second; only it lets nodes join again, which torchrun's own restarts need.
    """
    chosen = {"max-restarts": "0", **dict(options)}
    joins_again = (chosen["max-restarts"] != "0" and nodes > 1) or any(name.startswith("rdzv-") for name in chosen)
    several: dict[str, str | None] = {"rdzv-backend": "c10d" if joins_again else "static"}
    return option_words({**({"standalone": None} if nodes == 1 and not joins_again else several), **chosen}.items())


def option_words(options: Iterable[tuple[str, str | None]]) -> tuple[str, ...]:
    """Return options as words of a command line."""
    return tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in options)


def _laid_over(program: Program, theirs: Mapping[str, str | bool], typed: tuple[str, ...]) -> dict[str, str | None]:
    options = {key: None if value is True else str(value) for key, value in theirs.items()}
    for item in typed:
        key, equals, text = item.partition("=")
        value = text if equals else None
        options[check_option(program, key, value, f"--{program} {item}")] = value
    return options


Runtime = Literal["apptainer", "singularity", "pyxis", "podman"]
NONE = "none"  # ``--container none`` turns off the profile's container
_REFERENCE = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


@dataclass(frozen=True, slots=True)
class Container:
    """The container of the ranks."""

    runtime: Runtime  # the program that starts it; pyxis is a plugin of srun
    image: str  # an absolute path, or a reference as the runtime takes it
    mounts: tuple[str, ...]  # ``SOURCE:TARGET[:ro]`` for each folder to mount besides those of the job
    gpus: bool  # whether the GPUs of the node are visible in it
    host_python: str  # the Python outside the container, which starts the ranks

    @property
    def is_file(self) -> bool:
        """Whether the image is a file."""
        return is_image_file(self.runtime, self.image)


def is_image_file(runtime: str, image: str) -> bool:
    """Return whether an image is a path: for apptainer, any word without a scheme such as ``docker://`` is a path."""
    if runtime in ("apptainer", "singularity"):
        return _REFERENCE.match(image) is None
    return runtime == "pyxis" and (image.startswith(("/", "./", "../", "~")) or image.endswith(".sqsh"))


def image_of(request: JobRequest, profile: Profile) -> str | None:
    """Return the image of a request, else of a profile."""
    image = request.container or profile.container.image
    return None if image == NONE else image


def decide_container(request: JobRequest, profile: Profile, shape: Shape, host_python: str) -> Container | None:
    """Return the container of a job; None if it has none."""
    image, runtime = image_of(request, profile), profile.container.runtime
    if image is None:
        if request.mounts:
            raise UsageError("--mount has no effect without a container", hint="add an image: --container IMAGE")
        return None
    if runtime == "pyxis" and profile.scheduler == "local":
        raise PlanError(
            f"profile {profile.name!r} starts containers with pyxis, which needs Slurm, but it runs on this machine",
            hint="set container.runtime to apptainer or podman in the profile, or --container none",
        )
    mounts = (mount if ":" in mount else f"{mount}:{mount}" for mount in (*profile.container.mounts, *request.mounts))
    gpus = bool(shape.gpus_per_node) and profile.container.nv
    return Container(runtime, image, tuple(mounts), gpus, host_python)
