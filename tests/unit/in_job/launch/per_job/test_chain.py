"""Whether a link of a chain got anywhere, from what is known at its end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcrun.in_job.launch import records, slurm_requests
from hpcrun.in_job.launch.per_job.chain import end_link, judge_link, progress
from hpcrun.in_job.launch.per_job.repeated_failure import AT_ONCE_S
from hpcrun.in_job.launch.per_job.why_ended import FAILURE
from tests.unit.builders import write

FIRST: dict[str, Any] = {}
STEPS = {"step": 1200, "status": 1, "at_once": False, "nowhere": False}
NO_STEPS = {**STEPS, "step": None}


def link(**fields: Any) -> dict[str, Any]:
    """What is known of a link that has failed."""
    usual = {
        "number": 2,
        "status": 1,
        "seconds": 3600.0,
        "failed": True,
        "saved": None,
        "step": None,
    }
    given = {**usual, **fields}
    return {**given, "at_once": given["failed"] and given["seconds"] < AT_ONCE_S}


@pytest.mark.parametrize(
    ("end", "before", "reason"),
    [
        (
            link(saved=False, step=1200),
            STEPS,
            "link 2 made no new checkpoint and no step since 1200",
        ),
        # before its first step
        (link(saved=False), STEPS, "link 2 made no new checkpoint and no step since 1200"),
        # its time limit
        (link(saved=False, failed=False), NO_STEPS, "link 2 made no new checkpoint and no step"),
        (
            link(saved=False, number=1, failed=False),
            FIRST,
            "link 1 made no new checkpoint and no step",
        ),
        (
            link(saved=False),
            {**NO_STEPS, "nowhere": True},
            "link 2 made no new checkpoint and no step",
        ),
        (
            link(seconds=7.0),
            {**NO_STEPS, "at_once": True},
            "link 2 failed after 7 s with exit status 1, as link 1 did",
        ),
    ],
)
def test_a_link_that_got_nowhere_ends_its_chain(
    end: dict[str, Any], before: dict[str, Any], reason: str
) -> None:
    assert judge_link(end, before) == (reason, True)


@pytest.mark.parametrize(
    ("end", "before"),
    [
        (link(saved=True), STEPS),
        (link(saved=True, seconds=7.0), {**NO_STEPS, "at_once": True}),
        (link(saved=False, step=1201), STEPS),
        (link(saved=False, step=5), NO_STEPS),
        (link(number=1), FIRST),
        (link(), NO_STEPS),  # checkpoints elsewhere, and no steps
        (link(step=1100), STEPS),  # elsewhere, and perhaps its steps begin anew in each link
        # a failure, perhaps after hours of work that nobody has noted
        (link(saved=False), NO_STEPS),
        (link(seconds=7.0, status=2), {**NO_STEPS, "at_once": True}),
        (link(seconds=7.0, failed=False), {**NO_STEPS, "at_once": True}),
        (link(seconds=7.0), NO_STEPS),
    ],
)
def test_a_chain_continues_if_a_link_may_have_got_further(
    end: dict[str, Any], before: dict[str, Any]
) -> None:
    assert judge_link(end, before)[1] is False


def test_the_progress_of_a_chain_is_kept_from_link_to_link() -> None:
    first = progress(link(number=1, step=1200), {}, nowhere=False)
    assert first["step"] == 1200
    assert first["at_once"] is False
    assert first["nowhere"] is False
    second = progress(link(step=1100, seconds=7.0), first, nowhere=True)
    assert second["step"] == 1200
    assert second["at_once"] is True
    assert second["nowhere"] is True


@pytest.fixture
def cancelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The jobs that a link of a chain of four cancels."""
    job_ids: list[str] = []

    def cancel(ids: list[str]) -> str:
        job_ids.extend(ids)
        return ""

    monkeypatch.setattr(slurm_requests, "cancel_pending", cancel)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "chain").mkdir()
    monkeypatch.setenv("HPCRUN_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    for number in (1, 2, 3, 4):
        record = {"job_id": str(number), "links": 4}
        (tmp_path / f"chain/link-{number}").write_text(json.dumps(record))
    return job_ids


def end(folder: Path, number: int, why: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """End a link, whose program has returned 1 at once and has noted no step."""
    attempt = folder / f"run-{number}/attempts/0"
    attempt.mkdir(parents=True)
    (attempt / "start").write_text('{"started": 9e99}')
    monkeypatch.setenv("HPCRUN_JOB_ID", str(number))
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt))
    return end_link(1, lambda: why)


def test_two_links_that_fail_at_once_end_a_chain(
    tmp_path: Path, cancelled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert end(tmp_path, 1, FAILURE, monkeypatch) == ""
    assert "as link 1 did" in end(tmp_path, 2, FAILURE, monkeypatch)
    assert cancelled == ["4", "3"]


def test_a_link_that_lost_a_node_is_between_two_that_fail_at_once(
    tmp_path: Path, cancelled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert end(tmp_path, 1, FAILURE, monkeypatch) == ""
    assert end(tmp_path, 2, records.NODE_FAILURE, monkeypatch) == ""
    assert end(tmp_path, 3, FAILURE, monkeypatch) == ""
    assert json.loads((tmp_path / "chain/progress").read_text())["number"] == 3
    assert cancelled == []


@pytest.mark.parametrize(
    ("listed", "problem"),
    [("echo 4", "Slurm still lists 4 as pending"), ("exit 1", ""), ("true", "")],
    ids=["still pending", "forgotten", "gone"],
)
def test_the_next_links_are_cancelled_once_slurm_lists_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, problem: str
) -> None:
    for name, program in (("scancel", "exit 0"), ("squeue", listed)):
        write(tmp_path / name, f"#!/bin/sh\n{program}\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert slurm_requests.cancel_pending(["4", "3"]) == problem
