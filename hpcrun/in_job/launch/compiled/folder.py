"""The folder of compiled files of a node: its name, what lies in it, and the variables for it."""

from __future__ import annotations

import binascii
import os

from .. import rank_environment, records

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each node to import
if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = rank_environment.COMPILED
INTO = "HPCRUN_COMPILED_INTO"
MORE = "HPCRUN_COMPILED_VARIABLES"
CPU = "HPCRUN_COMPILED_CPU"
FILLED = "HPCRUN_COMPILED_FILLED"
"""The variables with the beginning of the path of this folder, the generation in which it is saved,
further variables of compilers, the kind of CPU of the head node, and whether the folder was filled.
"""
PREFIX = "hpcrun-compiled-"
"""How the name of the folder begins, before the job id."""
LEFT_S = 3600.0
"""A folder that no process holds was left by a killed job if it is as old."""
QUIET_S = 60.0
"""A file that has not changed for so long is complete: compilers write some in place, and may be
killed."""
FILES = "files"
UNPACKED = "unpacked"
UNCLEAN = "unclean"
"""In the folder: the compiled files; the names of those that were unpacked; a mark that a process
of this node has failed."""


def path_on(node: str) -> str:
    """Return the path of the folder of a node: nodes of one machine share its disk."""
    return f"{os.environ[FOLDER]}-{node}"


def unpacked_files(path: str) -> set[str]:
    """Return the names of the files that were unpacked into the folder."""
    return set(records.read_text(UNPACKED, path).splitlines())


def compiled_files(path: str) -> Iterator[tuple[str, float]]:
    """Yield name and time of the last change of each compiled file below the folder.

    Locks, and files that are being written, are none.
    """
    files = os.path.join(path, FILES)
    for place, folders, names in os.walk(files):
        folders[:] = [name for name in folders if name != "locks" and not name.startswith("tmp.")]
        for name in names:
            whole = os.path.join(place, name)
            if name.endswith((".lock", ".tmp")) or os.path.islink(whole):
                continue
            try:
                changed_at = os.stat(whole).st_mtime
            except OSError:  # its compiler has just renamed it
                continue
            yield os.path.relpath(whole, files), changed_at


def cpu_kind() -> str:
    """Return a code of the CPU of this node, for which code may have been compiled."""
    first = records.read_text("cpuinfo", "/proc").partition("\n\n")[0]
    facts = [os.uname().machine]
    for line in first.splitlines():
        if line.startswith(("flags", "Features", "model name")):
            facts.append(line)
    return f"{binascii.crc32(os.fsencode(repr(facts))):08x}"
