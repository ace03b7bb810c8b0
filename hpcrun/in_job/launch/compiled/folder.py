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
UNFINISHED = "unfinished"
"""In the folder: the compiled files; the names of those that were unpacked; a mark that a process
of this node has failed; the names of files whose writers were killed."""


def path_on(node: str) -> str:
    """Return the path of the folder of a node.

    Who sees the name of one node's folder cannot foresee that of another node's.
    """
    secret = os.environ[SECRET].encode()
    code = hashlib.sha256(secret + os.fsencode(node)).hexdigest()[:16]
    return f"{os.environ[FOLDER]}-{code}"


def problem_of(place: str) -> str:
    """Return why compiled files cannot lie in a folder of this node; empty if they can."""
    try:
        if node_folder.is_shared(place):
            return f"{place} is not on the node's own disk"
        swap = node_folder.swap_problem(place)
        if swap:
            return swap
        if not os.access(place, os.W_OK):
            return f"{place} cannot be written"
        if os.statvfs(place).f_flag & os.ST_NOEXEC:
            return f"programs cannot be loaded from {place}"
    except OSError as error:
        return f"{place}: {error.strerror}"
    return ""


def unpacked_files(path: str) -> set[str]:
    """Return the names of the files that were unpacked into the folder."""
    return _noted(path, UNPACKED)


def _noted(path: str, notes: str) -> set[str]:
    """Return the names of files that are noted in the folder; none without the notes."""
    try:
        with open(os.path.join(path, notes), encoding="utf-8") as file:
            return set(file.read().splitlines())
    except FileNotFoundError:
        return set()


def compiled_files(path: str) -> Iterator[tuple[str, float]]:
    """Yield name and time of the last change of each compiled file below the folder.

    Locks, files that are being written, and what an archive cannot have are none.
    """
    files = os.path.join(path, FILES)
    waiting = [files]
    while waiting:  # os.walk calls itself for each level, which a program may make by the thousand
        for entry in _entries(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                if entry.name != "locks" and not entry.name.startswith("tmp."):
                    waiting.append(entry.path)
                continue
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:  # its compiler has just renamed it
                continue
            is_file = stat.S_ISREG(info.st_mode) and not entry.name.endswith((".lock", ".tmp"))
            if is_file and info.st_mode & stat.S_IRUSR and entry.path.isprintable():
                yield os.path.relpath(entry.path, files), info.st_mtime


def _entries(place: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError:  # just removed, or its path is too long
        return []


def unfinished_files(path: str) -> set[str]:
    """Return the files that a process is writing now, or was writing when it was killed."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return _noted(path, UNFINISHED) | _written_by(pids, path)


def note_unfinished(path: str, pids: list[int]) -> None:
    """Note the files that some processes are writing, which are about to be killed."""
    with open(os.path.join(path, UNFINISHED), "a", encoding="utf-8") as file:
        for name in _written_by(pids, path):
            file.write(f"{name}\n")


def _written_by(pids: list[int], path: str) -> set[str]:
    """Return the compiled files that some processes have open for writing."""
    files = os.path.realpath(os.path.join(path, FILES))
    names = set()
    for pid in pids:
        for number in records.names_in(f"/proc/{pid}/fd"):
            link = f"/proc/{pid}/fd/{number}"
            try:
                target = os.readlink(link)
                is_written = os.lstat(link).st_mode & stat.S_IWUSR  # proc_pid_fd(5)
            except OSError:  # just closed
                continue
            if is_written and target.startswith(f"{files}/") and target.isprintable():
                names.add(os.path.relpath(target, files))
    return names


def cpu_kind() -> str:
    """Return a code of the CPU of this node, for which code may have been compiled."""
    first = records.read_text("cpuinfo", "/proc").partition("\n\n")[0]
    facts = [os.uname().machine]
    for line in first.splitlines():
        if line.startswith(("flags", "Features", "model name")):
            facts.append(line)
    return f"{binascii.crc32(os.fsencode(repr(facts))):08x}"
