"""A job that wrote nothing for a long time before it was stopped."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.explain.test_corpus import explained
from tests.unit.explain.written import Written, write_run

ATTEMPT = "elements/0/attempts/0"


def stopped(folder: Path, state: str, wrote: dict[int, float], batch: str = "") -> Path:
    """A job that began at 1500 s and was signalled at 1620 s; rank → when it last wrote, else at 1502 s."""
    write_run(Written(None, "", "", state=state, failed=None, batch=batch), folder)
    end = {"status": 143, "signal": "TERM", "ended": 1620.0, "message": ""}
    (folder / ATTEMPT / "exit").write_text(json.dumps(end))
    for rank in range(8):
        (folder / ATTEMPT / f"rank-{rank}.exit").unlink()
        for stream in ("out", "err"):
            os.utime(folder / ATTEMPT / f"rank-{rank}.{stream}", (0, wrote.get(rank, 1502.0)))
    return folder


LIMIT = "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-11-22T10:00:00 DUE TO TIME LIMIT ***\n"


@pytest.mark.parametrize(("state", "batch"), [("TIMEOUT", ""), ("TIMEOUT", LIMIT), ("CANCELLED", "")])
def test_a_job_that_was_silent_before_its_end_may_have_hung(tmp_path: Path, state: str, batch: str) -> None:
    said = explained(stopped(tmp_path / "run", state, {3: 1512.0}, batch))
    how = "reached its time limit" if state == "TIMEOUT" else "was cancelled"
    assert said.summary == f"the job {how}; no rank had written for 108 s: it may have hung"
    assert "--stacks" in said.fix
    assert not said.fix.startswith("use a longer --time")


def test_a_job_that_wrote_until_it_was_stopped_did_not_hang(tmp_path: Path) -> None:
    said = explained(stopped(tmp_path / "run", "TIMEOUT", {3: 1580.0}))
    assert said.summary == "the job reached its time limit"
    assert said.fix.startswith("use a longer --time")


def test_ranks_that_never_wrote_prove_nothing(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", "TIMEOUT", {})
    for log in folder.glob(f"{ATTEMPT}/rank-*.out"):
        log.write_text("")
    assert explained(folder).summary == "the job reached its time limit"


def test_a_quick_look_at_some_of_many_ranks_says_nothing_of_the_others(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", "TIMEOUT", {})
    for rank in range(8, 90):
        (folder / ATTEMPT / f"rank-{rank}.out").write_text("step 1\n")
        os.utime(folder / ATTEMPT / f"rank-{rank}.out", (0, 1619.0))
    assert explained(folder, quick=True).summary == "the job reached its time limit"
