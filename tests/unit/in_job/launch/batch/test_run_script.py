"""What a job keeps of a launch that it refuses, and what the end of its script means."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch.batch.run_script import ScriptRules, ScriptStep, _check_export, _same_file

ENDS_S = 5.0


@pytest.fixture
def step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptStep]:
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rules = ScriptRules(managed=False, together=False, srun=[], added=[])
    created = ScriptStep(None, [], lambda _: None, lambda: False, rules)
    yield created
    created._server.close()
    created._leave(0)


def request(**changes: Any) -> bytes:
    """What hpcrun_launch sends, as far as a refusal reads it."""
    words = ["srun", "::", "python", "train.py"]
    sent = {"words": words, "env": {"SLURM_EXPORT_ENV": "NONE"}, "folder": "."}
    return json.dumps({**sent, **changes}).encode()


def hand_over(step: ScriptStep, data: bytes) -> tuple[socket.socket, int]:
    """Hand a pipe over as the launch's output; return the launch's socket, and the read end."""
    read, write = os.pipe()
    launch = socket.socket(socket.AF_UNIX)
    launch.connect(os.path.join(step._folder, "socket"))
    socket.send_fds(launch, [len(data).to_bytes(8, "big")], [write])
    launch.sendall(data)
    os.close(write)
    return launch, read


def has_end(read: int) -> bool:
    """Whether nobody holds the write end of a pipe any more."""
    readable, _, _ = select.select([read], [], [], ENDS_S)
    return bool(readable) and os.read(read, 1) == b""


@pytest.mark.parametrize(
    ("changes", "answer"),
    [
        ({}, b"alone\n"),
        ({"words": ["srun", "::", "-x"]}, b"alone\n"),
        ({"folder": "missing"}, b""),
    ],
    ids=["export", "no-program", "no-folder"],
)
def test_a_refused_launch_leaves_no_descriptor_with_the_job(
    step: ScriptStep, changes: dict[str, Any], answer: bytes
) -> None:
    launch, read = hand_over(step, request(**changes))
    with closing(launch):
        assert step._accept() is None
        assert launch.recv(64) == answer
    assert has_end(read)
    os.close(read)


def test_a_launch_beside_another_leaves_no_descriptor_with_the_job(step: ScriptStep) -> None:
    launch, read = hand_over(step, request())
    with closing(launch):
        step._refuse_more()
        assert launch.recv(64) == b"alone\n"
    assert has_end(read)
    os.close(read)


@pytest.mark.parametrize(
    ("srun", "export"),
    [
        pytest.param([], "NONE", id="no srun"),
        pytest.param(["srun"], None, id="not set"),
        pytest.param(["srun"], "A,ALL", id="all"),
        pytest.param(["srun", "--export=ALL"], "NONE", id="by an option"),
    ],
)
def test_srun_passes_the_variables_of_the_job_on(srun: list[str], export: str | None) -> None:
    _check_export(srun, export)


@pytest.mark.parametrize("export", ["NONE", "A,B", "SMALL"])
def test_an_export_without_the_variables_of_the_job_is_refused(export: str) -> None:
    problem = f"^SLURM_EXPORT_ENV={export} keeps the variables of the job from srun$"
    with pytest.raises(ValueError, match=problem):
        _check_export(["srun", "-N2"], export)


def test_two_descriptors_of_one_file_are_the_same(tmp_path: Path) -> None:
    with (tmp_path / "a").open("w") as one, (tmp_path / "b").open("w") as other:
        with (tmp_path / "a").open("a") as again:
            assert _same_file(one.fileno(), again.fileno())
        assert not _same_file(one.fileno(), other.fileno())
        closed = 1 << 20
        assert not _same_file(one.fileno(), closed)


# --- the end of the script -----------------------------------------------------------------------


SIGNALLED = {"signal": "TERM", "reason": "preemption"}
OWN = "s.sh ended with status 3 after its launch"


@pytest.mark.parametrize(
    ("record", "is_ended", "statuses", "status", "recorded"),
    [
        pytest.param({}, False, (0, 0, 0), 0, {}, id="well"),
        pytest.param({}, False, (7, 7, 7), 7, {}, id="status of the launch"),
        pytest.param(
            {"reason": "time_limit"},
            False,
            (143, 143, 124),
            143,
            {"reason": "time_limit", "status": 143},
            id="status of the launch, not of the attempt",
        ),
        pytest.param({}, False, (0, None, 5), 5, {}, id="no launch"),
        pytest.param({}, False, (3, 0, 0), 3, {"status": 3, "message": OWN}, id="own failure"),
        pytest.param(SIGNALLED, True, (3, 143, 143), 3, {}, id="ended with its job"),
        pytest.param(
            SIGNALLED,
            False,
            (3, 143, 143),
            3,
            {"signal": "", "reason": "", "status": 3, "message": OWN},
            id="not ended with its job",
        ),
        pytest.param(SIGNALLED, False, (143, 143, 143), 143, {}, id="signal of the launch"),
    ],
)
def test_a_script_is_the_reason_unless_its_launch_is(
    step: ScriptStep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record: dict[str, Any],
    is_ended: bool,
    statuses: tuple[int, int | None, int],
    status: int,
    recorded: dict[str, Any],
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    of_script, of_launch, of_attempt = statuses
    step._name = "s.sh"
    step._ends = is_ended
    step._status = of_script
    step._was_launched = of_launch is not None
    step._launch_status = of_launch or 0
    assert step._record_end(dict(record), of_attempt) == status
    found = json.loads((tmp_path / "exit").read_text()) if recorded else {}
    found.pop("ended", None)
    assert found == recorded
    assert (tmp_path / "exit").exists() == bool(recorded)


@pytest.mark.parametrize(
    ("errors", "place"),
    [
        pytest.param("1 2 false\n3 12 python t.py", ": line 12: python t.py", id="last"),
        pytest.param('3 12 "$HPCRUN_LAUNCH" :: t.py', ": line 12: t.py", id="launch"),
        pytest.param("4 12 python t.py", "", id="handled"),
        pytest.param("3 x python t.py", "", id="no line"),
        pytest.param("", "", id="unknown"),
    ],
)
def test_the_line_of_a_script_that_failed_is_named(
    step: ScriptStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: str, place: str
) -> None:
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    (tmp_path / "script-errors").write_text(errors)
    step._name = "s.sh"
    step._status = 3
    assert step._how() == f"s.sh ended with status 3{place}"


# --- signals of the launch -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by_srun", "sent_to_all", "got"),
    [
        pytest.param(False, set(), signal.SIGTERM, id="to the launch alone"),
        pytest.param(False, {signal.SIGTERM}, signal.SIGINT, id="to all processes"),
        pytest.param(True, {signal.SIGTERM}, signal.SIGTERM, id="to all, and srun did not get it"),
    ],
)
def test_a_signal_of_the_launch_is_passed_on_once(
    step: ScriptStep, by_srun: bool, sent_to_all: set[int], got: int
) -> None:
    program = subprocess.Popen(["sleep", "60"])
    step._children = [program.pid]
    step.by_srun = by_srun
    step._sent_to_all = sent_to_all
    launch, step._asker = socket.socketpair()
    step._asker.setblocking(False)
    assert not step._was_left()
    launch.send(bytes([signal.SIGTERM]))
    assert not step._was_left()
    launch.close()
    assert step._was_left()
    step._asker.close()
    program.send_signal(signal.SIGINT)  # the first of two signals ends it
    assert program.wait() == -got


def test_a_launch_that_is_killed_before_it_reads_has_left(step: ScriptStep) -> None:
    launch, step._asker = socket.socketpair()
    step._asker.send(b"status 0\n")
    launch.close()
    assert step._was_left()
    step._asker.close()


def test_a_step_without_a_launch_is_not_left(step: ScriptStep) -> None:
    assert not step._was_left()
