"""How far a submission is: which process lives, which holds the claim, and which may revoke it."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from hpcrun.schedulers.submit_claim import (
    Sending,
    claim_text,
    close_submission,
    settle_submission,
    this_submitter,
)
from tests.unit.builders import write

RUN_ID = "20260102-030405-train-0a1b"


def run_folder(where: Path, claim: str = "submit.ready", text: str | None = None) -> Path:
    return write(where / RUN_ID / claim, claim_text() if text is None else text).parent


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def of_the_dead() -> str:
    """The claim of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return json.dumps(asdict(replace(this_submitter(), pid=child.pid)))


def of_another_host() -> str:
    return json.dumps(asdict(replace(this_submitter(), place="login2")))


@contextmanager
def process(*argv: str) -> Iterator[None]:
    """A living process with these arguments."""
    child = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        child.stdout.read(1)
        try:
            yield
        finally:
            child.kill()


def test_while_the_submitter_lives_it_may_submit_and_an_sbatch_that_is_gone_is_gone(
    tmp_path: Path,
) -> None:
    folder = run_folder(tmp_path)
    assert settle_submission(folder, 0.0, 1e9) is Sending.UNDER_WAY
    assert names(folder) == ["submit.ready"]
    assert (
        settle_submission(run_folder(tmp_path / "gone", "submit.called"), 0.0, time.time())
        is Sending.ENDED
    )


@pytest.mark.parametrize("reused", [False, True])
def test_a_submitter_that_died_before_sbatch_loses_its_claim_for_good(
    reused: bool, tmp_path: Path
) -> None:
    # its pid is that of another process now
    another = json.dumps(asdict(replace(this_submitter(), start_ticks=1)))
    folder = run_folder(tmp_path, text=another if reused else of_the_dead())
    for _ in range(2):
        assert settle_submission(folder, time.time(), time.time()) is Sending.NEVER
        assert names(folder) == ["submit.revoked"]


def test_a_submitter_elsewhere_has_ten_minutes(tmp_path: Path) -> None:
    for number, text in enumerate((of_another_host(), "", "[]", '{"colour": 1}')):
        folder = run_folder(tmp_path / str(number), text=text)
        assert settle_submission(folder, 1000.0, 1599.0) is Sending.UNDER_WAY
        assert names(folder) == ["submit.ready"]
        assert settle_submission(folder, 1000.0, 1600.0) is Sending.NEVER
        assert names(folder) == ["submit.revoked"]


@pytest.mark.parametrize(
    ("argv", "progress"),
    [
        # sbatch itself
        (("--output=x", f"/other/spelling/{RUN_ID}/.submission_file_0123.sh"), Sending.UNDER_WAY),
        (("/somewhere/supervisor.py", f"/runs/{RUN_ID}", "60", "0"), Sending.UNDER_WAY),
        # only reads it
        (("tail", "-f", f"/runs/{RUN_ID}/batch.log", f"/runs/{RUN_ID}"), Sending.ENDED),
    ],
)
def test_a_program_that_outlived_its_parent_may_still_submit(
    argv: tuple[str, ...], progress: Sending, tmp_path: Path
) -> None:
    folder = run_folder(tmp_path, "submit.called", of_the_dead())
    with process(*argv):
        assert settle_submission(folder, 0.0, time.time() + 1e6) is progress
    assert settle_submission(folder, 0.0, time.time() + 1e6) is Sending.ENDED


def test_an_sbatch_of_another_host_and_a_run_without_a_claim_have_their_time(
    tmp_path: Path,
) -> None:
    folder = run_folder(tmp_path, "submit.called", of_another_host())
    assert settle_submission(folder, 0.0, time.time()) is Sending.UNDER_WAY
    assert settle_submission(folder, 0.0, time.time() + 601) is Sending.ENDED
    folder = write(tmp_path / "other" / RUN_ID / "run.json", "").parent
    assert settle_submission(folder, 1000.0, 1001.0) is Sending.UNDER_WAY
    assert settle_submission(folder, 1000.0, 1600.0) is Sending.ENDED
    assert names(folder) == ["run.json"]


def test_when_the_answer_was_noted_the_claim_goes(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "submit.called")
    for _ in range(2):
        close_submission(folder)
        assert names(folder) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("pid", 0), ("pid", 10**9 + 1), ("start_ticks", -1), ("start_ticks", 10**18 + 1)],
)
def test_a_claim_with_an_impossible_process_is_of_nobody(
    tmp_path: Path, name: str, value: int
) -> None:
    claim = json.dumps({**asdict(this_submitter()), name: value})
    folder = run_folder(tmp_path, text=claim)
    assert settle_submission(folder, 1000.0, 1001.0) is Sending.UNDER_WAY
