"""The folder of compiled files of one node, while the ranks of an attempt run.

It lies on the node's own disk, belongs to this user alone, and has a name that others cannot
foresee: several nodes that share such a folder break each other's files, and another user who can
write to it can run code in the job. The head node chooses its name, and may have filled it
(per_job/warm_start.py). The last process of the node to leave saves what is new, and removes it.
"""

from __future__ import annotations

import binascii
import fcntl
import os
import time
from contextlib import suppress

from .. import node_folder, rank_environment, records, tracker_environment
from ..processes import launch_program

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each node to import
if TYPE_CHECKING:
    import subprocess
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
VARIABLES = {
    rank_environment.INDUCTOR: "inductor",
    "TRITON_HOME": "triton",
    "CUDA_CACHE_PATH": "cuda",
}
"""The variables of compilers, and the folder of each below this one. One that is set stays.

TRITON_CACHE_DIR is not among them: without it, Inductor has a folder for the kernels of each GPU.
"""
FILES = "files"
UNPACKED = "unpacked"
UNCLEAN = "unclean"
"""In the folder: the compiled files; the names of those that were unpacked; a mark that a process
of this node has failed."""
QUIET_S = 60.0
"""A file that has not changed for so long is complete: compilers write some in place, and may be
killed."""
TRIES = 100
TRY_S = 0.05
"""How often, and with which pause, a process tries to make the folder while another removes it."""
LOOK_S = 20.0
"""How often the new files are counted while the ranks run."""
_BY_PROCESS = ("fxgraph", "aotautograd")
"""Folders of Inductor whose files have a name of their own in each process: KEY/NAME."""
_STATE = "dynamo"
"""What Dynamo has learnt in a run: no compiled code."""


class CompiledFolder:
    """The folder of this node, held until ``leave`` or the end of this process.

    Raises:
        OSError: the folder cannot be made, or belongs to another user.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = _make(path)
        self._unpacked = _unpacked(path)
        self._look_at = time.monotonic() + LOOK_S
        self._recorded = 0
        self._saver: subprocess.Popen[bytes] | None = None
        self._has_saved_early = False
        if os.environ[FILLED] and not self._unpacked:
            node = os.environ["HPCRUN_NODE"]
            records.say(f"--warm: {path} of {node} is gone: its ranks compile what others have")
        os.makedirs(os.path.join(path, FILES), mode=0o700, exist_ok=True)
        _set_variables(os.path.join(path, FILES))

    def tick(self) -> None:
        """Count the new files from time to time; save them once nothing new has come for long."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_S
        times = self._new_files()
        self._record(times)
        is_quiet = bool(times) and time.time() - max(times.values()) > QUIET_S
        if is_quiet and not self._has_saved_early:
            import subprocess

            self._has_saved_early = True
            self._saver = subprocess.Popen(["nice", *launch_program(), "warm", "--save"])

    def leave(self, *, ended_well: bool, may_save: bool) -> None:
        """Leave the folder; the last process of this node saves what is new, and removes it.

        Args:
            ended_well: this process has ended with 0, so that its files are complete.
            may_save: there is time for it: Slurm is not about to end this process.
        """
        if not ended_well:
            _mark_unclean(self._path)
        if self._saver:
            self._saver.wait()
        os.close(self._held)
        held = _hold_alone(self._path)
        if held is None:
            return
        if may_save:
            self._record(self._new_files())
            save(self._path, at_end=True)
        os.close(held)
        node_folder.remove(self._path)

    def _new_files(self) -> dict[str, float]:
        """Return the files that were not unpacked: name → time of the last change."""
        times = {}
        for name, changed_at in compiled_files(self._path):
            if name not in self._unpacked:
                times[name] = changed_at
        return times

    def _record(self, times: dict[str, float]) -> None:
        """Record how many files are new, if this has changed."""
        if not times or len(times) == self._recorded:
            return
        self._recorded = len(times)
        node = os.environ["HPCRUN_NODE"]
        fields = {"files": len(times), "first": min(times.values()), "last": max(times.values())}
        records.write(f"node-{node}.compiled", fields)


def use() -> CompiledFolder | None:
    """Return the folder of this node, with the variables set; None if it cannot be used."""
    try:
        return CompiledFolder(path_on(os.environ["HPCRUN_NODE"]))
    except OSError as error:
        records.say(f"--warm: {os.environ['HPCRUN_NODE']} keeps nothing compiled: {error}")
        return None


def path_on(node: str) -> str:
    """Return the path of the folder of a node: nodes of one machine share its disk."""
    return f"{os.environ[FOLDER]}-{node}"


def save(path: str, *, at_end: bool) -> None:
    """Save the set of files of this node if some are new, unless another node saves the same set.

    Files that may be incomplete are left out, unless all processes have ended well.

    Args:
        path: the folder, which exists while this process runs.
        at_end: the processes of this node have ended.
    """
    from . import archive, generations  # slow to import, and most jobs have nothing to save

    if cpu_kind() != os.environ[CPU]:
        return  # the next job looks for files of its head node's kind
    all_complete = at_end and not os.path.exists(os.path.join(path, UNCLEAN))
    now = time.time()
    names = []
    for name, changed_at in compiled_files(path):
        if all_complete or now - changed_at > QUIET_S:
            names.append(name)
    if not {*names} - _unpacked(path):
        return
    generation = os.environ[INTO]
    files = os.path.join(path, FILES)
    code = code_of(names)
    size = sum(os.stat(os.path.join(files, name)).st_size for name in names)
    try:
        if not generations.enter(generation, os.environ["HPCRUN_NODE"], code, size):
            return
        archive.write(generations.part(generation, code), files, names)
    except OSError as error:
        records.say(f"--warm: {os.environ['HPCRUN_NODE']} cannot save compiled files: {error}")
        return
    generations.evict(os.path.dirname(generation))


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


def code_of(names: list[str]) -> str:
    """Return a code of what a set of files is good for: the same for nodes that compile alike."""
    import hashlib

    keys = {_key_of(name) for name in names}
    text = "\n".join(sorted(keys))
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


def _key_of(name: str) -> str:
    """Return the part of a file's name that is the same in all processes; empty for a state."""
    _, _, below = name.partition("/")
    folder, _, _ = below.partition("/")
    if folder == _STATE:
        return ""
    return os.path.dirname(name) if folder in _BY_PROCESS else name


def cpu_kind() -> str:
    """Return a code of the CPU of this node, for which code may have been compiled."""
    first = records.read_text("cpuinfo", "/proc").partition("\n\n")[0]
    facts = [os.uname().machine]
    for line in first.splitlines():
        if line.startswith(("flags", "Features", "model name")):
            facts.append(line)
    return f"{binascii.crc32(os.fsencode(repr(facts))):08x}"


def _set_variables(files: str) -> None:
    """Set the variables of compilers that are not set."""
    folders = {**VARIABLES}
    for name in os.environ.get(MORE, "").split():
        folders[name] = name.lower()
    for name, folder in folders.items():
        put = tracker_environment.PUT + name
        if name not in os.environ or os.environ[name] == os.environ.get(put):
            os.environ[name] = os.path.join(files, folder)
            # a job that the program submits does not get the variable
            os.environ[put] = os.environ[name]


def _make(path: str) -> int:
    """Make the folder, unless another process of this node has; return what holds it.

    Raises:
        OSError: it belongs to another user, or cannot be made.
    """
    node_folder.sweep(os.path.dirname(path), PREFIX, LEFT_S)
    for _ in range(TRIES):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with suppress(FileNotFoundError, BlockingIOError):  # a rank that has ended removes it
            return node_folder.hold(path)
        time.sleep(TRY_S)
    raise OSError(f"{path} is removed again and again")


def _hold_alone(path: str) -> int | None:
    """Return what holds the folder for this process alone; None if another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _unpacked(path: str) -> set[str]:
    return set(records.read_text(UNPACKED, path).splitlines())


def _mark_unclean(path: str) -> None:
    try:
        os.close(os.open(os.path.join(path, UNCLEAN), os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError as error:
        records.say(f"--warm: cannot write to {path}: {error}")
