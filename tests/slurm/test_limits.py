"""Limits of a person on a real cluster: what no variable, file or program passes."""

from __future__ import annotations

import json
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.harness import RESEARCHER, Cluster, Hpcrun, answer, at_end, wait_for

pytestmark = pytest.mark.slurm

JOB = ("submit", "-P", "v100", "--gpus", "2", "--launcher", "python")


@pytest.fixture
def own_limits(cluster: Cluster) -> Iterator[Path]:
    """The configuration in the home of the user database, with a limit of one GPU-hour."""
    home = Path(pwd.getpwnam(RESEARCHER).pw_dir)
    home.mkdir(exist_ok=True)
    # a worker has mounts of its own: the jobs of the others have no such limit
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", home], check=True)
    folder = home / ".config/hpcrun"
    folder.mkdir(parents=True)
    path = folder / "config.yaml"
    path.write_text("limits: {gpu_hours_per_job: 1, gpu_hours_per_day: 1.5}\n")
    for each in (home, home / ".config", folder, path):
        shutil.chown(each, RESEARCHER, RESEARCHER)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)


def test_variables_move_no_limit(
    own_limits: Path, as_researcher: Hpcrun, subtests: pytest.Subtests
) -> None:
    elsewhere = as_researcher.folder / "home"
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "HPCRUN_SITE", "HPCRUN_RUNS"):
        with subtests.test(name=name):
            done = as_researcher(*JOB, "--time", "1h", "true", env={name: str(elsewhere / name)})
            assert done.returncode == 4, done.stderr
            assert f"the limit is 1 (gpu_hours_per_job in {own_limits})" in done.stderr
    assert not as_researcher.run("squeue", "--noheader", "--me").stdout.strip()


def test_a_day_counts_what_other_runs_folders_reserve(
    own_limits: Path, as_researcher: Hpcrun
) -> None:
    held = (*JOB, "--time", "25m", "--sbatch", "hold", "true")  # 0.84 GPU-hours
    first = {"HPCRUN_RUNS": str(as_researcher.folder / "first")}
    second = {"HPCRUN_RUNS": str(as_researcher.folder / "second"), "HOME": "/nowhere"}
    as_researcher(*held, env=first, check=True)
    done = as_researcher(*held, env=second)
    assert done.returncode == 4, done.stderr
    assert "used or reserved in the last 24 hours; the limit is 1.5" in done.stderr
    as_researcher("cancel", "--state", "pending", "--yes", env=first, check=True)
    as_researcher(*held, env=first, check=True)  # it has used nothing


def test_submissions_at_the_same_time_do_not_pass_the_limit_of_a_day(
    own_limits: Path, as_researcher: Hpcrun
) -> None:
    held = (*JOB, "--time", "25m", "--sbatch", "hold", "true")  # 0.84 GPU-hours
    with ThreadPoolExecutor(5) as pool:
        submits = []
        for number in range(5):
            env = {"HPCRUN_RUNS": str(as_researcher.folder / f"runs-{number % 2}")}
            submits.append(pool.submit(partial(as_researcher, *held, env=env)))
        codes = sorted(submit.result().returncode for submit in submits)
    assert codes == [0, 4, 4, 4, 4]
    queue = as_researcher.run("squeue", "--noheader", "--me").stdout
    assert len(queue.splitlines()) == 1


def test_a_file_that_others_can_write_still_limits(own_limits: Path, as_researcher: Hpcrun) -> None:
    own_limits.chmod(0o666)
    done = as_researcher(*JOB, "--time", "1h", "true", env={"HOME": str(own_limits.parents[2])})
    assert done.returncode == 4, done.stderr
    assert f"{own_limits.parent} is not used: other users can write" in done.stderr
    assert f"the limit is 1 (gpu_hours_per_job in {own_limits})" in done.stderr


def test_a_file_that_cannot_be_read_refuses(own_limits: Path, as_researcher: Hpcrun) -> None:
    own_limits.chmod(0)
    for name, mode in ((own_limits, 0), (own_limits.parent, 0)):
        name.chmod(mode)
        done = as_researcher(*JOB, "--time", "1m", "true", env={"HOME": "/nowhere"})
        assert done.returncode == 3, done.stderr
        assert f"{own_limits}: you may not read it" in done.stderr


def test_the_limit_of_a_day_needs_no_home_that_can_be_written(
    own_limits: Path, as_researcher: Hpcrun
) -> None:
    home = own_limits.parents[2]
    shutil.chown(home, "root")
    home.chmod(0o755)
    try:
        done = as_researcher(*JOB, "--time", "25m", "--sbatch", "hold", "true", check=True)
        assert "submitted" in done.stdout
    finally:
        shutil.chown(home, RESEARCHER)


def test_submitits_plug_in_is_refused(own_limits: Path, as_researcher: Hpcrun) -> None:
    program = (
        "import submitit\n"
        "executor = submitit.AutoExecutor('logs', cluster='hpcrun')\n"
        "executor.update_parameters(hpcrun_profile='v100', hpcrun_gpus=2, timeout_min=60)\n"
        "try:\n"
        "    executor.submit(print, 1)\n"
        "except Exception as error:\n"
        "    print(type(error).__name__, error)\n"
    )
    as_researcher.write("program.py", program)
    done = as_researcher.run("python", "program.py", check=True)
    assert "LimitError at most 2 GPU-hours; the limit is 1 " in done.stdout


def test_a_person_at_a_terminal_allows_a_job_and_is_asked_before_it_is_cancelled(
    own_limits: Path, as_researcher: Hpcrun
) -> None:
    held = (*JOB, "--time", "1h", "--sbatch", "hold", "-J", "mine", "true")
    asks = as_researcher.terminal(*held, size=(24, 300))
    answer(asks, r"at most 2 GPU-hours; the limit is 1 .*Submit all the same\?", "y")
    at_end(asks)
    run = as_researcher.status("mine")
    assert run["state"] == "PENDING"
    assert run["by"] == "terminal"
    assert run["gpu_hours_at_most"] == 2
    refused = as_researcher("cancel", "mine")
    assert refused.returncode == 2
    assert f"{run['job_id']} was submitted at a terminal" in refused.stderr
    as_researcher("cancel", "--yes", run["job_id"], check=True)
    wait_for(lambda: as_researcher.status("mine")["final"], 30, "the job to be cancelled")
    text = (as_researcher.runs / "actions.jsonl").read_text()
    actions = [json.loads(line) for line in text.splitlines()]
    assert [line["action"] for line in actions] == ["submit", "cancel"]
    assert [line["by"]["terminal"] for line in actions] == [True, False]
    assert actions[0]["gpu_hours_at_most"] == 2
