"""The folder of compiled files of a node: its name, what lies in it, and the variables for it."""

from __future__ import annotations

import binascii
import hashlib
import os
import stat

from .. import node_folder, rank_environment, records

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each node to import
if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = rank_environment.COMPILED
SECRET = "HPCRUN_COMPILED_SECRET"
INTO = "HPCRUN_COMPILED_INTO"
MORE = "HPCRUN_COMPILED_VARIABLES"
CPU = "HPCRUN_COMPILED_CPU"
FILLED = "HPCRUN_COMPILED_FILLED"
"""The variables with the beginning of the path of this folder, what its name on a node is made of,
the generation in which it is saved, further variables of compilers, the kind of CPU of the head
node, and whether the folder was filled.
"""
LEAST_ROOM = 64 << 20
"""A node with less room on its disk uses the folders that compilers choose themselves."""
QUIET_S = 60.0
"""A file that has not changed for so long is complete: compilers write some in place, and may be
killed."""
FILES = "files"
UNPACKED = "unpacked"
UNCLEAN = "unclean"
"""In the folder: the compiled files; the names of those that were unpacked; a mark that a process
of this node has failed."""


def path_on(node: str) -> str:
    """Return the path of the folder of a node.

    Who sees the name of one node's folder cannot foresee that of another node's.
    """
    secret = os.environ[SECRET].encode()
    code = hashlib.sha256(secret + os.fsencode(node)).hexdigest()[:16]
    return f"{os.environ[FOLDER]}-{code}"


def can_load_programs(place: str) -> bool:
    """Return whether a folder is on this node's own disk, and programs can be loaded from it."""
    try:
        is_usable = os.access(place, os.W_OK) and not node_folder.is_shared(place)
        return is_usable and not os.statvfs(place).f_flag & os.ST_NOEXEC
    except OSError:
        return False


def unpacked_files(path: str) -> set[str]:
    """Return the names of the files that were unpacked into the folder."""
    try:
        with open(os.path.join(path, UNPACKED), encoding="utf-8") as file:
            return set(file.read().splitlines())
    except FileNotFoundError:  # nothing was unpacked
        return set()


def compiled_files(path: str) -> Iterator[tuple[str, float]]:
    """Yield name and time of the last change of each compiled file below the folder.

    Locks, files that are being written, and what an archive cannot have are none.
    """
    files = os.path.join(path, FILES)
    for place, folders, names in os.walk(files):
        folders[:] = [name for name in folders if name != "locks" and not name.startswith("tmp.")]
        for name in names:
            whole = os.path.join(place, name)
            try:
                info = os.lstat(whole)
            except OSError:  # its compiler has just renamed it
                continue
            is_file = stat.S_ISREG(info.st_mode) and not name.endswith((".lock", ".tmp"))
            if is_file and whole.isprintable():
                yield os.path.relpath(whole, files), info.st_mtime


def cpu_kind() -> str:
    """Return a code of the CPU of this node, for which code may have been compiled."""
    first = records.read_text("cpuinfo", "/proc").partition("\n\n")[0]
    facts = [os.uname().machine]
    for line in first.splitlines():
        if line.startswith(("flags", "Features", "model name")):
            facts.append(line)
    return f"{binascii.crc32(os.fsencode(repr(facts))):08x}"
