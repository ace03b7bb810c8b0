"""The Python of a job.

It is that of --python or --uv, of the active environment, of the project, or of the profile; else
the one with torch.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

from hpcrun.actions.ports import Surroundings
from hpcrun.errors import UsageError
from hpcrun.files.ownership import danger_in_project
from hpcrun.files.reading import file_head
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest

# The files in the root of a project, and where uv, poetry (virtualenvs.in-project), venv and pixi
# put its environment.
_ROOT = ("pyproject.toml", "uv.lock", "poetry.lock", "pixi.toml", ".git")
_ENVIRONMENTS: dict[str, Literal["VIRTUAL_ENV", "CONDA_PREFIX"]] = {
    ".venv": "VIRTUAL_ENV",
    "venv": "VIRTUAL_ENV",
    ".pixi/envs/default": "CONDA_PREFIX",
}


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
                "install it there, activate another environment, or name a Python with "
                "--python PATH"
            )


def _lacks(package: str, prefix: Path, env: Mapping[str, str]) -> bool:
    """Whether the files of an environment show that the environment lacks a package."""
    packages = list(prefix.glob("lib*/python3*/site-packages"))
    settings = file_head(prefix / "pyvenv.cfg")
    if not packages or re.search(rb"(?mi)^include-system-site-packages\s*=\s*true", settings):
        return False
    folders = list(packages)
    folders += [Path(path) for path in env.get("PYTHONPATH", "").split(":") if path]
    if not settings:  # an environment of conda also has the packages of the user
        folders += Path(env.get("HOME", "/")).glob(".local/lib/python3*/site-packages")
    for folder in packages:
        for file in folder.glob("*.pth"):
            text = file_head(file)
            if package.encode() in text:
                return False  # the package or a part of it is installed for development
            folders += [folder / os.fsdecode(line) for line in text.split(b"\n") if line]
    return not any(os.path.isdir(folder / package) for folder in folders)


def _project_folders(folder: Path) -> list[Path]:
    """Return a folder and its parents up to the project's root.

    Returns:
        The folders; only the folder itself if the folder is in no project.
    """
    places = [folder, *takewhile(_is_not_of_all, folder.parents)]
    for number, place in enumerate(places):
        if any(os.path.exists(place / name) for name in _ROOT):
            return places[: number + 1]
    return [folder]


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
    lock = (project / "uv.lock").read_bytes()
    digest = hashlib.sha256(os.fsencode(project) + b"\0" + lock).hexdigest()
    # a folder of hpcrun's own: the job removes what is old in it
    environments = f"{env.get('HPCRUN_UV_DIR') or '/tmp'}/hpcrun-uv-{os.getuid()}"
    prefix = f"{environments}/{digest[:16]}"
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
