"""The supervisor of a local job: its files, its limits, its elements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.schedulers import supervisor

PROGRAM = [sys.executable, supervisor.__file__]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "submit.ready").touch()
    return tmp_path


def supervise(folder: Path, script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a supervisor over a script to its end."""
    (folder / "script.sh").write_text(script)
    done = subprocess.run(
        [*PROGRAM, str(folder), *(words or ("0", "0"))], capture_output=True, text=True, timeout=60
    )
    assert not done.stdout
    return done


def record(folder: Path, element: str = "") -> dict[str, Any]:
    return dict(json.loads((folder / element / "supervisor.json").read_text()))


def test_a_run_whose_claim_is_revoked_does_not_start(tmp_path: Path) -> None:
    done = supervise(tmp_path, "touch started")
    assert (done.returncode, done.stderr) == (1, "this run was abandoned before its start\n")
    assert not (tmp_path / "supervisor.json").exists()


def test_the_claim_of_a_run_is_taken(folder: Path) -> None:
    supervise(folder, "exit 3")
    assert not (folder / "submit.ready").exists()
    assert (folder / "submit.called").exists()


def test_the_record_has_the_end_of_the_script(folder: Path) -> None:
    supervise(folder, "exit 3")
    end = record(folder)
    assert (end["status"], end["signal"], end["state"], end["reason"]) == (3, None, "FAILED", None)
    assert end["job_id"] == f"L{end['pid']}"
    assert end["started"] <= end["ended"] <= end["started"] + 50
    assert end["limit_s"] == 0


def test_output_of_the_script_is_in_the_log(folder: Path) -> None:
    supervise(folder, "echo one; echo two >&2; cat")
    assert (folder / "batch.log").read_text() == "one\ntwo\n"


def test_the_script_learns_its_job_and_attempt(folder: Path) -> None:
    supervise(
        folder, 'echo "$HPCRUN_JOB_ID $HPCRUN_ATTEMPT $HPCRUN_REQUEUES ${HPCRUN_ELEMENT-none}"'
    )
    assert (folder / "batch.log").read_text() == f"{record(folder)['job_id']} 0 0 none\n"


def test_a_script_over_its_limit_is_terminated(folder: Path) -> None:
    begun = time.monotonic()
    supervise(folder, "trap 'exit 9' TERM; while :; do sleep 0.05; done", "1", "0")
    end = record(folder)
    assert (end["state"], end["status"]) == ("TIMEOUT", 9)
    assert end["reason"] == "over its time limit of 1 s"
    assert end["limit_s"] == 1
    assert time.monotonic() > begun + 1


def test_a_script_is_warned_before_its_limit(folder: Path) -> None:
    supervise(folder, "trap 'exit 4' USR1; while :; do sleep 0.05; done", "60", "60")
    end = record(folder)
    assert (end["state"], end["status"]) == ("FAILED", 4)


def test_a_cancelled_script_is_recorded_as_cancelled(folder: Path) -> None:
    supervise(folder, "kill -TERM $PPID; while :; do sleep 0.05; done")
    end = record(folder)
    assert (end["state"], end["status"], end["signal"]) == ("CANCELLED", 143, 15)


def test_nothing_of_the_script_is_left(folder: Path) -> None:
    supervise(folder, "sleep 900 & echo $!")
    pid = int((folder / "batch.log").read_text())
    assert supervisor.start_ticks(pid) is None


AGAIN = """
mkdir -p elements/0/attempts/$HPCRUN_ATTEMPT
echo "$HPCRUN_ATTEMPT $HPCRUN_REQUEUES"
if [ "$HPCRUN_ATTEMPT" = 0 ]; then
  echo '{"again": true, "how": "requeue"}' >elements/0/attempts/0/exit
fi
"""


def test_a_script_that_asks_for_it_starts_again(folder: Path) -> None:
    supervise(folder, f'cd "{folder}"\n{AGAIN}')
    assert (folder / "batch.log").read_text() == "0 0\n1 1\n"


def test_elements_have_records_of_their_own(folder: Path) -> None:
    script = '[ "$HPCRUN_ELEMENT" != 4 ]'
    supervise(folder, script, "0", "0", "2-3,4", "2")
    states = {name: record(folder, f"elements/{name}")["state"] for name in ("2", "3", "4")}
    assert states == {"2": "COMPLETED", "3": "COMPLETED", "4": "FAILED"}
    whole = record(folder)
    assert whole["state"] == "FAILED"
    assert record(folder, "elements/3")["job_id"] == f"{whole['job_id']}_3"


def test_elements_run_so_many_at_once(folder: Path) -> None:
    script = f'mkdir "{folder}/lock" && sleep 0.1 && rmdir "{folder}/lock"'
    supervise(folder, script, "0", "0", "0-2", "1")
    assert record(folder)["state"] == "COMPLETED"


def test_a_cancelled_element_does_not_start(folder: Path) -> None:
    (folder / "elements/1").mkdir(parents=True)
    (folder / "elements/1/cancelled").touch()
    (folder / "batch").mkdir()
    supervise(folder, "echo $HPCRUN_ELEMENT", "0", "0", "0-1", "2")
    assert record(folder, "elements/1")["state"] == "CANCELLED"
    assert [path.name for path in (folder / "batch").iterdir()] == ["0.log"]
    assert record(folder)["state"] == "COMPLETED"


def test_an_element_without_output_leaves_no_log(folder: Path) -> None:
    (folder / "batch").mkdir()
    supervise(folder, "exit 0", "0", "0", "0", "1")
    assert not list((folder / "batch").iterdir())


def test_a_cancelled_sweep_cancels_its_elements(folder: Path) -> None:
    script = f'touch "{folder}/$HPCRUN_ELEMENT"; sleep 900'
    (folder / "script.sh").write_text(script)
    process = subprocess.Popen([*PROGRAM, str(folder), "0", "0", "0-5", "1"])
    while not (folder / "0").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert record(folder)["state"] == "CANCELLED"
    assert record(folder, "elements/0")["state"] == "CANCELLED"
    assert not (folder / "elements/1").exists()


START_AND_CANCEL = """
import os, signal, sys
from pathlib import Path
from hpcrun.schedulers import supervisor
supervisor._umask = 0o022
supervisor._take_orphans_and_term()
pid = supervisor._start_element(Path(sys.argv[1]), 0, 0, 3, "L1")
os.kill(pid, signal.SIGTERM)
os.waitpid(pid, 0)
"""


def test_an_element_is_cancelled_even_while_its_supervisor_starts(folder: Path) -> None:
    (folder / "script.sh").write_text("sleep 5")
    subprocess.run([sys.executable, "-c", START_AND_CANCEL, str(folder)], check=True, timeout=60)
    assert record(folder, "elements/3")["state"] == "CANCELLED"


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ('{"again": true}', True),
        ('{"again": true, "how": "requeue"}', True),
        ('{"again": true, "how": "restart"}', False),
        ('{"again": 1}', False),
        ('{"again": false}', False),
        ("[true]", False),
        ("{", False),
        ("", False),
    ],
)
def test_a_record_asks_for_another_attempt(tmp_path: Path, text: str, again: bool) -> None:
    (tmp_path / "elements/3/attempts/1").mkdir(parents=True)
    (tmp_path / "elements/3/attempts/1/exit").write_text(text)
    assert supervisor._again(tmp_path, 3, 1) is again


def test_no_record_asks_for_no_attempt(tmp_path: Path) -> None:
    assert supervisor._again(tmp_path, 0, 0) is False
    (tmp_path / "elements/0/attempts/0").mkdir(parents=True)
    os.mkfifo(tmp_path / "elements/0/attempts/0/exit")
    assert supervisor._again(tmp_path, 0, 0) is False


def test_an_element_without_attempts_has_none(tmp_path: Path) -> None:
    assert supervisor._newest(tmp_path, 0) == -1


@pytest.mark.parametrize(
    ("text", "indices"), [("0", [0]), ("0-3,7", [0, 1, 2, 3, 7]), ("9-10,2", [9, 10, 2])]
)
def test_elements_are_read_as_ranges(text: str, indices: list[int]) -> None:
    assert supervisor._indices(text) == indices


def test_an_end_by_a_signal_has_its_number() -> None:
    end = supervisor._end_of(-15, ["TIMEOUT"], 60)
    assert (end["status"], end["signal"], end["state"]) == (143, 15, "TIMEOUT")
    assert end["reason"] == "over its time limit of 60 s"


def test_a_process_is_known_by_its_start() -> None:
    ticks = supervisor.start_ticks(os.getpid())
    assert ticks is not None
    assert supervisor.lives(os.getpid(), ticks)
    assert not supervisor.lives(os.getpid(), ticks + 1)
    assert not supervisor.lives(os.getpid(), None)


def test_the_records_can_be_written_by_the_user_alone(folder: Path) -> None:
    (folder / "script.sh").write_text("umask")
    done = subprocess.run([*PROGRAM, str(folder), "0", "0"], umask=0, timeout=60)
    assert done.returncode == 0
    assert (folder / "batch.log").read_text() == "0000\n"
    for name in ("batch.log", "supervisor.json"):
        assert (folder / name).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("ended_by", "succeeded", "state"),
    [
        (["CANCELLED"], True, "CANCELLED"),
        (["TIMEOUT", "CANCELLED"], False, "TIMEOUT"),
        ([], True, "COMPLETED"),
        ([], False, "FAILED"),
    ],
)
def test_what_ended_a_script_first_is_its_state(
    ended_by: list[str], succeeded: bool, state: str
) -> None:
    assert supervisor._state(ended_by, succeeded=succeeded) == state


def test_only_a_script_over_its_limit_has_a_reason() -> None:
    assert supervisor._end_of(0, [], 60)["reason"] is None
    assert supervisor._end_of(1, ["CANCELLED"], 60)["reason"] is None
