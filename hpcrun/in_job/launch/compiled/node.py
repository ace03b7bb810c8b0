"""The folder of compiled files of one node, while the ranks of an attempt run.

It lies on the node's own disk, belongs to this user alone, and has a name that others cannot
foresee: several nodes that share such a folder break each other's files, and another user who can
write to it can run code in the job. The head node chooses its name, and may have filled it
(per_job/warm_start.py). The last process of the node to leave saves what is new, and removes it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

from .. import node_folder, rank_environment, records, tracker_environment
from ..processes import launch_program
from .folder import (
    FILES,
    FILLED,
    LEAST_ROOM,
    MORE,
    QUIET_S,
    UNCLEAN,
    compiled_files,
    note_unfinished,
    path_on,
    problem_of,
    unpacked_files,
)

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each node to import
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable

VARIABLES = {
    rank_environment.INDUCTOR: "inductor",
    "TRITON_HOME": "triton",
    "CUDA_CACHE_PATH": "cuda",
}
"""The variables of compilers, and the folder of each below this one. One that is set stays.

TRITON_CACHE_DIR is not among them: without it, Inductor has a folder for the kernels of each GPU.
"""
TRIES = 100
TRY_S = 0.05
"""How often, and with which pause, a process tries to make the folder while another removes it."""
LOOK_S = 20.0
"""How often the new files are counted while the ranks run."""
COST = 1000
"""The next count waits 1000 times as long as the last one took: at most 0.1 % of a CPU."""


class CompiledFolder:
    """The folder of this node, held until ``leave`` or the end of this process.

    Raises:
        OSError: the folder cannot be made, or belongs to another user.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._held = _make(path)
        self._unpacked = unpacked_files(path)
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
        began = time.monotonic()
        times = self._new_files()
        now = time.monotonic()
        self._look_at = now + LOOK_S + COST * (now - began)
        self._record(times)
        is_quiet = bool(times) and _age_s(times.values()) > QUIET_S
        if is_quiet and not self._has_saved_early:
            self._has_saved_early = True
            self._saver = _start_saver()

    def note_writers(self, pids: list[int]) -> None:
        """Note what some processes are writing, which are killed next."""
        try:
            note_unfinished(self._path, pids)
        except OSError:
            _mark_unclean(self._path)

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
        try:
            held = node_folder.hold_alone(self._path)
        except OSError:  # another process uses it, or the program has removed it
            return
        times = self._new_files()
        self._record(times)
        if may_save and times:
            from .saving import save  # slow to import, and most jobs have nothing to save

            save(self._path, at_end=True)
        node_folder.remove_held(self._path, held)

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
        first = max(0.0, min(times.values()))  # a compiler may set any time
        fields = {"files": len(times), "first": first, "last": max(0.0, *times.values())}
        records.write(f"node-{node}.compiled", fields)


def _age_s(times: Iterable[float]) -> float:
    """Return how long ago the last of some times was; times to come, of a wrong clock, are none."""
    now = time.time()
    return now - max((changed_at for changed_at in times if changed_at <= now), default=0.0)


def use() -> CompiledFolder | None:
    """Return the folder of this node, with the variables set; None if it cannot be used."""
    try:
        return CompiledFolder(path_on(os.environ["HPCRUN_NODE"]))
    except OSError as error:
        records.say(f"--warm: {os.environ['HPCRUN_NODE']} keeps nothing compiled: {error}")
        return None


def _start_saver() -> subprocess.Popen[bytes] | None:
    import subprocess

    try:
        return subprocess.Popen([*launch_program(), "warm", "--save"])
    except OSError as error:
        records.say(f"--warm: {os.environ['HPCRUN_NODE']} saves only at the end: {error}")
        return None


def _set_variables(files: str) -> None:
    """Set the variables of compilers that are not set."""
    folders = {**VARIABLES}
    for name in os.environ.get(MORE, "").split():
        folders[name] = name.lower()
    for name, folder in folders.items():
        if name not in os.environ:
            os.environ[name] = os.path.join(files, folder)
            # a job that the program submits does not get the variable
            os.environ[tracker_environment.PUT + name] = os.environ[name]


def _make(path: str) -> int:
    """Make the folder, unless another process of this node has; return what holds it.

    Raises:
        OSError: it belongs to another user, or cannot be made.
    """
    place = os.path.dirname(path)
    problem = problem_of(place)
    if problem:
        raise OSError(problem)
    # a folder that is filled is used, as those of the other nodes are
    if not os.environ[FILLED] and node_folder.room(place) < LEAST_ROOM:
        raise OSError(f"{place} has less than {LEAST_ROOM >> 20} MiB free")
    if place not in node_folder.PLACES:
        node_folder.sweep(place, node_folder.COMPILED_PREFIX, node_folder.COMPILED_LEFT_S)
    for _ in range(TRIES):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        with suppress(FileNotFoundError, BlockingIOError):  # a rank that has ended removes it
            return node_folder.hold(path)
        time.sleep(TRY_S)
    raise OSError(f"{path} is removed again and again")


def _mark_unclean(path: str) -> None:
    try:
        os.close(os.open(os.path.join(path, UNCLEAN), os.O_WRONLY | os.O_CREAT, 0o600))
    except OSError as error:
        records.say(f"--warm: cannot write to {path}: {error}")
