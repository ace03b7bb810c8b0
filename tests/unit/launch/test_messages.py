"""Senders of messages that do not end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.launch import messages as module
from hpcrun.launch.processes import send


@pytest.fixture
def senders() -> Iterator[list[int]]:
    """Senders that a test asked to kill; SIGKILL reaches them when the test is over."""
    pids: list[int] = []
    yield pids
    for pid in set(pids):
        send(pid, signal.SIGKILL, group=True)
        os.waitpid(pid, 0)


def test_the_job_ends_also_if_its_sender_does_not_respond_to_sigkill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, senders: list[int]
) -> None:
    """As in a system call of a dead file system."""
    hangs = tmp_path / "python"
    hangs.write_text("#!/bin/sh\nexec sleep 60\n", encoding="utf-8")
    hangs.chmod(0o700)
    monkeypatch.setenv("HPCRUN_RUN_DIR", str(tmp_path))
    monkeypatch.setattr(module, "send", lambda pid, number, group: senders.append(pid))
    monkeypatch.setattr(module, "KILL_S", 0.2)
    messages = module.Messages(str(tmp_path), str(hangs), str(tmp_path), 0, frozenset({module.FINISHED}))

    began = time.monotonic()
    messages.tell_end(failed=False, wait_s=0.1)

    assert senders
    assert time.monotonic() - began < 10
