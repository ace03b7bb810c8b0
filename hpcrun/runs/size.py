"""The size of a run's folder."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcrun.job.layout import is_checkpoint


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes on the disk.

    Attributes:
        total: of the whole folder, checkpoints included.
        checkpoints: of the files in the folders of ``HPCRUN_CHECKPOINT_DIR``.
    """

    total: int
    checkpoints: int


def run_size(folder: Path) -> DiskUsage:
    """Return the size of a run's folder. Links in it are not followed; an unreadable folder counts as empty."""
    total = checkpoints = 0
    waiting: list[tuple[str, tuple[str, ...]]] = [(os.path.realpath(folder), ())]
    while waiting:  # os.walk calls itself for each level up to Python 3.11, and a path may have two thousand
        where, parts = waiting.pop()
        size, below = _look_into(where)
        waiting += [(os.path.join(where, name), (*parts[:3], name)) for name in below]
        total += size
        if is_checkpoint(parts):
            checkpoints += size
    return DiskUsage(total, checkpoints)


def _look_into(folder: str) -> tuple[int, list[str]]:
    """Return the bytes of the files in a folder, and the names of the folders in it."""
    size, below = 0, []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    below.append(entry.name)
                else:  # lstat(2): blocks of 512 bytes, whatever the file system's
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
    return size, below
