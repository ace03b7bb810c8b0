"""The wheel in a clean environment, outside the checkout: what a user installs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import REPO, Hpcrun


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the wheel, its dependencies, and nothing else.

    pip is not installed there, and compiles nothing: most of it no test imports.
    """
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(REPO),
    ]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("hpcrun_slurm-*.whl")
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        f"{venv}/bin/python",
        "install",
        "--quiet",
        "--no-compile",
    ]
    subprocess.run([*install, str(wheel)], check=True)
    return venv


def test_the_wheel_submits(installed: Path, tmp_path: Path) -> None:
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    (tmp_path / "train.py").write_text("print('trained')\n")
    program = f"{installed}/bin/hpcrun"
    done = person.run(program, "submit", "-P", "local", "--gpus", "0", "--wait", "train.py")
    assert f"{installed}/bin/python" in done.stdout
    assert person.run(program, "logs").stdout == "trained\n"
    # its template is in the wheel, too
    assert ">trained</pre>" in person.run(program, "share", "--out", "-").stdout
    assert person("status", check=True).stdout.count("COMPLETED") == 1  # python -m hpcrun
    (programs,) = person.runs.glob(".programs/*/launch")
    # and what the job has compiled
    kept = {path.relative_to(programs) for path in programs.rglob("*.py")}
    launch = REPO / "hpcrun/in_job/launch"
    assert kept == {path.relative_to(launch) for path in launch.rglob("*.py")}


def test_a_script_that_asks_hpcrun_runs_outside_of_jobs_too(
    installed: Path, tmp_path: Path
) -> None:
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    (tmp_path / "train.py").write_text(
        "import hpcrun_runtime, os\nhpcrun_runtime.log_metrics(step=1, loss=0.5)\n"
        "print(hpcrun_runtime.should_stop(), hpcrun_runtime.attempt(), hpcrun_runtime.__file__)\n"
    )
    by_hand = person.run(f"{installed}/bin/python", "train.py").stdout
    assert by_hand.startswith("False 0 ")
    assert "site-packages/hpcrun_runtime.py" in by_hand
    person("submit", "-P", "local", "--gpus", "0", "--wait", "train.py", check=True)
    assert f"False 0 {person.runs}/" in person("logs", check=True).stdout
    assert "0.5" in person("metrics", check=True).stdout


def test_a_script_of_the_wheel_runs_by_hand(installed: Path, tmp_path: Path) -> None:
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    person.write_script("job.sh", "-P", "local", "--gpus", "0", "echo", "here")
    assert str(installed) in (tmp_path / "job.sh").read_text()
    person.run("bash", "job.sh")
    (log,) = tmp_path.glob("hpcrun-L*/elements/0/attempts/0/rank-0.out")
    assert log.read_text() == "here\n"


def test_submitit_finds_the_wheel(installed: Path, tmp_path: Path) -> None:
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    program = (
        "import submitit\n"
        "executor = submitit.AutoExecutor('logs', cluster='hpcrun', hpcrun_profile='local', "
        "hpcrun_gpus=0)\n"
        "print(executor.submit(pow, 2, 5).result(), *submitit.core.plugins.get_job_environments())"
    )
    assert (
        person.run(f"{installed}/bin/python", "-c", program).stdout
        == "32 slurm local debug hpcrun\n"
    )


def test_the_wheel_carries_templates_and_profiles(
    installed: Path, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    listed = person("profile", "list", check=True).stdout
    for name in ("a100", "a100-40gb", "h100", "h200", "v100", "l40s", "a40", "cpu", "local"):
        with subtests.test(name=name):
            assert name in listed
    assert "init_process_group" in person("profile", "env", "NCCL_TIMEOUT", check=True).stdout
    # on MANPATH where its bin/ is on PATH
    pages = {path.name for path in (installed / "share/man/man1").glob("hpcrun*.1")}
    assert {"hpcrun.1", "hpcrun-submit.1", "hpcrun-scale-plan.1"} <= pages
    (schema,) = installed.rglob("hpcrun/shipped/cluster_profiles/schema.json")
    assert schema.read_text() == person("profile", "schema", check=True).stdout
    script = person(
        "submit", "-P", "a100", "--gpus", "4", "--nodes", "2", "--dry-run", "echo", check=True
    ).stdout
    assert script.startswith("#!/bin/bash\n")
    paths = person("profile", "path", check=True).stdout
    assert str(installed) in paths
    assert str(REPO) not in paths


def test_the_wheel_carries_the_programs_of_a_preflight_and_no_torch(
    installed: Path, tmp_path: Path
) -> None:
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    done = person("preflight", "-P", "local", "--gpus", "0", "--nodes", "2")
    assert done.returncode == 7
    assert "No module named 'torch', on every node" in done.stdout
    assert "--exclude" not in done.stderr


def test_another_package_adds_a_command(installed: Path, tmp_path: Path) -> None:
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        f"{installed}/bin/python",
        "install",
        "--quiet",
        "--no-compile",
    ]
    plugin = tmp_path / "plugin"
    shutil.copytree(REPO / "tests/data/plugin", plugin)
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        str(tmp_path),
        str(plugin),
    ]
    subprocess.run(build, check=True, capture_output=True)
    subprocess.run(
        [*install, "--no-deps", str(next(tmp_path.glob("hpcrun_greeting-*.whl")))], check=True
    )
    person = Hpcrun(folder=tmp_path, checkout=tmp_path, venv=installed)
    program = f"{installed}/bin/hpcrun"
    assert (
        person.run(program, "greet", "Ann").stdout
        == f"Hello Ann, your runs are in {person.runs}.\n"
    )
    assert "Greet somebody from the folder of the runs." in person.run(program, "--help").stdout
    assert "Who is greeted." in person.run(program, "greet", "--help").stdout
