"""Which Python a job uses: --python, --uv, the active environment, the project's, the profile's, or one with torch."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Literal

from hpcrun.actions.ports import Surroundings
from hpcrun.errors import UsageError
from hpcrun.job.plan import PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.ownership import danger_in_project
from hpcrun.reading import open_regular

_HEAD_BYTES = 65536
# The files in the root of a project, and where uv, poetry (virtualenvs.in-project), venv and pixi put its environment.
_ROOT = ("pyproject.toml", "uv.lock", "poetry.lock", "pixi.toml", ".git")
_ENVIRONMENTS: dict[str, Literal["VIRTUAL_ENV", "CONDA_PREFIX"]] = {
    ".venv": "VIRTUAL_ENV", "venv": "VIRTUAL_ENV", ".pixi/envs/default": "CONDA_PREFIX"
}  # fmt: skip


def find_python(
    request: JobRequest, profile: Profile, surroundings: Surroundings, *, in_container: bool = False
) -> PythonEnvironment:
    """Return the Python of a job; for a container that of the host, since --python then names the image's Python."""
    env = surroundings.env
    project = _project_folders(Path(request.workdir or surroundings.cwd))
    if request.uv:
        return _uv_environment(request, project, env, path_may_change=changes_path(request, profile))
    if request.python and not in_container:
        return PythonEnvironment(request.python, "--python")
    for variable, kind in (("VIRTUAL_ENV", "virtual environment"), ("CONDA_PREFIX", "conda environment")):
        prefix = env.get(variable)
        if prefix and Path(prefix, "bin/python").exists():
            return PythonEnvironment(f"{prefix}/bin/python", kind, prefix, variable)  # type: ignore[arg-type]
    if python := _project_python(project):
        return python
    if profile.python:
        return PythonEnvironment(profile.python, f"profile {profile.name}")
    if surroundings.own_python:
        return PythonEnvironment(surroundings.own_python, "hpcrun's Python, which has torch")
    return PythonEnvironment("python3", "the first on the job's PATH")


def changes_path(request: JobRequest, profile: Profile) -> bool:
    """Whether modules or set-up commands may bring programs that are not on PATH here."""
    return bool(profile.modules or profile.setup or request.load or request.setup)


def missing_torch_note(python: PythonEnvironment, env: Mapping[str, str]) -> str | None:
    """Return a note if a job's environment surely lacks torch, which torchrun needs; else None.

    No program of the environment runs, since a cloned project may contain any program: its files decide.
    """
    if python.prefix is None or python.uv_project or not _lacks_torch(Path(python.prefix), env):
        return None
    return (
        f"{python.prefix} ({python.kind}) has no torch, and torchrun needs it: install it there, activate another "
        "environment, or name a Python with --python PATH"
    )


def _lacks_torch(prefix: Path, env: Mapping[str, str]) -> bool:
    packages = [*prefix.glob("lib*/python3*/site-packages")]
    settings = file_head(prefix / "pyvenv.cfg")
    if not packages or re.search(rb"(?mi)^include-system-site-packages\s*=\s*true", settings):
        return False
    folders = [*packages, *map(Path, filter(None, env.get("PYTHONPATH", "").split(":")))]
    if not settings:  # an environment of conda also has the packages of the user
        folders += Path(env.get("HOME", "/")).glob(".local/lib/python3*/site-packages")
    links = {path: file_head(path) for folder in packages for path in folder.glob("*.pth")}
    if any(b"torch" in text for text in links.values()):  # torch, or a part of it, is installed for development
        return False
    folders += [path.parent / os.fsdecode(line) for path, text in links.items() for line in text.split(b"\n") if line]
    return not any(os.path.isdir(folder / "torch") for folder in folders)


def _project_folders(folder: Path) -> list[Path]:
    """Return a folder and its parents up to the project's root; only the folder if it is in no project."""
    places = [folder, *takewhile(_is_not_of_all, folder.parents)]
    root = next((number for number, place in enumerate(places) if any((place / name).exists() for name in _ROOT)), 0)
    return places[: root + 1]


def _is_not_of_all(folder: Path) -> bool:
    """Whether some users cannot write to a folder: in /tmp, anybody could add the files of a project."""
    try:
        return not folder.stat().st_mode & stat.S_IWOTH
    except OSError:
        return False


def _uv_environment(
    request: JobRequest, folders: Sequence[Path], env: Mapping[str, str], *, path_may_change: bool
) -> PythonEnvironment:
    """Return the environment that each node makes from a project's uv.lock.

    It has the same path on all nodes, so that scripts and records can name it; jobs with the same lock share it.
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
    prefix = f"{env.get('HPCRUN_UV_DIR') or f'/tmp/hpcrun-uv-{os.getuid()}'}/{digest[:16]}"
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
    """Whether only users who can change the project could have made an environment in it, and no other user of /tmp."""
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
