"""Who may read and write runs, names that try to leave the runs folder, and several hpcruns at
once.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from tests.harness import Hpcrun
from tests.local.recorded import record

JOB = ("submit", "-P", "local", "--gpus", "0")
KEPT = ("active", "jobs", ".programs", ".records.lock", "actions.jsonl")
"""What a runs folder has besides runs."""


def test_a_runs_folder_that_others_can_write_to_is_not_used(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    record(hpcrun, "mine")
    (hpcrun.runs / "active").mkdir()
    hpcrun.runs.chmod(0o1777)
    before = sorted(hpcrun.runs.iterdir())
    for args in (
        ["status"],
        ["logs", "mine"],
        ["cancel", "mine"],
        ["clean", "mine"],
        [*JOB, "true"],
    ):
        with subtests.test(args=args):
            done = hpcrun(*args)
            assert done.returncode == 4, done.stderr
            assert f"other users can write to {hpcrun.runs} (mode 1777)" in done.stderr
            assert f"chmod go-w {hpcrun.runs}" in done.stderr
    assert sorted(hpcrun.runs.iterdir()) == before


def test_a_run_that_others_can_write_to_is_not_read_and_the_rest_is(hpcrun: Hpcrun) -> None:
    record(hpcrun, "good")
    folder = record(hpcrun, "bad").folder
    folder.chmod(0o777)
    shown = hpcrun("status", check=True)
    assert "good" in shown.stdout
    assert "bad" not in shown.stdout
    assert f"other users can write to {folder} (mode 0777)" in shown.stderr
    refused = hpcrun("logs", "bad")
    assert refused.returncode == 4
    assert f"chmod go-w {folder}" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used(hpcrun: Hpcrun) -> None:
    os.chown(record(hpcrun, "theirs").folder, 65534, -1)
    assert "belongs to another user (uid 65534)" in hpcrun("status", check=True).stderr
    os.chown(hpcrun.runs, -1, 65534)
    hpcrun.runs.chmod(0o770)
    assert f"other users can write to {hpcrun.runs} (mode 0770)" in hpcrun("status").stderr
    os.chown(hpcrun.runs, 65534, -1)
    done = hpcrun(*JOB, "true")
    assert done.returncode == 4
    assert "belongs to another user (uid 65534)" in done.stderr
    assert "HPCRUN_RUNS" in done.stderr


def test_a_folder_where_anybody_could_swap_the_run_is_refused(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    done = hpcrun(*JOB, "--output-dir", str(place), "true")
    assert done.returncode == 4
    assert (
        f"runs are not kept in {place}: other users can write to {place} (mode 0777)" in done.stderr
    )
    assert list(place.iterdir()) == []
    place.chmod(0o1777)  # as /tmp: nobody but the owner renames
    hpcrun(*JOB, "--output-dir", str(place), "--wait", "true", check=True)


def test_a_folder_of_uv_that_another_user_has_made_is_not_used(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    (tmp_path / "uv.lock").touch()
    hpcrun.program("bin/uv", "")
    own = f"{tmp_path}/taken/hpcrun-uv-{os.getuid()}"
    (tmp_path / "taken").mkdir()
    Path(own).symlink_to("../bin")
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HPCRUN_UV_DIR": f"{tmp_path}/taken"}
    assert hpcrun(*JOB, "--uv", "--wait", "true", cwd=tmp_path, env=env).returncode == 7
    shown = hpcrun("explain", check=True).stdout
    assert f"{own} on " in shown
    assert " is not your folder" in shown
    assert "submit with HPCRUN_UV_DIR=/path" in shown


def test_uv_removes_old_environments_and_nothing_else_of_the_folder_that_a_person_names(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    (tmp_path / "uv.lock").touch()
    hpcrun.program("bin/uv", 'mkdir -p "$UV_PROJECT_ENVIRONMENT/bin"')
    scratch = tmp_path / "scratch"
    thesis = scratch / "thesis"
    old = scratch / f"hpcrun-uv-{os.getuid()}" / "0123456789abcdef"
    for folder in (thesis, old):
        folder.mkdir(parents=True)
        os.utime(folder, (0, 0))
    env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "HPCRUN_UV_DIR": str(scratch)}
    hpcrun(*JOB, "--uv", "--wait", "true", cwd=tmp_path, env=env)
    assert thesis.exists()
    assert not old.exists()


@pytest.mark.parametrize("way", ["HPCRUN_RUNS", "link", "--output-dir"])
def test_a_folder_that_others_could_swap_with_a_folder_above_it_is_refused(
    way: str, hpcrun: Hpcrun, tmp_path: Path
) -> None:
    shared, place = tmp_path / "shared", tmp_path / "shared/mine/runs"
    place.mkdir(parents=True, mode=0o700)
    (tmp_path / "link").symlink_to(place.parent)
    named = tmp_path / "link/runs" if way == "link" else place
    options, env = (
        (("--output-dir", str(place)), {})
        if way.startswith("-")
        else ((), {"HPCRUN_RUNS": str(named)})
    )
    hpcrun(*JOB, "-J", "mine", *options, "--wait", "true", env=env, check=True)
    before = sorted(place.iterdir())
    shared.chmod(0o777)
    done = hpcrun(*JOB, *options, "true", env=env)
    assert done.returncode == 4, done.stderr
    assert done.stderr == (
        f"hpcrun: runs are not kept in {named}: other users can write to {shared} (mode 0777)\n"
        f"hint: check its contents, then: chmod go-w {shared}\n"
    )
    assert sorted(place.iterdir()) == before
    assert "mine" in hpcrun("status", env=env, check=True).stdout
    shared.chmod(0o1777)
    hpcrun(*JOB, *options, "--wait", "true", env=env, check=True)


def test_names_stay_in_the_runs_folder(
    hpcrun: Hpcrun, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    before = sorted(tmp_path.iterdir())
    for name in ("../../x", "/tmp/x", "..", ".hidden", "a/b", "jobs", "x\ny"):
        with subtests.test(name=name):
            assert hpcrun(*JOB, "--wait", "-J", name, "true").returncode in (0, 2)
    (hpcrun.runs / "20260101-000000-here-0000").mkdir()
    words = ("../..", "/etc", "active", ".here", "", "x/../20260101-000000-here-0000", "../runs")
    for command, word in (
        *(("clean", word) for word in words),
        ("status", words[-1]),
        ("cancel", words[-1]),
    ):
        with subtests.test(command=command):
            done = hpcrun(command, word)
            assert (done.returncode in (2, 6), "Traceback" in done.stderr) == (True, False), (
                command,
                word,
                done.stderr,
            )
    assert sorted(tmp_path.iterdir()) == before
    assert all(path.name[0].isdigit() or path.name in KEPT for path in hpcrun.runs.iterdir())


WRITER = """
import sys, time
from pathlib import Path
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore

store, run_id, number = RunStore(Path(sys.argv[1])), sys.argv[2], int(sys.argv[3])
until = time.monotonic() + 1.5
while time.monotonic() < until:
    run = store.load(run_id)
    assert run.job_id in ("L1", "9"), run
    store.change(run, job_id="9")
    assert store.last_status(run_id) is not None
    store.save_status(run_id, LastStatus("RUNNING", time.time(), reason=str(number) * 4000))
    assert run_id in store.active_ids()
"""


def test_eight_processes_on_one_run_lose_nothing(hpcrun: Hpcrun) -> None:
    hpcrun(*JOB, "--wait", "true", check=True)
    folder = next(hpcrun.runs.glob("2*"))
    fields = {**json.loads((folder / "run.json").read_text()), "job_id": "L1"}
    (folder / "run.json").write_text(json.dumps(fields))
    (hpcrun.runs / "active" / folder.name).touch()
    argv = [hpcrun.argv()[0], "-c", WRITER, str(hpcrun.runs), folder.name]
    writers = [
        subprocess.Popen(
            [*argv, str(number)], cwd=hpcrun.checkout, stderr=subprocess.PIPE, text=True
        )
        for number in range(8)
    ]
    looks = 0
    while any(writer.poll() is None for writer in writers):
        assert json.loads((folder / "run.json").read_text())["run_id"] == folder.name
        assert json.loads((folder / "status.json").read_text())["state"] in ("RUNNING", "COMPLETED")
        looks += 1
        time.sleep(0.01)
    assert [writer.communicate()[1] for writer in writers] == [""] * 8
    assert looks > 5
    assert json.loads((folder / "run.json").read_text()) == {**fields, "job_id": "9"}
    assert not list(folder.glob(".*.json.*"))
