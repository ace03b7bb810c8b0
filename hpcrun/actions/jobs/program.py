"""The program of a job: whether it can run at all, with which Python, and in which container."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Literal

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.errors import PlanError, UsageError, nearest
from hpcrun.job.command_words import SCRIPTS, interpreted, program_of
from hpcrun.job.launch_plan import image_of, is_image_file
from hpcrun.job.launcher_choice import choose_launcher
from hpcrun.job.launchers import BY_NAME, find_calls
from hpcrun.job.plan import PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import for_gpu_type
from hpcrun.ownership import danger_in_project
from hpcrun.schedulers.software import mpi_types

_SHELL_LINE = re.compile(r"#!.*\b(sh|bash|dash|zsh|ksh)\b")
_HEAD_BYTES = 65536
# What lies in the root of a project, and where uv, poetry (virtualenvs.in-project), venv and pixi put its environment.
_ROOT = ("pyproject.toml", "uv.lock", "poetry.lock", "pixi.toml", ".git")
_ENVIRONMENTS: dict[str, Literal["VIRTUAL_ENV", "CONDA_PREFIX"]] = {
    ".venv": "VIRTUAL_ENV", "venv": "VIRTUAL_ENV", ".pixi/envs/default": "CONDA_PREFIX"
}  # fmt: skip


def check_program(
    request: JobRequest, surroundings: Surroundings, *, path_may_change: bool, in_container: bool = False
) -> JobRequest:
    """Return the request with its script as the job will call it.

    Args:
        path_may_change: modules, set-up commands or an image may bring the program: it need not be on PATH here.
        in_container: an absolute path that is not there may be one of the image.

    Raises:
        UsageError: there is no such script, or it cannot be executed.
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
    _check_interpreted(request, surroundings, in_container=in_container)
    if os.path.isfile(path):
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
        if os.path.lexists(path):
            kind = "a FIFO" if path.is_fifo() else "a socket or a device" if path.exists() else "a link to nothing"
            raise UsageError(f"{script} is {kind}, not a script", hint="give a script: hpcrun submit ... train.py")
        raise UsageError(f"there is no script {script}" + _where(path, surroundings), hint=_other_script(path))
    if shutil.which(script, path=surroundings.env.get("PATH")) is None and not path_may_change:
        hint = _other_script(path) or _other_words(request)
        raise UsageError(f"{script} is neither a file here nor a program on PATH", hint=hint)
    return request


def _check_interpreted(request: JobRequest, surroundings: Surroundings, *, in_container: bool) -> None:
    """Refuse ``bash run.sh`` and ``python -u train.py`` without such a script.

    Raises:
        UsageError: there is none.
    """
    inner = interpreted((request.script, *request.args))
    if inner is None or inner.option or not inner.words[0].endswith(SCRIPTS) or "{" in inner.words[0]:
        return  # {NAME} is a parameter of a sweep
    script = inner.words[0]
    path = Path(request.workdir or surroundings.cwd, script)
    by_path = "/" not in script and shutil.which(script, path=surroundings.env.get("PATH"))
    if not (os.path.exists(path) or by_path or (in_container and script.startswith("/"))):
        raise UsageError(f"there is no script {script}" + _where(path, surroundings), hint=_other_script(path))


def _where(path: Path, surroundings: Surroundings) -> str:
    return "" if path.is_absolute() and path.parent == surroundings.cwd else f" (looked for {path})"


def _other_script(path: Path) -> str | None:
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".py", ".sh")]
    except OSError:
        return None
    close = nearest(path.name, beside)
    return f"did you mean {close}?" if close else None


def _other_words(request: JobRequest) -> str | None:
    """Return what to type instead of a command line in quotes, or of an interpreter or launcher that is not here."""
    words = request.script.split()
    if len(words) > 1 and not request.args:
        return f"leave out the quotes: hpcrun submit ... {shlex.join(words)}"
    rest = program_of((request.script, *request.args))
    name = PurePath(request.script).name
    if name in BY_NAME:
        script = next((number for number, word in enumerate(request.args) if word.endswith(SCRIPTS)), None)
        own = (
            f"hpcrun submit ... {shlex.join(request.args[script:])}"
            if script is not None
            else "hpcrun submit ... train.py"
        )
        return f"hpcrun starts the ranks itself: {own}; or activate the environment that has {name}"
    if rest != (request.script, *request.args):
        return f"hpcrun uses the job's own Python: hpcrun submit ... {shlex.join(rest)}"
    return None


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

    calls = find_calls((*argv, request.script, *request.args), lambda name: _read_shell_script(folder / name))
    return choose_launcher(
        request,
        for_gpu_type(profile, request),
        calls,
        surroundings.typed.words,
        lambda name: file_text(folder / name),
        lambda: mpi_types(surroundings.env),
    )


def _read_shell_script(path: Path) -> str | None:
    """Return the beginning of a shell script, None where the file is none."""
    text = file_text(path)
    if not text or "\0" in text or not (path.suffix in (".sh", ".bash") or _SHELL_LINE.match(text)):
        return None
    return text


def file_text(path: Path) -> str:
    """Return the beginning of a file as text, nothing if there is none."""
    return _head(path).decode("utf-8", "replace")


def find_python(request: JobRequest, profile: Profile, surroundings: Surroundings) -> PythonEnvironment:
    """Return the Python of a job: requested, of the active environment, the project, the profile, or with torch."""
    env = surroundings.env
    project = project_folders(Path(request.workdir or surroundings.cwd))
    if request.uv:
        by_job = profile.modules or profile.setup or request.load or request.setup
        return _uv_environment(request, project, env, path_may_change=bool(by_job))
    if request.python:
        return PythonEnvironment(request.python, "--python")
    for variable, kind in (("VIRTUAL_ENV", "virtual environment"), ("CONDA_PREFIX", "conda environment")):
        prefix = env.get(variable)
        if prefix and Path(prefix, "bin/python").exists():
            return PythonEnvironment(f"{prefix}/bin/python", kind, prefix, variable)  # type: ignore[arg-type]
    if found := _project_python(project):
        return found
    if profile.python:
        return PythonEnvironment(profile.python, f"profile {profile.name}")
    if surroundings.own_python:
        return PythonEnvironment(surroundings.own_python, "hpcrun's Python, which has torch")
    return PythonEnvironment("python3", "the first on the job's PATH")


def missing_torch_note(python: PythonEnvironment, env: Mapping[str, str]) -> str | None:
    """Return that a job's environment has no torch, which torchrun needs; None if it has, or if that is not certain.

    Nothing of the environment is run: a cloned project may have any program in it. Its files decide.
    """
    if python.prefix is None or python.uv_project or not _lacks_torch(Path(python.prefix), env):
        return None
    return (
        f"{python.prefix} ({python.kind}) has no torch, and torchrun needs it: install it there, activate another "
        "environment, or name a Python with --python PATH"
    )


def _lacks_torch(prefix: Path, env: Mapping[str, str]) -> bool:
    own = [*prefix.glob("lib*/python3*/site-packages")]
    settings = _head(prefix / "pyvenv.cfg")
    if not own or re.search(rb"(?mi)^include-system-site-packages\s*=\s*true", settings):
        return False
    folders = [*own, *map(Path, filter(None, env.get("PYTHONPATH", "").split(":")))]
    if not settings:  # an environment of conda also has the packages of the user
        folders += Path(env.get("HOME", "/")).glob(".local/lib/python3*/site-packages")
    links = {path: _head(path) for folder in own for path in folder.glob("*.pth")}
    if any(b"torch" in text for text in links.values()):  # it, or something of it, is installed for development
        return False
    folders += [path.parent / os.fsdecode(line) for path, text in links.items() for line in text.split(b"\n") if line]
    return not any(os.path.isdir(folder / "torch") for folder in folders)


def _head(path: Path) -> bytes:
    """Return the beginning of a regular file, nothing if there is none."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a FIFO would wait for its writer
            return b""
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""


def project_folders(folder: Path) -> list[Path]:
    """Return a folder and those above it up to the project's root; the folder alone if it is in no project."""
    places = [folder, *takewhile(_is_not_of_all, folder.parents)]
    root = next((number for number, place in enumerate(places) if any((place / name).exists() for name in _ROOT)), 0)
    return places[: root + 1]


def _is_not_of_all(folder: Path) -> bool:
    """Whether not everybody can write to a folder: in /tmp, anybody could add the mark of a project."""
    try:
        return not folder.stat().st_mode & stat.S_IWOTH
    except OSError:
        return False


def _uv_environment(
    request: JobRequest, folders: Sequence[Path], env: Mapping[str, str], *, path_may_change: bool
) -> PythonEnvironment:
    """Return the environment that each node makes of a project's uv.lock.

    It has the same path on all nodes, so that scripts and records can name it; jobs with the same lock share it.

    Raises:
        UsageError: there is no uv.lock or no uv, or another option chooses the Python.
    """
    if request.python or request.container not in (None, "none"):
        other = "--python" if request.python else "--container"
        raise UsageError(f"--uv and {other} cannot be combined: both choose the job's Python")
    project = next((folder for folder in folders if (folder / "uv.lock").is_file()), None)
    if project is None:
        raise UsageError(
            f"--uv: there is no uv.lock in {folders[0]}, nor above it in the project", hint="uv lock makes one"
        )
    if shutil.which("uv", path=env.get("PATH")) is None and not path_may_change:
        raise UsageError(
            "--uv: there is no uv on PATH", hint="install it where all nodes see it, or load its module: --load"
        )
    digest = hashlib.sha256(os.fsencode(project) + b"\0" + (project / "uv.lock").read_bytes()).hexdigest()
    place = env.get("HPCRUN_UV_DIR") or f"/tmp/hpcrun-uv-{os.getuid()}"
    prefix = f"{place}/{digest[:16]}"
    return PythonEnvironment(f"{prefix}/bin/python", f"uv.lock of {project}, installed on each node", prefix,
                             uv_project=str(project))  # fmt: skip


def _project_python(folders: Sequence[Path]) -> PythonEnvironment | None:
    for folder in folders:
        for name, variable in _ENVIRONMENTS.items():
            prefix = folder / name
            if (prefix / "bin/python").exists() and _is_of_project(prefix, folder):
                kind = f"{name.partition('/')[0]} of the project, since no environment is active"
                return PythonEnvironment(f"{prefix}/bin/python", kind, str(prefix), variable, of_project=True)
    return None


def _is_of_project(prefix: Path, folder: Path) -> bool:
    """Whether only those who can change a project could have made an environment in it: not another user of /tmp."""
    try:
        return danger_in_project(prefix / "bin/python", folder) is None
    except OSError:
        return False


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
