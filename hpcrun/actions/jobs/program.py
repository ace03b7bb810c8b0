"""The program of a job: whether it can run at all, with which Python, and in which container."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.errors import PlanError, UsageError, nearest
from hpcrun.job.container import image_of, is_image_file
from hpcrun.job.gpu_types import for_gpu_type
from hpcrun.job.launcher_choice import choose_launcher
from hpcrun.job.launchers import find_calls
from hpcrun.job.plan import PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest

_DIRECTIVE = re.compile(rb"^#SBATCH\s", re.MULTILINE)
_SHELL_LINE = re.compile(r"#!.*\b(sh|bash|dash|zsh|ksh)\b")
_HEAD_BYTES = 65536


def check_program(
    request: JobRequest, surroundings: Surroundings, *, path_may_change: bool, in_container: bool = False
) -> JobRequest:
    """Return the request with its script as the job will call it.

    Args:
        path_may_change: modules, set-up commands or an image may bring the program: it need not be on PATH here.
        in_container: an absolute path that is not there may be one of the image.

    Raises:
        UsageError: there is no such script, it cannot be executed, or it is a batch script of its own.
    """
    if request.module or request.preflight == "only":
        return request
    script = request.script
    path = Path(request.workdir or surroundings.cwd, script)
    if os.path.isdir(path):  # pathlib's own fails of a name that is too long, until Python 3.14
        raise UsageError(
            f"{script} is a folder",
            hint=f"give the script in it: hpcrun submit ... {script.rstrip('/')}/train.py",
        )
    if os.path.isfile(path):
        _refuse_batch_script(script, path)
        if script.endswith(".py"):
            return request
        if not path.stat().st_mode & 0o111:
            raise UsageError(f"{script} is not executable", hint=f"chmod +x {script}, or name its interpreter: "
                             f"hpcrun submit ... bash {script}")  # fmt: skip
        # as sbatch takes it: a program in this folder needs no ./
        return request if "/" in script else request.model_copy(update={"script": f"./{script}"})
    if in_container and path.is_absolute() and script.startswith("/"):
        return request
    if script.endswith(".py") or "/" in script:
        raise UsageError(f"there is no script {script}" + _where(path, surroundings), hint=_other_script(path))
    if shutil.which(script, path=surroundings.env.get("PATH")) is None and not path_may_change:
        raise UsageError(f"{script} is neither a file here nor a program on PATH", hint=_other_script(path))
    return request


def _where(path: Path, surroundings: Surroundings) -> str:
    return "" if path.is_absolute() and path.parent == surroundings.cwd else f" (looked for {path})"


def _other_script(path: Path) -> str | None:
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".py", ".sh")]
    except OSError:
        return None
    close = nearest(path.name, beside)
    return f"did you mean {close}?" if close else None


def _refuse_batch_script(script: str, path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"#!") and not script.endswith(".py") and _DIRECTIVE.search(head):
        raise UsageError(
            f"{script} has #SBATCH lines, which hpcrun does not read",
            hint=f"submit it as it is with `sbatch {script}`, or remove the lines and give the options to hpcrun",
        )


def with_launcher(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and what to say of that.

    Raises:
        UsageError: the program starts what hpcrun starts itself, or nothing would join its nodes.
    """
    if request.preflight == "only":
        return request, ()
    argv = ("python", "-m") if request.module else ()
    folder = Path(request.workdir or surroundings.cwd)

    def read(name: str) -> str | None:
        text = _read_shell_script(folder / name)
        # check_program says more of a batch script
        return None if text and name == request.script and _DIRECTIVE.search(text.encode()) else text

    calls = find_calls((*argv, request.script, *request.args), read)
    return choose_launcher(request, for_gpu_type(profile, request), calls, surroundings.typed.words)


def _read_shell_script(path: Path) -> str | None:
    """Return the beginning of a shell script, None where the file is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would wait for its writer
            return None
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return None
    text = head.decode("utf-8", "replace")
    if "\0" in text or not (path.suffix in (".sh", ".bash") or _SHELL_LINE.match(text)):
        return None
    return text


def find_python(request: JobRequest, profile: Profile, surroundings: Surroundings) -> PythonEnvironment:
    """Return the Python of a job: the one asked for, the active environment's, the profile's, or one with torch."""
    env = surroundings.env
    if request.python:
        return PythonEnvironment(request.python, "--python")
    for variable, kind in (("VIRTUAL_ENV", "virtual environment"), ("CONDA_PREFIX", "conda environment")):
        prefix = env.get(variable)
        if prefix and Path(prefix, "bin/python").exists():
            return PythonEnvironment(f"{prefix}/bin/python", kind, prefix, variable)  # type: ignore[arg-type]
    if profile.python:
        return PythonEnvironment(profile.python, f"profile {profile.name}")
    if surroundings.own_python:
        return PythonEnvironment(surroundings.own_python, "hpcrun's Python, which has torch")
    return PythonEnvironment("python3", "the first on the job's PATH")


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
    on_path = shutil.which(runtime, path=surroundings.env.get("PATH")) is not None
    if profile.scheduler == "local" and runtime != "pyxis" and not by_job and not on_path:
        raise PlanError(
            f"{runtime} is not on PATH here; the job's container needs it",
            hint="install it, or set container.runtime in the profile; --container none runs without",
        )
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
