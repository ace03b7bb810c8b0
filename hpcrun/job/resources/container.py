"""The container of a job: its runtime, its image and its mounts. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.shape import Shape
from hpcrun.job.text.spelling import spell

Runtime = Literal["apptainer", "singularity", "pyxis", "podman"]
NONE = "none"  # ``--container none`` turns off the profile's container
_REFERENCE = re.compile(r"[a-z][a-z0-9+.-]*:", re.ASCII)


@dataclass(frozen=True, slots=True)
class Container:
    """The container of the ranks."""

    runtime: Runtime  # the program that starts it; pyxis is a plugin of srun
    image: str  # an absolute path, or a reference as the runtime takes it
    # ``SOURCE:TARGET[:ro]`` for each folder to mount besides those of the job
    mounts: tuple[str, ...]
    gpus: bool  # whether the GPUs of the node are visible in it
    host_python: str  # the Python outside the container, which starts the ranks

    @property
    def is_file(self) -> bool:
        """Whether the image is a file."""
        return is_image_file(self.runtime, self.image)


def is_image_file(runtime: str, image: str) -> bool:
    """Return whether an image is a path.

    For apptainer, any word without a scheme such as ``docker://`` is a path.
    """
    if runtime in ("apptainer", "singularity"):
        return _REFERENCE.match(image) is None
    is_path = image.startswith(("/", "./", "../", "~")) or image.endswith(".sqsh")
    return runtime == "pyxis" and is_path


def image_of(request: JobRequest, profile: Profile) -> str | None:
    """Return the image of a request, else of a profile."""
    image = request.container or profile.container.image
    return None if image == NONE else image


def decide_container(
    request: JobRequest, profile: Profile, shape: Shape, host_python: str
) -> Container | None:
    """Return the container of a job, None if the job has no container.

    Raises:
        PlanError: if the container needs pyxis, and the profile runs on this machine.
        UsageError: if there are mounts, but no container.
    """
    image = image_of(request, profile)
    runtime = profile.container.runtime
    if image is None:
        if request.mounts:
            raise UsageError(
                f"{spell('mount')} has no effect without a container",
                hint=f"add an image: {spell('container', 'IMAGE')}",
            )
        return None
    if runtime == "pyxis" and profile.scheduler == "local":
        raise PlanError(
            f"profile {profile.name!r} starts containers with pyxis, which needs Slurm, but it "
            "runs on this machine",
            hint="set container.runtime to apptainer or podman in the profile, or "
            f"{spell('container', 'none')}",
        )
    mounts = []
    for mount in (*profile.container.mounts, *request.mounts):
        mounts.append(mount if ":" in mount else f"{mount}:{mount}")
    gpus = bool(shape.gpus_per_node) and profile.container.nv
    return Container(runtime, image, tuple(mounts), gpus, host_python)
