"""--stage in a job of real processes on this machine; tests/slurm/test_stage.py has nodes with
disks of their own.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcrun.in_job.launch.per_job.stage_node import INCOMPLETE
from tests.harness import wait_for
from tests.launch.jobs import command, job

SHOW = [
    "bash",
    "-c",
    'cat "$HPCRUN_STAGE/-a b"; ls -ld "$HPCRUN_STAGE"; echo more >>"$HPCRUN_STAGE/-a b"; exec '
    'sleep "$0"',
]


def options(folder: Path, job_id: str) -> dict[str, Any]:
    """A job that copies a file to this machine; the file is made."""
    folder.mkdir()
    (folder / "source").write_text("content\n")
    stage = folder.parent / f"hpcrun-stage-{job_id}-0"
    return {
        "options": [f"--stage=-a b/{folder}/source"],
        "env": {"HPCRUN_JOB_ID": job_id, "HPCRUN_STAGE": str(stage)},
    }


def path_with_tar(folder: Path, before: str) -> str:
    """A search path with a tar that runs a line of bash first."""
    shim = folder / "bin/tar"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/bash\n{before}\nPATH=${{PATH#*:}} exec tar "$@"\n')
    shim.chmod(0o755)
    return f"{shim.parent}:{os.environ['PATH']}"


def test_a_job_changes_only_its_copy_which_is_removed_at_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    with job(folder, [*SHOW, "0"], nodes=2, **options(folder, "L1")) as running:
        assert running.end() == 0
        for node in (0, 1):  # the nodes of this machine share the copy
            assert running.out(node).startswith("content\n")
            assert "\ndrwx------" in running.out(node)
    assert (folder / "source").read_text() == "content\n"
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_the_next_job_removes_the_copy_of_a_killed_one_and_no_other(tmp_path: Path) -> None:
    killed, runs, last = (tmp_path / name for name in ("killed", "runs", "last"))
    with job(killed, [*SHOW, "600"], **options(killed, "L1")) as running:
        running.until("content")
        for pid in running.processes():
            with suppress(ProcessLookupError):  # it has ended with those before it
                os.kill(pid, signal.SIGKILL)
    os.utime(tmp_path / "hpcrun-stage-L1-0", (0, 0))
    (tmp_path / "hpcrun-stage-L8-0").mkdir()  # its job is about to hold it
    (tmp_path / "hpcrun-stage-L9-0").symlink_to(tmp_path)
    with job(runs, [*SHOW, "600"], **options(runs, "L2")) as other:
        other.until("content")
        with job(last, [*SHOW, "0"], **options(last, "L3")) as running:
            assert running.end() == 0
        left = {name for name in os.listdir(tmp_path) if name.startswith("hpcrun-stage")}
        assert left == {"hpcrun-stage-L2-0", "hpcrun-stage-L8-0", "hpcrun-stage-L9-0"}
        other.process.send_signal(signal.SIGTERM)
        assert other.end() == 143
    assert not (tmp_path / "hpcrun-stage-L2-0").exists()


def test_a_job_that_still_copies_keeps_what_it_has(tmp_path: Path) -> None:
    slow, other, go = (tmp_path / name for name in ("slow", "other", "go"))
    more = options(slow, "L1")
    more["env"]["PATH"] = path_with_tar(tmp_path, f"until [ -e {go} ]; do sleep 0.1; done")
    with job(slow, [*SHOW, "0"], **more) as running:
        wait_for((tmp_path / "hpcrun-stage-L1-0").exists, 20, "the copying to begin")
        with job(other, [*SHOW, "0"], **options(other, "L2")) as second:
            assert second.end() == 0
        go.touch()
        assert running.end() == 0
        assert running.out().startswith("content\n")


def test_a_copy_that_was_not_completed_is_made_anew(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    more = options(folder, "L1")
    left = tmp_path / "hpcrun-stage-L1-0"
    left.mkdir(mode=INCOMPLETE)
    (left / "-a b").write_text("cont")
    with job(folder, [*SHOW, "0"], **more) as running:
        assert running.end() == 0
        assert running.out().startswith("content\n")


def test_the_gpus_are_not_watched_while_a_restart_copies_its_data(tmp_path: Path) -> None:
    """There are no ranks then, and no samples of the use of the GPUs."""
    folder = tmp_path / "one"
    more = options(folder, "L1")
    more["options"] += ["--grace=60", "--restarts=1", "--retry-on-failure", "--cancel-idle=1.5"]
    look = 'ls "$HPCRUN_ATTEMPT_DIR" >"$HPCRUN_ATTEMPT_DIR/while-copying"'
    more["env"]["PATH"] = path_with_tar(tmp_path, f'sleep "$((3 * HPCRUN_ATTEMPT))"; {look}')
    first_fails = '[ "$HPCRUN_ATTEMPT" = 1 ] || { rm -r "$HPCRUN_STAGE"; exit 1; }'
    with job(folder, ["bash", "-c", first_fails], **more) as running:
        assert running.end() == 0
        restart = running.attempt.parent / "1"
        assert (restart / "exit").exists()
        # after the copy the ranks have 1.5 s, which a busy machine may not give them
        assert "idle-unknown" not in (restart / "while-copying").read_text()


def test_a_job_whose_next_attempt_runs_elsewhere_leaves_nothing(tmp_path: Path) -> None:
    """Its script does not continue behind the launch, and its data are removed."""
    folder = tmp_path / "one"
    more = options(folder, "L1")
    more["options"] += ["--grace=60", "--restarts=1", "--retry-on-failure", "--script"]
    elsewhere = folder / "run/elements/0/attempts/1"
    elsewhere.mkdir(parents=True)
    (elsewhere / "start").touch()
    script = 'echo $$ >process\n"$HPCRUN_LAUNCH" :: false\ntouch continued\nsleep 5\n'
    (folder / "script.sh").write_text(script)
    with job(folder, [], chain=["bash", "script.sh"], **more) as running:
        assert running.end() == 1
        assert running.record["message"] == "its next attempt has been started elsewhere"
    assert command(int((folder / "process").read_text())) == ""
    assert not (folder / "continued").exists()
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_what_cannot_be_copied_is_said_and_no_rank_starts(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    more = options(folder, "L1")
    (folder / "source").unlink()
    with job(folder, ["true"], **more) as running:
        assert running.end() == 1
        message = (
            f"cannot copy the data of --stage: there is no {folder}/source on {os.uname().nodename}"
        )
        assert running.record["message"] == message
        assert not (running.attempt / "rank-0.exit").exists()
    assert sorted(os.listdir(tmp_path)) == ["one"]


def test_a_script_starts_after_a_step_that_takes_a_while(tmp_path: Path) -> None:
    programs = tmp_path / "run/programs/preflight"
    programs.mkdir(parents=True)
    (programs / "node.py").touch()
    (tmp_path / "script.sh").write_text("echo began >began\n")
    chain = ["sleep", "2.5", "&&", "true", "&&", "bash", "script.sh"]
    with job(tmp_path, [], chain=chain, options=["--script", "--preflight"]) as running:
        wait_for((tmp_path / "began").exists, 20, "the script to begin")
        assert running.end() == 0
