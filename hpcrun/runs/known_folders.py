"""The runs folders of a user, for the limit of a day: HPCRUN_RUNS may name another each time."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hpcrun.files.ownership import trusted_owners
from hpcrun.files.reading import read_end
from hpcrun.files.writing import append_line, make_folder

MOST_BYTES = 1 << 20


def note_folder(folder: Path, lists: Sequence[Path]) -> list[Path]:
    """Note a runs folder in lists, and return all folders of the lists that may have own runs.

    A folder of another user has none: hpcrun makes no runs there. So it is not noted, either.

    Args:
        folder: the runs folder that is used now.
        lists: the files with the lists; a list that cannot be written is left as it is.
    """
    folder = folder.absolute()
    folders = {folder: None}
    for path in lists:
        noted = _read(path)
        if folder not in noted and not _is_of_others(folder):
            with suppress(OSError):
                make_folder(path.parent, 0o700)
                append_line(path, json.dumps(str(folder)))
        folders |= dict.fromkeys(noted)
    there = [each for each in folders if each == folder or os.path.lexists(each)]
    return [each for each in there if not _is_of_others(each)]


def _is_of_others(folder: Path) -> bool:
    """Whether a folder belongs to another user; False if that is not known."""
    try:
        return folder.stat().st_uid not in trusted_owners()
    except OSError:
        return False


def _read(path: Path) -> list[Path]:
    folders = []
    with suppress(OSError):
        for line in read_end(path, MOST_BYTES).splitlines():
            with suppress(ValueError):
                folders.append(Path(str(json.loads(line))))
    return folders
