"""Programs of a job handle SIGTERM: a test that calls one leaves no handler to the next."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.in_job.attempts import Attempt


@pytest.fixture(autouse=True)
def sigterm_as_before() -> Iterator[None]:
    """Set back the handler of SIGTERM."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempt]:
    """An attempt whose variables this process has, too."""
    attempt = Attempt(tmp_path)
    for name, value in attempt.env.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    yield attempt
    os.environ.clear()  # of what a program of the job has set
    os.environ.update(before)
    attempt.remove_node_folders()


@pytest.fixture
def job(attempt: Attempt) -> Attempt:
    """An attempt of a job without Slurm, whose nodes are not known yet."""
    attempt.env["HPCRUN_JOB_ID"] = f"L{os.getpid()}"
    attempt.node_folders = attempt.node_folders.replace("-U", "-L")
    for name in ("HPCRUN_NODE", "HPCRUN_NODE_ADDR", "HPCRUN_NODE_RANK", "RANK"):
        del attempt.env[name]
    return attempt
