"""The program of a job: its launcher and its container; or the program is a batch script."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.jobs.find_python import changes_path
from hpcrun.actions.ports import Surroundings
from hpcrun.errors import PlanError, UsageError
from hpcrun.files.reading import file_text, read_named_text
from hpcrun.job.launcher.choose_launcher import Here, choose_launcher
from hpcrun.job.launcher.launchers import find_calls
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.container import image_of, is_image_file
from hpcrun.job.resources.shape import for_gpu_type
from hpcrun.schedulers.job_steps import mpi_types

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch.batch_script import BatchScript

_SHELL_LINE = re.compile(r"#!.*\b(sh|bash|dash|zsh|ksh)\b")
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)


def with_launcher(
    request: JobRequest, profile: Profile, surroundings: Surroundings, *, of_role: bool = False
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and notes on the launcher.

    See ``choose_launcher``.
    """
    if request.preflight == "only":
        return request, ()
    argv = ("python", "-m") if request.module else ()
    folder = Path(request.workdir or surroundings.cwd)
    return choose_launcher(
        request,
        for_gpu_type(profile, request),
        find_calls(
            (*argv, request.script, *request.args), lambda name: _read_shell_script(folder / name)
        ),
        Here(
            surroundings.typed.words,
            lambda name: file_text(folder / name),
            lambda: mpi_types(surroundings.env),
        ),
        of_role=of_role,
    )


def _read_shell_script(path: Path) -> str | None:
    """Return the beginning of a shell script, None for another file."""
    text = file_text(path)
    if not text or "\0" in text or not (path.suffix in (".sh", ".bash") or _SHELL_LINE.match(text)):
        return None
    return text


def with_container(request: JobRequest, profile: Profile, surroundings: Surroundings) -> JobRequest:
    """Return the request with the image of its container as the job finds the image.

    Raises:
        PlanError: a local job needs a container program that is not on PATH.
        UsageError: there is no file of the image.
    """
    image, runtime = image_of(request, profile), profile.container.runtime
    if image is None:
        return request
    on_path = (
        changes_path(request, profile)
        or shutil.which(runtime, path=surroundings.env.get("PATH")) is not None
    )
    if profile.scheduler == "local" and runtime != "pyxis" and not on_path:
        raise PlanError(
            f"{runtime} is not on PATH here; the job's container needs it",
            hint="install it, or set container.runtime in the profile; --container none runs "
            "without",
        )
    if not is_image_file(runtime, image):
        return request
    path = Path(os.path.abspath(surroundings.cwd / os.path.expanduser(image)))
    if not os.path.exists(path):
        if request.container:
            whose = ""
        else:
            whose = f", which profile {profile.name!r} names"
        if runtime == "pyxis":
            pull = "import it: enroot import -o"
        else:
            pull = f"pull it: {runtime} pull"
        raise UsageError(
            f"there is no container image {path}{whose}",
            hint=f"{pull} {path.name} docker://...; or use another image: --container IMAGE",
        )
    return request.model_copy(update={"container": str(path)})


# --- submit train.sbatch: a person's batch script as it is ---------------------------------------


def find_batch_script(request: JobRequest, surroundings: Surroundings) -> BatchScript | None:
    """Return the batch script of a request, if its program is one with #SBATCH lines.

    Returns:
        The script; None for other programs.
    """
    path = Path(request.workdir or surroundings.cwd, request.script)
    if (
        request.module
        or request.preflight == "only"
        or request.script.endswith(".py")
        or not os.path.isfile(path)
    ):
        return None
    if _DIRECTIVE.search(file_text(path)):
        return read_script(path, request.args)
    return None


def read_script(path: Path, arguments: tuple[str, ...]) -> BatchScript:
    """Read a batch script without running it; refuse a script that sbatch would not take.

    Raises:
        UsageError: the file is not a text that sbatch takes.
    """
    from hpcrun.job.batch.batch_script import read_batch_script
    from hpcrun.job.text.shell_text import MOST_BYTES

    try:
        text = read_named_text(path, MOST_BYTES)
    except ValueError as error:
        raise UsageError(str(error), hint="give a batch script: a text that sbatch takes") from None
    return read_batch_script(path.name, text, arguments)
