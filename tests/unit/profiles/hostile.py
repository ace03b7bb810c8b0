"""An ordinary user, and folders in which others have a say: for tests of what hpcrun reads."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcrun.files.ownership import program_owner

VICTIM, ATTACKER = 65534, 65533


@contextmanager
def ordinary_user() -> Iterator[Path]:
    """Be an ordinary user for a while, in a folder of its own, which others can reach as they can a
    home folder.

    Without root's power one is an ordinary user already.
    """
    folder = Path(tempfile.mkdtemp(prefix="hpcrun-unit-", dir="/tmp"))
    folder.chmod(0o755)
    root = os.geteuid() == 0
    # asked while it can be: the checkout may lie in a folder that is closed to others
    program_owner()
    if root:
        os.chown(folder, VICTIM, VICTIM)
        os.setegid(VICTIM)
        os.seteuid(VICTIM)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
            os.setegid(0)
        shutil.rmtree(folder)


def put(path: Path, text: str = "", mode: int = 0o644) -> Path:
    """Write a file, with the folders above it, whatever the umask."""
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir()
            folder.chmod(0o755)
    path.write_text(text)
    path.chmod(mode)
    return path


def give_away(path: Path) -> None:
    """Let another user own a file or folder; only where the tests run as root."""
    os.seteuid(0)
    os.chown(path, ATTACKER, ATTACKER, follow_symlinks=False)
    os.seteuid(VICTIM)
