"""Attempts compared: which of them say that the newest one began where the first one had begun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.ended import Explanation, explain
from hpcrun.explain.running import explain_running, read_running
from hpcrun.explain.started_over import LOAD_CHECKPOINT
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write

OVER = "the checkpoints are not loaded"


def steps(begin: int, end: int, line: str = "step {}/100 loss 0.25") -> str:
    return "".join(line.format(number) + "\n" for number in range(begin, end, 5))


def item(folder: Path, *logs: str, state: str = "TIMEOUT", reason: str = "time_limit") -> RunStatus:
    """A run whose attempts left these logs of rank 0, the first one first."""
    for number, log in enumerate(logs):
        attempt = RunFolder(folder).element(0).attempt(number)
        attempt.path.mkdir(parents=True)
        write(attempt.start, json.dumps({"job_id": "4711", "host": "n0", "started": 1.0}))
        write(attempt.rank_log(0, "out"), log)
        status = 124 if reason else 0
        end = {"status": status, "signal": "", "ended": 2.0, "reason": reason, "again": True}
        if state != "RUNNING" or number + 1 < len(logs):
            write(attempt.exit, json.dumps(end))
    return RunStatus(run(), folder, LastStatus(state, 0.0, final=state != "RUNNING"))


def explained(folder: Path, *logs: str, state: str = "TIMEOUT") -> Explanation:
    return explain(item(folder, *logs, state=state), ())


def test_an_attempt_that_began_where_the_first_one_did_says_so_with_the_lines(
    tmp_path: Path,
) -> None:
    shown = explained(tmp_path, "starting\n" + steps(0, 96), steps(0, 66))
    assert shown.summary == (
        "the job ended as TIMEOUT; attempt 2 started over at step 0, although attempt 1 had "
        "come to step 95: the checkpoints are not loaded"
    )
    assert shown.fix == LOAD_CHECKPOINT
    first, second = shown.evidence[-2:]
    assert (first.who, first.where) == ("attempt 1, rank 0", "elements/0/attempts/0/rank-0.out")
    assert first.lines == ("line 2: step 0/100 loss 0.25", "line 21: step 95/100 loss 0.25")
    assert second.lines == ("line 1: step 0/100 loss 0.25", "line 14: step 65/100 loss 0.25")


def test_a_running_attempt_that_started_over_says_so(tmp_path: Path) -> None:
    running = read_running(item(tmp_path, steps(0, 96), steps(0, 15), state="RUNNING"), 3.0, {})
    assert running is not None
    shown = explain_running(running)
    assert f"attempt 1 had come to step 95: {OVER}" in shown.summary
    assert shown.fix == LOAD_CHECKPOINT


def test_the_first_attempt_that_counted_is_compared(tmp_path: Path) -> None:
    shown = explained(tmp_path, "no module\n", steps(0, 96), steps(90, 130), steps(0, 20))
    assert "attempt 4 started over at step 0, although attempt 2 had come to step 95" in (
        shown.summary
    )


def test_a_program_that_failed_keeps_its_own_advice(tmp_path: Path) -> None:
    shown = explained(tmp_path, steps(0, 96), steps(0, 20), state="FAILED")
    assert OVER in shown.summary
    assert shown.fix != LOAD_CHECKPOINT


BAR = "\r{0}%|##  | {0}/100 [00:10<10:00,  1.02s/it]"
EPOCHS = "".join(f"Epoch {epoch}\n{steps(0, 100)}" for epoch in range(3))
READS = steps(0, 100, "reads batch {} of 100")
SILENT_EPOCHS = steps(0, 100, "step {}/100") * 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (steps(0, 96), steps(95, 130)),
        (steps(0, 96), steps(0, 1)),
        (steps(0, 20), steps(0, 20)),
        (steps(0, 96), "loading\n"),
        ("loading\n", steps(0, 96)),
        (steps(100, 196), steps(150, 196)),
        (EPOCHS, "Epoch 2\n" + steps(0, 50)),
        (SILENT_EPOCHS, steps(0, 50, "step {}/100")),
        (steps(0, 96), "step 0/100 loss 0.25\n" + steps(95, 130)),
        (steps(0, 96, BAR), BAR.format(0) + steps(95, 130, BAR)),
        ("batch_size: 32\n" * 9, "batch_size: 32\n" * 9),
        (READS + steps(0, 96), READS),
        (READS + steps(0, 96), READS + steps(90, 130)),
        (steps(0, 50) + "hpcrun: torchrun restart 1\n" + steps(50, 96), steps(50, 96)),
    ],
    ids=[
        "goes on",
        "one line",
        "the first was short",
        "the newest counts nothing",
        "the first counts nothing",
        "goes on from a later one",
        "steps begin anew in each epoch",
        "epochs without a number",
        "the first line alone",
        "a bar that jumps",
        "settings",
        "what is counted at each start",
        "what is counted before the steps",
        "torchrun's restart",
    ],
)
def test_what_is_not_certain_is_not_said(tmp_path: Path, before: str, after: str) -> None:
    assert OVER not in explained(tmp_path, before, after).summary


@pytest.mark.parametrize(
    "line",
    [
        "{}%|##  | {}/100 [00:10<10:00,  1.02s/it]\r",
        "2026-11-29 14:03:10,125 INFO epoch 0 step {} loss 1.5",
        "[1, {}] loss: 0.250",
    ],
)
def test_whatever_the_line_looks_like(tmp_path: Path, line: str) -> None:
    text = "".join(line.replace("{}", str(number)) + "\n" for number in range(0, 96, 5))
    assert f"had come to step 95: {OVER}" in explained(tmp_path, text, text).summary


def test_the_middle_of_a_long_log_is_not_read(tmp_path: Path) -> None:
    text = steps(0, 200_000, "step: {}")
    shown = explained(tmp_path, text, text)
    assert "had come to step 199995" in shown.summary
    assert shown.evidence[-1].lines == ("line 1: step: 0", "step: 199995")


def test_a_run_that_continues_from_another_one_is_not_judged(tmp_path: Path) -> None:
    checkpoints = RunFolder(tmp_path).element(0).checkpoints
    checkpoints.parent.mkdir(parents=True)
    checkpoints.symlink_to(tmp_path)
    assert OVER not in explained(tmp_path, steps(0, 96), steps(0, 66)).summary


def test_an_attempt_that_completed_had_no_need_of_a_checkpoint(tmp_path: Path) -> None:
    of_run = item(tmp_path, steps(0, 96), steps(0, 66), reason="")
    assert OVER not in explain(of_run, ()).summary


def test_an_epoch_that_goes_on_is_no_new_start(tmp_path: Path) -> None:
    line = "epoch {} step {}"
    first = "".join(line.format(0, step) + "\n" for step in range(20))
    second = "".join(line.format(1, step) + "\n" for step in range(20))
    assert OVER not in explained(tmp_path, first, second).summary
    assert OVER in explained(tmp_path / "again", first, first).summary
