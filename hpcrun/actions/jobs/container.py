"""The container of a job: where its image is, and whether it can be there at all."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.container import image_of, is_image_file
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest

NOT_HERE = "install it, or set container.runtime in the profile; --container none runs without"


def with_container(request: JobRequest, profile: Profile, surroundings: Surroundings) -> JobRequest:
    """Return the request with the image of its container as the job finds it.

    Raises:
        UsageError: there is no such image.
        PlanError: the job runs on this machine, and its container runtime is not here.
    """
    image, runtime = image_of(request, profile), profile.container.runtime
    if image is None:
        return request
    by_job = profile.modules or profile.setup or request.load or request.setup
    if profile.scheduler == "local" and runtime != "pyxis" and not by_job and missing_runtime(runtime, surroundings):
        raise PlanError(f"{runtime} is not on PATH here; the job's container needs it", hint=NOT_HERE)
    if not is_image_file(runtime, image):
        return request
    path = Path(os.path.abspath(surroundings.cwd / Path(image).expanduser()))
    if not os.path.exists(path):
        whose = "" if request.container else f", which profile {profile.name!r} names"
        raise UsageError(
            f"there is no container image {path}{whose}",
            hint=f"pull it: {runtime} pull {path.name} docker://...; or use another image: --container IMAGE"
            if runtime != "pyxis"
            else f"import it: enroot import -o {path.name} docker://...; or use another image: --container IMAGE",
        )
    return request.model_copy(update={"container": str(path)})


def missing_runtime(runtime: str, surroundings: Surroundings) -> bool:
    """Return whether a runtime is not on this machine's PATH."""
    return shutil.which(runtime, path=surroundings.env.get("PATH")) is None
