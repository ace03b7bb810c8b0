"""doctor: the container that a profile's jobs run in."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from shutil import which

from hpcrun.actions.doctor.check import PROFILE, Check, Level
from hpcrun.job.container import is_image_file
from hpcrun.job.profile import Profile


def judge_container(profile: Profile, env: Mapping[str, str]) -> list[Check]:
    """Judge whether the runtime and the image of a profile's container are here; nothing where it has none.

    Compute nodes may have what this machine lacks, and modules may bring it: that is sure for its own jobs alone.
    """
    image, runtime = profile.container.image, profile.container.runtime
    if image is None:
        return []
    sure = profile.scheduler == "local" and not (profile.modules or profile.setup)
    program = "enroot" if runtime == "pyxis" else runtime
    checks = [_runtime(runtime, which(program, path=env.get("PATH")), program, sure=sure)]
    if is_image_file(runtime, image):
        path = Path(image).expanduser()
        there = os.path.exists(path)
        fix = None if there else "hpcrun profile set NAME container.image=/path/of/the.sif"
        seen = f"{path}" if there else f"{path} does not exist: submit refuses such jobs"
        checks.append(Check(PROFILE, "image", "green" if there else "red", seen, fix))
    else:
        checks.append(Check(PROFILE, "image", "green", f"{image}, which {runtime} pulls; not checked"))
    return checks


def _runtime(runtime: str, found: str | None, program: str, *, sure: bool) -> Check:
    if found:
        return Check(PROFILE, "container", "green", f"{runtime}: {found}")
    level: Level = "red" if sure else "yellow"
    seen = f"{program} is not on this machine's PATH" + (
        "" if sure else "; it may be on the compute nodes or in a module"
    )
    return Check(
        PROFILE, "container", level, seen, "check it with a short job: hpcrun submit --wait --time 1 /bin/true"
    )
