"""Who submitted a run, and what commands did to runs: run.json, actions.jsonl, history."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Hpcrun
from tests.local.recorded import replace_fields
from tests.local.test_history import of_cluster as of_far_cluster

LOCAL = ("submit", "-P", "local", "--gpus", "0")


def of_cluster(person: Hpcrun, name: str, hours: float, status: int = 0) -> Path:
    """A run on a cluster that no longer lists its job, four GPUs for so many hours until now."""
    folder = of_far_cluster(person, name, hours, status)
    replace_fields(folder / "status.json", forgotten=True)
    return folder


def lines(person: Hpcrun) -> list[dict[str, Any]]:
    """The lines of the log of actions."""
    return [json.loads(line) for line in (person.runs / "actions.jsonl").read_text().splitlines()]


def test_a_record_says_that_there_was_no_terminal(hpcrun: Hpcrun) -> None:
    folder = hpcrun.submit(*LOCAL[1:], "true")
    assert json.loads((folder / "run.json").read_text())["by"] == {"terminal": False, "agent": None}


@pytest.mark.parametrize(
    ("variable", "value", "agent"),
    [
        ("CLAUDECODE", "1", "claude-code"),
        ("CODEX_THREAD_ID", "0123", "codex"),
        ("AI_AGENT", "goose", "goose"),
        ("HPCRUN_AGENT", "mine", "mine"),
        ("AGENT", "\x1b[31mred", "unknown"),
    ],
)
def test_an_agent_is_known_by_its_variable(
    hpcrun: Hpcrun, variable: str, value: str, agent: str
) -> None:
    hpcrun(*LOCAL, "true", env={variable: value}, check=True)
    assert hpcrun.status()["by"] == agent
    shown = hpcrun("status", "--columns", "name,by", check=True).stdout
    assert shown.splitlines()[-1].split()[-1] == agent


def test_a_submission_is_a_line_with_its_masked_arguments(hpcrun: Hpcrun) -> None:
    words = (
        "--env",
        "HF_TOKEN=hf_abcdefghijklmnopqrst",
        "--env",
        "MY_SECRET=s3",
        "--secret",
        "ODD",
    )
    hpcrun(*LOCAL, *words, "--env", "ODD=unusual-value", "true", "a b", check=True)
    [line] = lines(hpcrun)
    run = hpcrun.status()
    assert line["action"] == "submit"
    assert line["run_ids"] == [run["run_id"]]
    assert line["job_ids"] == [run["job_id"]]
    assert line["gpu_hours_at_most"] == 0
    assert line["by"] == {"terminal": False, "agent": None}
    assert "submit -P local --gpus 0 --env 'HF_TOKEN=***' --env" in line["arguments"]
    assert line["arguments"].endswith("true 'a b'")
    text = json.dumps(line)
    assert "s3" not in text
    assert "hf_abc" not in text
    assert "unusual-value" not in text


def test_the_file_is_for_its_owner_alone_and_is_no_run(hpcrun: Hpcrun) -> None:
    hpcrun(*LOCAL, "true", check=True)
    mode = (hpcrun.runs / "actions.jsonl").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert len(hpcrun.document("status", "--all")["runs"]) == 1


def test_cancel_and_resubmit_are_lines(hpcrun: Hpcrun) -> None:
    hpcrun(*LOCAL, "-J", "long", "sleep", "60", check=True)
    hpcrun("cancel", "long", check=True)
    hpcrun.ended("long")
    hpcrun("resubmit", "long", check=True)
    hpcrun("cancel", "last", "--yes", check=True)
    assert [line["action"] for line in lines(hpcrun)] == ["submit", "cancel", "resubmit", "cancel"]


def test_a_log_that_cannot_be_written_is_only_a_warning(hpcrun: Hpcrun) -> None:
    (hpcrun.runs / "actions.jsonl").symlink_to("/dev/full")
    done = hpcrun(*LOCAL, "true", check=True)
    assert "hpcrun: warning: " in done.stderr
    assert "actions.jsonl has no line for this submit" in done.stderr


def test_a_full_disk_leaves_no_part_of_a_line(hpcrun: Hpcrun) -> None:
    path = hpcrun.runs / "actions.jsonl"
    hpcrun(*LOCAL, "true", check=True)
    before = path.read_bytes()
    program = (
        "import resource, sys, pathlib, signal\n"
        "from hpcrun.files.writing import append_line\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 5},) * 2)\n"
        "try:\n"
        f"    append_line(pathlib.Path({str(path)!r}), 'x' * 100)\n"
        "except OSError as error:\n"
        "    print(error.strerror)\n"
    )
    done = hpcrun.run("python", "-c", program, check=True)
    assert done.stdout
    assert path.read_bytes() == before


def test_a_line_that_was_cut_off_damages_no_other(hpcrun: Hpcrun) -> None:
    of_cluster(hpcrun, "train", 2)
    path = hpcrun.runs / "actions.jsonl"
    path.write_text('{"action": "clean", "run_ids": ["x"], "jo')
    hpcrun("clean", "--all", "--yes", check=True)
    document = hpcrun.document("history")
    assert document["total"]["gpu_hours"] == 8


def test_lines_of_many_processes_are_whole(tmp_path: Path) -> None:
    from hpcrun.files.writing import append_line

    path = tmp_path / "log"

    def write(name: str) -> None:
        for _ in range(50):
            append_line(path, name * 5000)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(len(line), len(set(line))) for line in path.read_text().splitlines()} == {(5000, 1)}


def test_history_counts_runs_that_clean_has_removed(hpcrun: Hpcrun) -> None:
    of_cluster(hpcrun, "train", 2)
    of_cluster(hpcrun, "evaluate", 1, status=3)
    before = hpcrun.document("history", "--by", "name", check=True)
    hpcrun("clean", "--all", "--yes", check=True)
    after = hpcrun.document("history", "--by", "name", check=True)
    assert not [each for each in hpcrun.runs.iterdir() if each.name.startswith("2")]
    for row in ("total", "rows"):
        assert after[row] == before[row]
    assert after["runs"] == after["removed"] == 2
    shown = hpcrun("history", check=True).stdout
    assert "2 of them removed by hpcrun clean" in shown
    assert hpcrun.document("history", "--filter", "eval")["total"]["gpu_hours"] == 4


def test_history_counts_no_removed_run_of_this_machine(hpcrun: Hpcrun) -> None:
    hpcrun(*LOCAL, "--wait", "true", check=True)
    hpcrun("clean", "--all", "--yes", check=True)
    assert [line["action"] for line in lines(hpcrun)] == ["submit", "clean"]
    document = hpcrun.document("history")
    assert (document["runs"], document["removed"], document["total"]["ended"]) == (0, 0, 0)


def test_a_removed_run_that_is_there_again_counts_once(hpcrun: Hpcrun) -> None:
    folder = of_cluster(hpcrun, "train", 2).resolve()
    subprocess.run(["cp", "-a", folder, hpcrun.folder / "copy"], check=True)
    hpcrun("clean", "--all", "--yes", check=True)
    os.rename(hpcrun.folder / "copy", folder)
    document = hpcrun.document("history")
    assert (document["total"]["gpu_hours"], document["removed"]) == (8, 0)


def test_history_by_agent(hpcrun: Hpcrun) -> None:
    of_cluster(hpcrun, "old", 1)
    agents: tuple[dict[str, object], ...] = (
        {"terminal": False, "agent": "codex"},
        {"terminal": True, "agent": None},
    )
    for number, by in enumerate(agents):
        replace_fields(of_cluster(hpcrun, f"run{number}", 2) / "run.json", by=by)
    rows = hpcrun.document("history", "--by", "agent", check=True)["rows"]
    hours = {row["group"]: row["gpu_hours"] for row in rows}
    assert hours == {"codex": 8, "terminal": 8, "(unknown)": 4}


@pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
def test_a_run_of_a_terminal_is_not_changed_without_one(hpcrun: Hpcrun, verb: str) -> None:
    asks = hpcrun.terminal(*LOCAL, "-J", "mine", "sleep", "100")
    asks.expect("submitted")
    asks.wait()
    refused = hpcrun(verb, "mine", "--json")
    job_id = hpcrun.status("mine")["job_id"]
    document = json.loads(refused.stdout)
    assert (refused.returncode, document["changed"]) == (2, [])
    assert [match["job_id"] for match in document["matches"]] == [job_id]
    assert f"{job_id} was submitted at a terminal, and here is none" in document["error"]["message"]
    hint = f"ask the person, who can type hpcrun {verb} {job_id} ("
    assert document["error"]["hint"].startswith(hint)
    assert not hpcrun.status("mine")["final"]


def test_yes_cancels_a_run_of_a_terminal_without_one(hpcrun: Hpcrun) -> None:
    asks = hpcrun.terminal(*LOCAL, "-J", "mine", "sleep", "100")
    asks.expect("submitted")
    asks.wait()
    hpcrun("cancel", "--yes", "mine", check=True)
    assert hpcrun.ended("mine")["state"] == "CANCELLED"


def test_a_run_of_a_script_is_cancelled_without_a_question(hpcrun: Hpcrun) -> None:
    hpcrun(*LOCAL, "-J", "mine", "sleep", "100", check=True)
    hpcrun("cancel", "mine", check=True)
    assert hpcrun.ended("mine")["state"] == "CANCELLED"
