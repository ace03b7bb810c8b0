"""Removing old runs: first what would go, never what lives, never more than a run's own folder."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path

import pytest

from tests.harness import Hpcrun, answer, at_end, trust, wait_for
from tests.local.recorded import record

JOB = ("submit", "-P", "local", "--gpus", "0")
DAY = 86400


def over(person: Hpcrun, name: str, age_d: float = 0, status: int = 0) -> Path:
    """A run that ended some days ago; return its folder."""
    return record(person, name).ended(time.time() - age_d * DAY, status)


def names(person: Hpcrun) -> set[str]:
    return {path.name.split("-")[2] for path in person.runs.iterdir() if path.name[0].isdigit()}


def test_nothing_goes_without_a_yes(hpcrun: Hpcrun) -> None:
    over(hpcrun, "old", 31)
    over(hpcrun, "young", 29)
    shown = hpcrun("clean", check=True)
    assert [words in shown.stdout for words in ("-old-", "31 d ago", "young")] == [
        True,
        True,
        False,
    ]
    assert "nothing was removed: 1 run" in shown.stderr
    assert names(hpcrun) == {"old", "young"}
    assert "removed    1 run" in hpcrun("clean", "--yes", check=True).stdout
    assert names(hpcrun) == {"young"}
    nothing = hpcrun("clean", "--yes", check=True).stderr
    assert "nothing to remove" in nothing
    assert "hint: 1 run ended in the last 30 days: --all" in nothing
    saved = over(hpcrun, "saved", 40)
    checkpoints = saved / "elements/0/checkpoints"
    checkpoints.mkdir()
    (checkpoints / "last.pt").write_bytes(bytes(2 << 20))
    kept = hpcrun("clean", "--yes", check=True).stderr
    assert "kept       1 run with checkpoints" in kept
    assert "hint: 1 run ended in the last 30 days: --all" in kept
    shutil.rmtree(saved)
    document = hpcrun.document("clean", "--all", "--yes", check=True)
    (run,) = document["runs"]
    assert document["removed"] is True
    assert run["bytes"] == document["bytes"]
    assert run["bytes"] > 0
    assert names(hpcrun) == set()


def test_age_state_number_and_name_choose(hpcrun: Hpcrun) -> None:
    for name, status, age_d in (("a", 0, 9), ("b", 1, 8), ("c", 0, 7), ("d", 1, 6)):
        over(hpcrun, name, age_d, status)

    def going(*args: str) -> list[str]:
        document = hpcrun.document("clean", *args, check=True)
        assert document["removed"] is False
        return [run["run_id"].split("-")[2] for run in document["runs"]]

    assert going() == []
    assert going("--older-than", "7d12h") == ["a", "b"]
    assert going("--older-than", "0d") == going("--older-than", "1m")
    assert going("--state", "failed") == ["b", "d"]
    assert going("--state", "failed", "--keep", "1") == ["b"]
    assert going("--keep", "3") == ["a"]
    assert going("--keep", "0") == ["a", "b", "c", "d"]
    assert going("c", "last") == ["c", "d"]
    assert going("c", "d", "--state", "failed") == ["d"]
    assert names(hpcrun) == {"a", "b", "c", "d"}


def test_a_live_run_is_never_removed(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun(*JOB, "-J", "live", "sleep", "300", check=True)
    wait_for(lambda: "RUNNING" in hpcrun("status").stdout, 20, "the job to run")
    for args in ("live", "--keep 0", "--state running"):
        with subtests.test(args=args):
            assert hpcrun("clean", "--yes", "--checkpoints", *args.split(), check=True).stdout == ""
    assert "it is RUNNING" in hpcrun("clean", "--yes", "live").stderr
    assert names(hpcrun) == {"live"}
    hpcrun("cancel", "live", check=True)
    wait_for(lambda: "CANCELLED" in hpcrun("status").stdout, 30, "its end")
    hpcrun("clean", "--yes", "live", check=True)
    assert names(hpcrun) == set()
    assert list((hpcrun.runs / "active").iterdir()) == []


def test_a_run_whose_checkpoints_another_run_uses_stays_while_that_one_runs(
    hpcrun: Hpcrun,
) -> None:
    hpcrun(*JOB, "-J", "first", "--wait", "sh", "-c", "sleep $0", "0", check=True)
    hpcrun("resubmit", "first", "-J", "second", "--", "30", check=True)
    clean = ("clean", "first", "--checkpoints", "--yes")
    user = hpcrun.status("second")["run_id"]
    assert f"{user}, which has not ended, uses its checkpoints" in hpcrun(*clean).stderr
    assert names(hpcrun) == {"first", "second"}
    hpcrun("cancel", "second", check=True)
    hpcrun.ended("second")
    hpcrun(*clean, check=True)
    assert names(hpcrun) == {"second"}


def test_checkpoints_go_only_where_that_is_said(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    checkpoints = over(hpcrun, "model") / "elements/0/checkpoints"
    checkpoints.mkdir()
    (checkpoints / "last.pt").write_bytes(bytes(2 << 20))
    for options, says, left in (
        (("--yes",), "1 run with checkpoints (2.0M): add --checkpoints to remove them", {"model"}),
        (("--checkpoints",), "of which 2.0M are checkpoints", {"model"}),
        (("--yes", "--checkpoints"), "", set()),
    ):
        with subtests.test(options=options):
            assert says in hpcrun("clean", *options, "model", check=True).stderr
            assert names(hpcrun) == left


def test_a_run_that_lies_elsewhere_goes_and_what_it_links_to_stays(
    hpcrun: Hpcrun, tmp_path: Path
) -> None:
    scratch, data = tmp_path / "scratch", tmp_path / "data"
    data.mkdir()
    (data / "precious").write_text("x")
    folder = hpcrun.submit(*JOB[1:], "-J", "far", "--output-dir", str(scratch), "--wait", "true")
    (folder / "data").symlink_to(data)
    (scratch / "mine.txt").write_text("x")
    hpcrun("clean", "--yes", "far", check=True)
    assert [path.name for path in scratch.iterdir()] == ["mine.txt"]
    assert (data / "precious").read_text() == "x"
    assert names(hpcrun) == set()


@pytest.mark.parametrize("has_record", [False, True])
def test_a_link_to_something_else_is_not_followed(
    has_record: bool, hpcrun: Hpcrun, tmp_path: Path
) -> None:
    folder = over(hpcrun, "one")
    precious = tmp_path / (folder.name if has_record else "precious")
    folder.rename(precious)
    folder.symlink_to(precious)
    if has_record:  # of another run
        path = folder / "run.json"
        path.write_text(path.read_text().replace("-one-", "-two-"))
    done = hpcrun("clean", "--yes", "--keep", "0", check=True)
    says = (
        "it is the record of" if has_record else "is a symbolic link to a folder outside this run"
    )
    assert says in done.stderr
    assert (folder / "run.json").exists()


def test_a_person_is_asked_and_nothing_typed_is_no(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    over(hpcrun, "old")
    for typed, left in (("", {"old"}), ("n", {"old"}), ("y", set())):
        with subtests.test(typed=typed):
            terminal = hpcrun.terminal("clean", "old")
            answer(terminal, "Remove 1 run", typed)
            assert at_end(terminal)[0] == 0
            assert names(hpcrun) == left


def test_what_clean_cannot_read(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    over(hpcrun, "old")
    for args, says in (
        (
            "--older-than 30",
            "--older-than: '30' has no unit; write 30m for minutes, or 30s, 30h or 30d",
        ),
        ("--keep -1", "0 or more"),
        ("--state faild", "did you mean 'FAILED'?"),
        ("nosuch", "there is no run 'nosuch'"),
        ("--all old", ""),
    ):
        with subtests.test(args=args):
            done = hpcrun("clean", "--yes", *args.split())
            assert (done.returncode in (2, 6), says in done.stderr) == (True, True), done.stderr
            assert names(hpcrun) == {"old"}


def age(path: Path, age_d: float) -> None:
    os.utime(path, (time.time() - age_d * DAY,) * 2)


def test_what_killed_processes_left_is_shown_and_goes(hpcrun: Hpcrun) -> None:
    over(hpcrun, "young")
    old, new, odd = (
        hpcrun.runs / f".20260101-000000-{name}-0000" for name in ("old", "new", "odd")
    )
    for path, mark in ((old, ".made-by-hpcrun"), (new, ".made-by-hpcrun"), (odd, "thesis.tex")):
        path.mkdir()
        (path / mark).touch()
    for path, age_d in ((old, 2.0), (odd, 2.0), (new, 0.5)):
        age(path, age_d)
    shown = hpcrun("clean", check=True)
    assert f"leftover   {old}" in shown.stdout
    assert "nothing was removed: 1 leftover folder" in shown.stderr
    assert f"kept       {odd}: it has no record of hpcrun" in shown.stderr
    document = hpcrun.document("clean", check=True)
    assert [item["folder"] for item in document["leftovers"]] == [str(old)]
    assert [item["folder"] for item in document["kept_leftovers"]] == [str(odd)]
    assert {path.name for path in (old, new, odd)} <= {path.name for path in hpcrun.runs.iterdir()}
    assert "removed    1 leftover folder" in hpcrun("clean", "--yes", check=True).stdout
    assert not old.exists()
    assert new.exists()
    assert odd.exists()


OTHERS = (
    ".ssh/id_ed25519",
    ".config/x/y",
    ".venv/bin/python",
    ".cache/z",
    "active/notes.txt",
    "studies/thesis.tex",
    "jobs/4711.txt",
    ".20250101-000000-thesis-0000/thesis.tex",
    "src/train.py",
)


def a_project(folder: Path) -> Path:
    """A folder with what people keep in theirs, all of it old."""
    for name in OTHERS:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("precious")
    for path in sorted(folder.rglob("*"), reverse=True):
        age(path, 400)
    return folder


def what_is_left(folder: Path) -> list[str]:
    return [name for name in OTHERS if (folder / name).exists()]


def test_clean_removes_nothing_that_hpcrun_did_not_make(hpcrun: Hpcrun) -> None:
    project = a_project(hpcrun.folder / "project")
    env = {"HPCRUN_RUNS": str(project)}
    hpcrun(*JOB, "--wait", "true", env=env, check=True)
    for args in (
        ["--yes", "--json"],
        ["--yes"],
        ["--yes", "--keep", "0"],
        ["--yes", "--older-than", "1m"],
    ):
        hpcrun("clean", *args, env=env, check=True)
    assert what_is_left(project) == list(OTHERS)
    assert not list(project.glob("2*"))


def test_a_runs_folder_that_is_something_else_is_refused_and_its_runs_are_seen(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    project = a_project(hpcrun.folder / "project")
    (project / ".hpcrun").mkdir()
    (project / ".hpcrun" / "config.yaml").write_text("runs: ..\n")
    trust(hpcrun, project)
    env = {"HPCRUN_RUNS": None}
    hpcrun(*JOB, "--wait", "-J", "early", "true", env=env, cwd=project, check=True)
    (project / ".git").mkdir()
    for args in (
        ["clean", "--yes"],
        ["clean", "--yes", "--json"],
        ["clean", "early"],
        [*JOB, "true"],
    ):
        with subtests.test(args=args):
            done = hpcrun(*args, env=env, cwd=project)
            assert done.returncode == 4
            assert f"runs are not kept in {project}" in done.stdout + done.stderr
            assert "a repository" in done.stdout + done.stderr
            assert "HPCRUN_RUNS=" in done.stdout + done.stderr
    for args in (["status"], ["logs", "early"], ["explain", "early"]):
        with subtests.test(args=args):
            assert hpcrun(*args, env=env, cwd=project).returncode == 0
    assert what_is_left(project) == list(OTHERS)
    home = hpcrun(*JOB, "true", env={"HPCRUN_RUNS": "~"})
    assert (home.returncode, "it is a home folder" in home.stderr) == (4, True)


# --- cancel --state ------------------------------------------------------------------------------


def running_are(person: Hpcrun, number: int) -> bool:
    return person("status").stdout.count("RUNNING") == number


def test_all_runs_in_a_state_are_cancelled(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    for words, status, says in (
        ((), 2, "--state pending"),
        (("--state", "pendign"), 2, "did you mean 'PENDING'?"),
        (("--state", "pending"), 0, "no runs in this state"),
    ):
        with subtests.test(words=words):
            done = hpcrun("cancel", *words)
            assert (done.returncode, says in done.stderr) == (status, True)
    for name in ("one", "two", "three"):
        hpcrun(*JOB, "-J", name, "sleep", "300", check=True)
    over(hpcrun, "done")
    wait_for(partial(running_are, hpcrun, 3), 20, "all to run")
    only = hpcrun("cancel", "--state", "running", "one", "done", check=True)
    assert only.stdout.count("cancelled") == 1
    wait_for(partial(running_are, hpcrun, 2), 30, "one to end")
    for typed, left in (("n", 2), ("y", 0)):
        terminal = hpcrun.terminal("cancel", "--state", "running")
        answer(terminal, r"Cancel 2 runs\?", typed)
        at_end(terminal)
        wait_for(partial(running_are, hpcrun, left), 30, "the answer to be done")
