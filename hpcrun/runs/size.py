"""How much a run's folder holds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

CHECKPOINTS = "checkpoints"


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes on the disk.

    Attributes:
        total: of the whole folder, checkpoints included.
        checkpoints: of what lies in the folders that ``HPCRUN_CHECKPOINT_DIR`` names.
    """

    total: int
    checkpoints: int


def run_size(folder: Path) -> Size:
    """Return the size of a run's folder. Links in it are not followed; what cannot be read counts as nothing."""
    total = checkpoints = 0
    root = folder.resolve()
    for where, _, names in os.walk(root):
        parts = Path(where).relative_to(root).parts
        size = sum(_size(os.path.join(where, name)) for name in names)
        total += size
        if len(parts) > 2 and parts[0] == "elements" and parts[2] == CHECKPOINTS:
            checkpoints += size
    return Size(total, checkpoints)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_blocks * 512  # lstat(2): of 512 bytes, whatever the file system's
    except OSError:
        return 0
