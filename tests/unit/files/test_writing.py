"""Locks that end with their process."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcrun.files.writing import flocked
from tests.harness import REPO

HOLDS = """
import sys, time
from pathlib import Path
from hpcrun.files.writing import flocked
with flocked(Path(sys.argv[1])) as free:
    print(free, flush=True)
    time.sleep(60)
"""


def test_a_lock_is_waited_for_and_ends_with_its_process(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(lock)], cwd=REPO, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout
    with holder, holder.stdout:
        assert holder.stdout.readline() == "True\n"
        began = time.monotonic()
        with flocked(lock, 0.3) as free:
            assert not free
        assert time.monotonic() - began >= 0.3
        holder.kill()
    with flocked(lock) as free:
        assert free


def test_where_the_file_system_has_no_locks_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what Lustre mounted without -o flock, or NFS without its lock daemon, says
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with flocked(tmp_path / "lock") as free:
        assert free
