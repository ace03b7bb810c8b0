"""The program of a job: whether it can run, and how.

The program has a launcher, a Python, perhaps a container; or the program is a batch script.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Literal

from hpcrun.actions.ports import Surroundings
from hpcrun.errors import PlanError, UsageError, nearest
from hpcrun.files.ownership import danger_in_project
from hpcrun.files.reading import open_regular, read_named_text
from hpcrun.job.launcher.choose_launcher import Here, choose_launcher
from hpcrun.job.launcher.launchers import BY_NAME, SCRIPTS, find_calls, interpreted, program_of
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.container import image_of, is_image_file
from hpcrun.job.resources.shape import for_gpu_type
from hpcrun.schedulers.srun_options import mpi_types

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch.batch_script import BatchScript

_SHELL_LINE = re.compile(r"#!.*\b(sh|bash|dash|zsh|ksh)\b")
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)
_HEAD_BYTES = 65536
# The files in the root of a project, and where uv, poetry (virtualenvs.in-project), venv and pixi
# put its environment.
_ROOT = ("pyproject.toml", "uv.lock", "poetry.lock", "pixi.toml", ".git")
_ENVIRONMENTS: dict[str, Literal["VIRTUAL_ENV", "CONDA_PREFIX"]] = {
    ".venv": "VIRTUAL_ENV",
    "venv": "VIRTUAL_ENV",
    ".pixi/envs/default": "CONDA_PREFIX",
}


def check_program(
    request: JobRequest,
    surroundings: Surroundings,
    *,
    path_may_change: bool,
    in_container: bool = False,
) -> JobRequest:
    """Return the request with its script as the job will call the script.

    A script that is missing or cannot run is refused.

    Args:
        request: the request of the job, with the script or the program.
        surroundings: give the folder and the PATH of the user.
        path_may_change: modules, set-up commands or an image may bring the program: it need not be
            on PATH here.
        in_container: an absolute path that does not exist here may exist in the image.

    Raises:
        UsageError: the script is a folder, is not executable, is not a regular file, or is neither
            a file nor a program on PATH.
    """  # noqa: DOC501
    if request.module or request.preflight == "only":
        return request
    script = request.script
    path = Path(request.workdir or surroundings.cwd, script)
    # pathlib's own method fails for a name that is too long, until Python 3.14
    if os.path.isdir(path):
        raise UsageError(
            f"{script} is a folder",
            hint=f"give the script in it: hpcrun submit ... {script.rstrip('/')}/train.py",
        )
    _check_interpreted(request, surroundings, in_container=in_container)
    if os.path.isfile(path):
        if script.endswith(".py"):
            return request
        if not path.stat().st_mode & 0o111:
            raise UsageError(
                f"{script} is not executable",
                hint=f"chmod +x {script}, or name its interpreter: hpcrun submit ... bash {script}",
            )
        # as sbatch takes it: a program in this folder needs no ./
        if "/" in script:
            return request
        return request.model_copy(update={"script": f"./{script}"})
    if in_container and script.startswith("/"):
        return request
    if script.endswith(".py") or "/" in script:
        if os.path.lexists(path):
            raise UsageError(
                f"{script} is {_kind_of_file(path)}, not a script",
                hint="give a script: hpcrun submit ... train.py",
            )
        raise _no_script(script, path, surroundings)
    if shutil.which(script, path=surroundings.env.get("PATH")) is None and not path_may_change:
        hint = _close_script(path) or _other_words(request)
        raise UsageError(f"{script} is neither a file here nor a program on PATH", hint=hint)
    return request


def _kind_of_file(path: Path) -> str:
    """Return what an existing path is that is neither a file nor a folder."""
    if path.is_fifo():
        return "a FIFO"
    if os.path.exists(path):
        return "a socket or a device"
    return "a link to nothing"


def _check_interpreted(
    request: JobRequest, surroundings: Surroundings, *, in_container: bool
) -> None:
    """Refuse ``bash run.sh`` and ``python -u train.py`` without such a script.

    Raises:
        UsageError: the script does not exist.
    """  # noqa: DOC501
    inner = interpreted((request.script, *request.args))
    if (
        inner is None
        or inner.option
        or not inner.words[0].endswith(SCRIPTS)
        or "{" in inner.words[0]
    ):
        return  # {NAME} is a parameter of a sweep
    script = inner.words[0]
    path = Path(request.workdir or surroundings.cwd, script)
    by_path = "/" not in script and shutil.which(script, path=surroundings.env.get("PATH"))
    if not (os.path.exists(path) or by_path or (in_container and script.startswith("/"))):
        raise _no_script(script, path, surroundings)


def _no_script(script: str, path: Path, surroundings: Surroundings) -> UsageError:
    if path.is_absolute() and path.parent == surroundings.cwd:
        where = ""
    else:
        where = f" (looked for {path})"
    return UsageError(f"there is no script {script}{where}", hint=_close_script(path))


def _close_script(path: Path) -> str | None:
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".py", ".sh")]
    except OSError:
        return None
    close = nearest(path.name, beside)
    return f"did you mean {close}?" if close else None


def _other_words(request: JobRequest) -> str | None:
    """Return what to type instead of a command line that hpcrun cannot use.

    The command line is in quotes, or its interpreter or launcher is missing.
    """
    words = request.script.split()
    if len(words) > 1 and not request.args:
        return f"leave out the quotes: hpcrun submit ... {shlex.join(words)}"
    rest = program_of((request.script, *request.args))
    name = PurePath(request.script).name
    if name in BY_NAME:
        script = next(
            (number for number, argument in enumerate(request.args) if argument.endswith(SCRIPTS)),
            None,
        )
        if script is None:
            program = "train.py"
        else:
            program = shlex.join(request.args[script:])
        return (
            f"hpcrun starts the ranks itself: hpcrun submit ... {program}; or activate the "
            f"environment that has {name}"
        )
    if rest != (request.script, *request.args):
        return f"hpcrun uses the job's own Python: hpcrun submit ... {shlex.join(rest)}"
    return None


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


def file_text(path: Path) -> str:
    """Return the beginning of a file as text; empty if it cannot be read."""
    return file_head(path).decode("utf-8", "replace")


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


# --- which Python: --python, --uv, the active environment, the project's, the profile's, or one
# with torch -------


def find_python(
    request: JobRequest, profile: Profile, surroundings: Surroundings, *, in_container: bool = False
) -> PythonEnvironment:
    """Return the Python of a job.

    For a container, this is the Python of the host, since --python then names the image's Python.
    """
    env = surroundings.env
    project = _project_folders(Path(request.workdir or surroundings.cwd))
    if request.uv:
        return _uv_environment(
            request, project, env, path_may_change=changes_path(request, profile)
        )
    if request.python and not in_container:
        return PythonEnvironment(request.python, "--python")
    for variable, kind in (
        ("VIRTUAL_ENV", "virtual environment"),
        ("CONDA_PREFIX", "conda environment"),
    ):
        prefix = env.get(variable)
        if prefix and os.path.exists(f"{prefix}/bin/python"):
            executable = f"{prefix}/bin/python"
            return PythonEnvironment(executable, kind, prefix, variable)  # type: ignore[arg-type]
    python = _project_python(project)
    if python:
        return python
    if profile.python:
        return PythonEnvironment(profile.python, f"profile {profile.name}")
    if surroundings.own_python:
        return PythonEnvironment(surroundings.own_python, "hpcrun's Python, which has torch")
    return PythonEnvironment("python3", "the first on the job's PATH")


def changes_path(request: JobRequest, profile: Profile) -> bool:
    """Whether modules or set-up commands may bring programs that are not on PATH here."""
    return bool(profile.modules or profile.setup or request.load or request.setup)


def missing_packages(
    launchers: Collection[str], python: PythonEnvironment, env: Mapping[str, str]
) -> Iterator[str]:
    """Yield a note for each package that a job's environment surely lacks.

    Only packages that one of the launchers needs count. No program of the environment runs, since a
    cloned project may contain any program: its files decide.
    """
    if python.prefix is None or python.uv_project:
        return
    for launcher, package in (("torchrun", "torch"), ("ray", "ray")):
        if launcher in launchers and _lacks(package, Path(python.prefix), env):
            yield (
                f"{python.prefix} ({python.kind}) has no {package}, and {launcher} needs it: "
                "install it there, "
                "activate another environment, or name a Python with --python PATH"
            )


def _lacks(package: str, prefix: Path, env: Mapping[str, str]) -> bool:
    packages = [*prefix.glob("lib*/python3*/site-packages")]
    settings = file_head(prefix / "pyvenv.cfg")
    if not packages or re.search(rb"(?mi)^include-system-site-packages\s*=\s*true", settings):
        return False
    folders = [*packages, *map(Path, filter(None, env.get("PYTHONPATH", "").split(":")))]
    if not settings:  # an environment of conda also has the packages of the user
        folders += Path(env.get("HOME", "/")).glob(".local/lib/python3*/site-packages")
    links = {path: file_head(path) for folder in packages for path in folder.glob("*.pth")}
    # or a part of it is installed for development
    if any(package.encode() in text for text in links.values()):
        return False
    folders += [
        path.parent / os.fsdecode(line)
        for path, text in links.items()
        for line in text.split(b"\n")
        if line
    ]
    return not any(os.path.isdir(folder / package) for folder in folders)


def _project_folders(folder: Path) -> list[Path]:
    """Return a folder and its parents up to the project's root.

    Returns:
        The folders; only the folder itself if the folder is in no project.
    """
    places = [folder, *takewhile(_is_not_of_all, folder.parents)]
    root = next(
        (
            number
            for number, place in enumerate(places)
            if any(os.path.exists(place / name) for name in _ROOT)
        ),
        0,
    )
    return places[: root + 1]


def _is_not_of_all(folder: Path) -> bool:
    """Return whether some users cannot write to a folder.

    In /tmp, anybody could add the files of a project.
    """
    try:
        return not folder.stat().st_mode & stat.S_IWOTH
    except OSError:
        return False


def _uv_environment(
    request: JobRequest, folders: Sequence[Path], env: Mapping[str, str], *, path_may_change: bool
) -> PythonEnvironment:
    """Return the environment that each node makes from a project's uv.lock.

    The environment has the same path on all nodes, so that scripts and records can name the path;
    jobs with the same lock share the environment.

    Raises:
        UsageError: --uv is used together with --python or --container, or there is no uv.lock, or
            no uv on PATH.
    """
    if request.python or request.container not in (None, "none"):
        other = "--python" if request.python else "--container"
        raise UsageError(f"--uv and {other} cannot be combined: both choose the job's Python")
    project = next((folder for folder in folders if os.path.isfile(folder / "uv.lock")), None)
    if project is None:
        raise UsageError(
            f"--uv: there is no uv.lock in {folders[0]}, nor above it in the project",
            hint="uv lock makes one",
        )
    if shutil.which("uv", path=env.get("PATH")) is None and not path_may_change:
        raise UsageError(
            "--uv: there is no uv on PATH",
            hint="install it where all nodes see it, or load its module: --load",
        )
    digest = hashlib.sha256(
        os.fsencode(project) + b"\0" + (project / "uv.lock").read_bytes()
    ).hexdigest()
    prefix = f"{env.get('HPCRUN_UV_DIR') or f'/tmp/hpcrun-uv-{os.getuid()}'}/{digest[:16]}"
    return PythonEnvironment(
        f"{prefix}/bin/python",
        f"uv.lock of {project}, installed on each node",
        prefix,
        uv_project=str(project),
    )


def _project_python(folders: Sequence[Path]) -> PythonEnvironment | None:
    for folder in folders:
        for name, variable in _ENVIRONMENTS.items():
            prefix = folder / name
            if os.path.exists(prefix / "bin/python") and _is_of_project(prefix, folder):
                kind = f"{name.partition('/')[0]} of the project, since no environment is active"
                return PythonEnvironment(
                    f"{prefix}/bin/python", kind, str(prefix), variable, of_project=True
                )
    return None


def _is_of_project(prefix: Path, folder: Path) -> bool:
    """Return whether only users who can change the project could have made an environment in it.

    No other user of /tmp could have made the environment.
    """
    try:
        return danger_in_project(prefix / "bin/python", folder) is None
    except OSError:
        return False


def file_head(path: Path) -> bytes:
    """Return the beginning of a regular file; empty if there is none."""
    try:
        with open_regular(path) as file:
            return file.read(_HEAD_BYTES)
    except (OSError, ValueError):
        return b""
