"""The files of --stage: the head node lists them once, for all nodes, in the folder of the attempt.

Each source has a folder there, with a link to the source below ``data``, the ``names`` of the files
for tar, and the ``list`` by which a copy that is kept is verified.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from .kept_data import DATA, LIST, ListCode, entry_record, source_record

NAMES = "names"
MOST_PATHS = 1000
"""The paths by which links may lead to one folder: nested links double them at each level."""


@dataclass(frozen=True)
class FileListing:
    """What is copied of one source.

    Attributes:
        folder: its folder in that of the lists.
        label: its name below $HPCRUN_STAGE.
        code: names its path, and the name, size and time of each file.
        files: the number of files.
        size: their bytes on the disk.
        skipped: the links that lead nowhere, or to a folder above them.
    """

    folder: str
    label: str
    code: str
    files: int
    size: int
    skipped: int


class StageError(Exception):
    """The data cannot be copied; the message says why."""


def list_source(folder: str, text: str) -> FileListing:
    """Make a folder with a link to a source, and the lists of the files below it.

    Links are followed. Other kinds of entries, as sockets, cannot be copied.

    Args:
        folder: the folder to make.
        text: the source, as NAME/SRC.

    Raises:
        OSError: a folder cannot be read.
        StageError: if the source does not exist, or links lead to a folder in too many ways.
    """
    label, _, source = text.partition("/")
    root = os.fsencode(os.path.join(folder, DATA))
    os.makedirs(root)
    if not os.path.exists(source):
        raise StageError(f"there is no {source} on {os.uname().nodename}")
    os.symlink(source, os.path.join(root, os.fsencode(label)))
    files = 0
    skipped = 0
    code = ListCode()
    # files with several names, or links to them, take their room once
    sizes: dict[tuple[int, int], int] = {}
    paths = Counter[tuple[int, int]]()  # of each folder
    names_path = os.path.join(folder, NAMES)
    list_path = os.path.join(folder, LIST)
    with open(names_path, "wb") as for_tar, open(list_path, "wb") as listed:
        first = source_record(os.path.realpath(source))  # a link may lead elsewhere the next time
        code.add(first)
        listed.write(first)
        for place, folders, names in os.walk(root, onerror=_fail, followlinks=True):
            back = {name for name in folders if _leads_back(root, os.path.join(place, name))}
            folders[:] = sorted(name for name in folders if name not in back)
            skipped += len(back)
            for name in (*folders, *sorted(names)):
                path = os.path.join(place, name)
                try:
                    info = os.stat(path)
                except OSError:
                    skipped += 1
                    continue
                place_on_disk = (info.st_dev, info.st_ino)
                if stat.S_ISREG(info.st_mode):
                    files += 1
                    sizes[place_on_disk] = min(info.st_size, 512 * info.st_blocks)
                elif stat.S_ISDIR(info.st_mode):
                    paths[place_on_disk] += 1
                    if paths[place_on_disk] > MOST_PATHS:
                        real = os.fsdecode(os.path.realpath(path))
                        raise StageError(f"more than {MOST_PATHS:,} paths of links lead to {real}")
                else:
                    continue
                relative = b"." + path[len(root) :]
                for_tar.write(relative + b"\0")
                record = entry_record(relative, info)
                code.add(record)
                listed.write(record)
    return FileListing(
        folder=os.path.basename(folder),
        label=label,
        code=code.text(),
        files=files,
        size=sum(sizes.values()),
        skipped=skipped,
    )


def _fail(error: OSError) -> None:
    raise error


@lru_cache(maxsize=1000)
def _real(folder: bytes) -> bytes:
    return os.path.realpath(folder)


def _leads_back(root: bytes, path: bytes) -> bool:
    """Whether a path is a link to a folder above it."""
    place = os.path.dirname(path)
    if place == root or not os.path.islink(path):
        return False
    target = os.path.realpath(path)
    while place != root and os.path.commonpath([target, _real(place)]) != target:
        place = os.path.dirname(place)
    return place != root
