"""The runs folder is full when a role, a rank or the job ends: the job ends, and holds no node."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPO
from tests.launch.jobs import LAUNCH, remove_node_folders
from tests.launch.test_killed_helpers import watched
from tests.launch.test_roles import block

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")

WRITE_S = 1.0
"""How long hpcrun tries if nobody makes room."""
FILL = "dd if=/dev/zero of=$HPCRUN_RUN_DIR/fill bs=4k status=none 2>/dev/null"
# $1: the run's folder, $2: the seconds until somebody makes room. What is in the folder is copied
# beside it, since it is a file system of this job alone.
JOB = """
mount --make-rprivate /
mount -t tmpfs -o size=200k,mode=755 tmpfs "$1"
mkdir -p "$HPCRUN_ATTEMPT_DIR"
if [ "$2" ]; then (until [ -s "$1/fill" ]; do sleep 0.2; done; sleep "$2"; rm "$1/fill") & fi
run=$1
shift 2
status=0
"$@" || status=$?
rm -f "$run/fill"
cp -r "$run" "$run.after"
exit "$status"
"""


@dataclass(frozen=True)
class Ended:
    """A job that has ended: its exit status, what it has printed, and its attempt's folder."""

    status: int
    err: str
    attempt: Path
    seconds: float

    def record(self, name: str) -> dict[str, Any]:
        """A record; empty if there is none."""
        path = self.attempt / name
        return dict(json.loads(path.read_text())) if path.exists() else {}


def run(folder: Path, chain: list[str], *, room_after_s: str, options: tuple[str, ...]) -> Ended:
    """Run a job whose folder is a small file system.

    Args:
        room_after_s: when somebody makes room after the disk is full; empty for never.
    """
    launch = folder / "launch"
    shutil.copytree(REPO / "hpcrun/in_job/launch", launch)
    records = launch / "records.py"
    text = records.read_text()
    assert text.count("WRITE_S = 20.0\n") == 1
    if not room_after_s:
        records.write_text(text.replace("WRITE_S = 20.0\n", f"WRITE_S = {WRITE_S}\n"))
    place = folder / "run"
    place.mkdir()
    attempt = place / "elements/0/attempts/0"
    env = {
        **os.environ,
        "HPCRUN_RUN_DIR": str(place),
        "HPCRUN_ATTEMPT_DIR": str(attempt),
        "HPCRUN_JOB_ID": "L1",
        "HPCRUN_ELEMENT": "0",
        "HPCRUN_ATTEMPT": "0",
    }
    argv = [*LAUNCH, "job", *options, "--", *chain]
    argv = [str(launch) if word == LAUNCH[2] else word for word in argv]
    setup = ["unshare", "--mount", "sh", "-ec", JOB, "sh", str(place), room_after_s]
    began = time.monotonic()
    with watched(f"HPCRUN_ATTEMPT_DIR={attempt}"):
        process = subprocess.Popen(
            [*setup, *argv], env=env, cwd=folder, text=True, stderr=subprocess.PIPE
        )
        try:
            _, err = process.communicate(timeout=40)
        finally:
            process.kill()
            remove_node_folders(attempt)
    seconds = time.monotonic() - began
    after = Path(f"{place}.after", "elements/0/attempts/0")
    return Ended(process.returncode, err, after, seconds)


def roles() -> list[str]:
    """A server, and a trainer that fills the disk and ends well: its end decides."""
    program = "import os, sys; os.execvp('sh', ['sh', '-c', sys.argv[1]])"
    words = block("server", 0, "-c", program, "sleep 600")
    words += block("trainer", 1, "-c", program, f"{FILL}; exit 0", on_exit="end")
    return [*LAUNCH, "role", "--", *words]


ROLES = ("--nodes", "2")


def test_the_end_of_a_role_that_cannot_be_written_ends_the_job(tmp_path: Path) -> None:
    ended = run(tmp_path, roles(), room_after_s="", options=ROLES)
    assert ended.status not in (0, None)
    assert "cannot write the record trainer.done-1: [Errno 28]" in ended.err


def test_the_end_of_a_role_is_written_once_there_is_room(tmp_path: Path) -> None:
    ended = run(tmp_path, roles(), room_after_s="1", options=ROLES)
    assert ended.status == 0, ended.err
    assert ended.record("exit")["status"] == 0
    assert ended.record("rank-1.exit")["status"] == 0


RANK = [*LAUNCH, "node", "--", *LAUNCH, "rank", "--once", "--", "sh", "-c", f"{FILL}; exit 3"]


@pytest.mark.parametrize("room_after_s", ["1", ""])
def test_the_records_of_an_end_are_tried_again(tmp_path: Path, room_after_s: str) -> None:
    ended = run(tmp_path, RANK, room_after_s=room_after_s, options=("--nodes", "1"))
    assert ended.status == 3
    has_room = bool(room_after_s)
    assert bool(ended.record("rank-0.exit")) is has_room
    assert bool(ended.record("exit")) is has_room
    assert ended.err.count("cannot write the record exit") == (0 if has_room else 1)


def test_a_restart_without_room_ends_the_job(tmp_path: Path) -> None:
    options = ("--nodes", "1", "--grace", "60", "--restarts", "1", "--retry-on-failure")
    ended = run(tmp_path, RANK, room_after_s="", options=options)
    assert ended.status == 1
    assert "cannot use its run's folder" in ended.err


def test_a_request_to_stop_on_a_full_disk_ends_no_process_of_hpcrun(tmp_path: Path) -> None:
    parent = "$(cut -d' ' -f4 /proc/{}/stat)"
    job = parent.format(parent.format("$PPID"))
    program = f"trap 'exit 5' USR1; {FILL}; kill -USR1 {job}; sleep 9 & wait; wait"
    rank = [*LAUNCH, "node", "--", *LAUNCH, "rank", "--once", "--", "bash", "-c", program]
    options = ("--nodes", "1", "--grace", "60", "--requeue", "1")
    ended = run(tmp_path, rank, room_after_s="1", options=options)
    assert ended.record("rank-0.exit")["status"] == 5, ended.err
