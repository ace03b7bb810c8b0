"""The Python of a job: where it is found, and what it lacks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.actions.jobs.find_python import find_python, missing_packages
from hpcrun.errors import UsageError
from hpcrun.job.plan.job_plan import PythonEnvironment
from tests.unit.builders import request, slurm_profile, surroundings, write


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    write(path, text).chmod(mode)
    return path


def environment(folder: Path, name: str) -> str:
    program(folder / name / "bin/python", "#!/bin/sh\n")
    return str(folder / name)


def prefix(cwd: Path, **env: str) -> str | None:
    """The environment of a job that is submitted in this folder."""
    return find_python(request(), slurm_profile(), surroundings(cwd, env)).prefix


@pytest.mark.parametrize(
    ("asked", "profile", "env", "own", "executable", "kind", "variable"),
    [
        (
            {"python": "/my/python"},
            "/site",
            {"VIRTUAL_ENV": "env"},
            None,
            "/my/python",
            "--python",
            None,
        ),
        (
            {},
            "/site",
            {"VIRTUAL_ENV": "env"},
            None,
            "env/bin/python",
            "virtual environment",
            "VIRTUAL_ENV",
        ),
        (
            {},
            "/site",
            {"CONDA_PREFIX": "env"},
            None,
            "env/bin/python",
            "conda environment",
            "CONDA_PREFIX",
        ),
        # a virtual environment inside a conda environment is the one that is meant
        (
            {},
            None,
            {"VIRTUAL_ENV": "env", "CONDA_PREFIX": "conda"},
            None,
            "env/bin/python",
            "virtual environment",
            "VIRTUAL_ENV",
        ),
        ({}, "/site", {"VIRTUAL_ENV": "gone"}, "/own", "/site", "profile big", None),
        # stat fails otherwise
        ({}, "/site", {"VIRTUAL_ENV": "x" * 300}, "/own", "/site", "profile big", None),
        ({}, None, {}, "/own", "/own", "hpcrun's Python, which has torch", None),
        ({}, None, {}, None, "python3", "the first on the job's PATH", None),
    ],
)
def test_the_python_of_a_job_is_the_first_of_these(
    asked: dict[str, str],
    profile: str | None,
    env: dict[str, str],
    own: str | None,
    executable: str,
    kind: str,
    variable: str | None,
    tmp_path: Path,
) -> None:
    for name in ("env", "conda"):
        environment(tmp_path, name)
    around = surroundings(
        tmp_path, {key: f"{tmp_path}/{name}" for key, name in env.items()}, own_python=own
    )
    python = find_python(
        request(**asked), slurm_profile(**({"python": profile} if profile else {})), around
    )
    expected = f"{tmp_path}/{executable}" if variable else executable
    assert python.executable == expected
    assert python.kind == kind
    assert python.prefix == (f"{tmp_path}/env" if variable else None)
    assert variable is None or python.variable == variable


@pytest.mark.parametrize(
    ("name", "variable", "kind"),
    [
        (".venv", "VIRTUAL_ENV", ".venv of the project"),
        ("venv", "VIRTUAL_ENV", "venv of the project"),
        (".pixi/envs/default", "CONDA_PREFIX", ".pixi of the project"),
    ],
)
def test_the_project_s_environment_is_used_if_none_is_active(
    name: str, variable: str, kind: str, tmp_path: Path
) -> None:
    made = environment(tmp_path, name)
    write(tmp_path / "pyproject.toml", "")
    below = write(tmp_path / "src/deep/x", "").parent
    for asked, cwd in ((request(), below), (request(workdir=str(below)), Path("/"))):
        found = find_python(asked, slurm_profile(python="/site/python"), surroundings(cwd, {}))
        assert found.executable == f"{made}/bin/python"
        assert found.prefix == made
        assert found.variable == variable
        assert found.kind == f"{kind}, since no environment is active"
        assert found.of_project is True
    active = environment(tmp_path, "other")
    assert prefix(below, VIRTUAL_ENV=active) == active
    assert (
        find_python(request(python="/x"), slurm_profile(), surroundings(below, {})).executable
        == "/x"
    )


def test_neither_a_link_nor_a_mark_in_a_folder_that_all_can_write_is_of_a_project(
    tmp_path: Path,
) -> None:
    everybodys, mine = tmp_path / "tmp", tmp_path / "tmp/me/work"
    mine.mkdir(parents=True)
    everybodys.chmod(0o1777)
    write(everybodys / "pyproject.toml", "")
    environment(everybodys, ".venv")
    assert prefix(mine) is None
    (mine / ".git").mkdir()
    # as a repository may have it: what it leads to anybody can change
    (mine / ".venv").symlink_to(everybodys)
    python = everybodys / "bin/python"
    python.parent.mkdir()
    python.symlink_to(everybodys / ".venv/bin/python")
    python.parent.chmod(0o777)
    assert prefix(mine) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_an_environment_that_another_user_made_is_not_used(tmp_path: Path) -> None:
    made = environment(tmp_path, ".venv")
    assert prefix(tmp_path) == made
    os.chown(tmp_path / ".venv/bin/python", 12345, -1, follow_symlinks=False)
    assert prefix(tmp_path) is None


def test_what_lies_above_the_project_is_not_its_environment(tmp_path: Path) -> None:
    made = environment(tmp_path, ".venv")
    project = tmp_path / "project"
    project.mkdir()
    assert prefix(project) is None
    (project / ".git").mkdir()
    assert prefix(project) is None
    (project / ".git").rename(tmp_path / ".git")
    assert prefix(project) == made


def test_uv_lock_is_installed_on_each_node(tmp_path: Path) -> None:
    program(tmp_path / "bin/uv", "#!/bin/sh\n")
    env = {"PATH": str(tmp_path / "bin"), "VIRTUAL_ENV": environment(tmp_path, ".venv")}
    write(tmp_path / "uv.lock", "a")
    below = write(tmp_path / "src/x", "").parent
    first = find_python(request(uv=True), slurm_profile(), surroundings(below, env))
    assert first.uv_project == str(tmp_path)
    assert first.executable == f"{first.prefix}/bin/python"
    assert str(first.prefix).startswith(f"/tmp/hpcrun-uv-{os.getuid()}/")
    write(tmp_path / "uv.lock", "b")
    other = find_python(
        request(uv=True),
        slurm_profile(),
        surroundings(below, {**env, "HPCRUN_UV_DIR": "/scratch/uv"}),
    )
    assert str(other.prefix).startswith("/scratch/uv/")
    assert Path(str(other.prefix)).name != Path(str(first.prefix)).name


def test_uv_needs_its_lock_and_its_program(tmp_path: Path) -> None:
    program(tmp_path / "bin/uv", "#!/bin/sh\n")

    def check(words: str, path: str = "bin", **asked: str) -> None:
        with pytest.raises(UsageError, match=words):
            find_python(
                request(uv=True, **asked),
                slurm_profile(),
                surroundings(tmp_path, {"PATH": f"{tmp_path}/{path}"}),
            )

    check("no uv.lock")
    write(tmp_path / "uv.lock", "")
    check("no uv on PATH", path="none")
    check("--uv and --python cannot be combined", python="/x")
    check("--uv and --container cannot be combined", container="x.sif")


SITE = ".venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("files", "env", "lacks"),
    [
        ([f"{SITE}/numpy/__init__.py"], {}, True),
        ([f"{SITE}/torch/__init__.py"], {}, False),
        ([f"{SITE}/torch.py"], {}, True),  # a file of the program is no torch
        (
            [f"{SITE}/numpy/__init__.py", "more/torch/__init__.py"],
            {"PYTHONPATH": "/none:more"},
            False,
        ),
        ([f"{SITE}/link.pth=../../../../more", "more/torch/__init__.py"], {}, False),
        ([f"{SITE}/__editable__.torch-2.9.pth=import __editable___torch_finder"], {}, False),
        ([f"{SITE}/x.py", ".venv/pyvenv.cfg=include-system-site-packages = true"], {}, False),
        # conda's also has the user's own
        ([f"{SITE}/x.py", ".local/lib/python3.11/site-packages/torch/x"], {}, False),
        (
            [
                f"{SITE}/x.py",
                ".venv/pyvenv.cfg=version = 3",
                ".local/lib/python3.11/site-packages/torch/x",
            ],
            {},
            True,
        ),
        ([".venv/bin/python"], {}, False),  # not certain
    ],
    ids=str,
)
def test_an_environment_without_torch_is_known_by_its_files(
    files: list[str],
    env: dict[str, str],
    lacks: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in files:
        name, _, text = file.partition("=")
        write(tmp_path / name, text)
    python = PythonEnvironment(
        f"{tmp_path}/.venv/bin/python", ".venv of the project", f"{tmp_path}/.venv"
    )
    notes = [*missing_packages({"torchrun"}, python, {"HOME": str(tmp_path), **env})]
    words = f"{tmp_path}/.venv (.venv of the project) has no torch, and torchrun needs it: "
    assert [note.startswith(words) for note in notes] == [True] * lacks
    assert [
        *missing_packages(
            {"torchrun"}, PythonEnvironment("python3", "the first on the job's PATH"), env
        )
    ] == []
    assert [*missing_packages({"python"}, python, env)] == []
