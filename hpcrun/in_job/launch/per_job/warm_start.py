"""Fill the folders of compiled files of all nodes, before the ranks start.

The command is ``launch warm NODES GENERATION``; ``launch warm --node SIZE PART...`` runs on each
node, and ``launch warm --save`` saves what is complete there while the ranks run.

All nodes begin with the same files, or none does: ranks that find what others have to compile wait
for these, or hang. So the head node chooses one generation for all, and if one node cannot unpack
it, the others remove what they have. Each attempt has a new folder: nothing that an earlier attempt
has left on one node is used.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from .. import node_folder, rank_environment, records
from ..compiled import archive, generations
from ..compiled.node import (
    CPU,
    FILES,
    FILLED,
    FOLDER,
    INTO,
    LEFT_S,
    MORE,
    PREFIX,
    UNPACKED,
    cpu_kind,
    path_on,
    save,
)
from ..processes import launch_program
from . import node_step
from .repeated_failure import has_made_a_step

if TYPE_CHECKING:
    from ..job_step import JobStep

RECORD = "warm"
"""In the folder of an attempt: from which generation it has started, or why from none."""
NODE = "--node"
SAVE = "--save"
LOCAL = "--local"
READY = "ready"
USE = "use"
EMPTY = "empty"
"""The last words for the nodes."""
_PART = "part"


class WarmStartError(Exception):
    """A generation cannot be used; the message says why."""


def main(arguments: list[str]) -> int:
    """Fill the folders of all nodes, or of this one, or save this one; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    if arguments[0] == SAVE:
        save(path_on(os.environ["HPCRUN_NODE"]), at_end=False)
    elif arguments[0] == NODE:
        _fill_in_step(int(arguments[1]), arguments[2:])
    elif arguments[0] == LOCAL:
        return _fill_local(arguments[1])
    else:
        return _fill_all(arguments[0].split(","), arguments[1])
    return 0


# --- the job -------------------------------------------------------------------------------------


class WarmStart:
    """The compiled files of a job, of which each attempt has its own folder on each node.

    Args:
        program: the folder of the program's generations, below that of all programs.
        variables: further variables of compilers that keep files.
        is_local: the nodes of the job are this machine.
    """

    def __init__(self, program: str, variables: list[str], *, is_local: bool) -> None:
        runs = os.path.dirname(os.path.realpath(os.environ["HPCRUN_RUN_DIR"]))
        self._folder = os.path.join(runs, ".compiled", f"{program}-{_system_kind()}")
        self._variables = variables
        self._is_local = is_local

    def prepare(self, step: JobStep, nodes: list[str]) -> None:
        """Fill the folders of the nodes for the next attempt, or let all begin empty."""
        env = os.environ
        place = _place()
        if not place:
            env.pop(FOLDER, None)
            places = " and ".join(_places())
            _say_cold(f"programs cannot be loaded from {places} of this node")
            return
        env[INTO] = generations.new(self._folder)
        env[CPU] = cpu_kind()
        env[MORE] = " ".join(self._variables)
        env[FOLDER] = _new_folder(place)
        env[FILLED] = "1" if self._fill(step, nodes) else ""
        if not env[FILLED]:
            env[FOLDER] = _new_folder(place)

    def _fill(self, step: JobStep, nodes: list[str]) -> bool:
        """Fill the folders; return whether they are filled."""
        if _failed_before_a_step():
            number = int(os.environ["HPCRUN_ATTEMPT"])
            _say_cold(f"attempt {number} started warm and failed before its first step")
            return False
        generation = generations.newest(self._folder)
        if generation is None:
            records.write(RECORD, {"into": os.environ[INTO]})
            return False
        where = LOCAL if self._is_local else ",".join(nodes)
        status = step.run_other([*launch_program(), "warm", where, generation.path], nodes)
        if status and self._is_local:
            for node in nodes:
                node_folder.remove(path_on(node))
        return status == 0


def _failed_before_a_step() -> bool:
    """Return whether the attempt before has started warm, failed, and shows no step."""
    folder = records.folder_before()
    if not folder or "run" not in (records.read(RECORD, folder) or {}):
        return False
    ended = records.read("exit", folder) or {}
    return ended.get("reason") == "failure" and not has_made_a_step(folder)


def _say_cold(why: str) -> None:
    records.say(f"--warm: this attempt starts cold: {why}")
    records.write(RECORD, {"into": os.environ.get(INTO, ""), "cold": why})


def _new_folder(place: str) -> str:
    """Return the beginning of a name that other users cannot foresee."""
    return os.path.join(place, f"{PREFIX}{os.environ['HPCRUN_JOB_ID']}-{os.urandom(8).hex()}")


def _place() -> str:
    """Return a folder on this node's own disk from which programs can be loaded; empty if none."""
    for place in _places():
        if _can_load_programs(place):
            return place
    return ""


def _places() -> list[str]:
    chosen = os.environ.get("HPCRUN_STAGE_DIR", "")
    return [chosen, *node_folder.PLACES] if chosen else [*node_folder.PLACES]


def _can_load_programs(place: str) -> bool:
    try:
        is_usable = os.access(place, os.W_OK) and not node_folder.is_shared(place)
        return is_usable and not os.statvfs(place).f_flag & os.ST_NOEXEC
    except OSError:
        return False


def _system_kind() -> str:
    """Return a code of what compiled code depends on and compilers do not look at."""
    import binascii

    facts = (os.confstr("CS_GNU_LIBC_VERSION"), sys.version, cpu_kind())
    return f"{binascii.crc32(repr(facts).encode()):08x}"


# --- the head node -------------------------------------------------------------------------------


def _fill_all(nodes: list[str], path: str) -> int:
    """Fill the folders of all nodes; return 0, or 1 if all have to begin empty."""
    began = time.monotonic()
    generation = generations.complete(path)
    if generation is None:
        _say_cold(f"{path} is not complete any more")
        return 1
    problem = ""
    files = ""
    arguments = ["warm", NODE, str(generation.size), *generation.parts]
    with node_step.NodeStep(nodes, arguments) as step:
        for report in step.reports():
            if report.kind == node_step.FAILED:
                problem = f"{report.node}: {report.text}"
                step.write_last_word(EMPTY)
                break
            if report.kind == node_step.DONE:
                files = report.text
            if step.done == len(nodes):
                step.write_last_word(USE)
                break
        status = step.wait()
    if problem or status or not files:
        _say_cold(problem or f"the step that unpacks {path} ended with status {status}")
        return 1
    where = node_step.count(len(nodes), "node")
    _say_warm(generation, int(files), where, time.monotonic() - began)
    return 0


def _fill_local(path: str) -> int:
    """Fill the folder of a node that is this machine; return 0, or 1 if all begin empty."""
    began = time.monotonic()
    generation = generations.complete(path)
    if generation is None:
        _say_cold(f"{path} is not complete any more")
        return 1
    try:
        _make_room(generation.size)
        os.close(node_folder.create(path_on(os.environ["HPCRUN_NODE"])))
        files = _unpack(generation.parts)
    except (OSError, archive.DamagedArchiveError, WarmStartError) as error:
        _say_cold(str(error))
        return 1
    if os.environ["HPCRUN_NODE_RANK"] == "0":
        _say_warm(generation, files, "this machine", time.monotonic() - began)
    return 0


def _say_warm(generation: generations.Generation, files: int, where: str, seconds: float) -> None:
    what = f"{node_step.count(files, 'compiled file')} of run {generation.run}"
    records.say(f"--warm: {what} on {where}, unpacked in {seconds:.1f} s")
    fields = {
        "into": os.environ[INTO],
        "run": generation.run,
        "files": files,
        "seconds": round(seconds, 2),
    }
    records.write(RECORD, fields)


# --- each node -----------------------------------------------------------------------------------


def _fill_in_step(size: int, parts: list[str]) -> None:
    """Fill the folder of this node, and remove it if the head node says so."""
    rank_environment.be_node()
    folder = path_on(os.environ["HPCRUN_NODE"])
    try:
        _make_room(size)
        held = node_folder.create(folder)
    except (OSError, WarmStartError) as error:
        node_step.tell_failure(error)
        return
    answer = ""
    try:
        node_step.tell(READY, 0)
        answer = node_step.wait_for_turn()
        if not answer:
            node_step.tell(node_step.DONE, _unpack(parts))
            answer = node_step.wait_for_last_word()
    except (OSError, archive.DamagedArchiveError) as error:
        node_step.tell_failure(error)
    finally:
        os.close(held)
        if answer != USE:
            node_folder.remove(folder)


def _unpack(parts: list[str]) -> int:
    """Unpack the archives of a generation; return the number of files.

    Raises:
        OSError, DamagedArchiveError: an archive cannot be used.
    """
    folder = path_on(os.environ["HPCRUN_NODE"])
    files = os.path.join(folder, FILES)
    part = os.path.join(folder, _PART)
    os.mkdir(part, 0o700)
    names = []
    for path in parts:
        names += archive.unpack(path, part, files)
    with open(os.path.join(folder, UNPACKED), "w", encoding="utf-8") as file:
        file.write("\n".join(names))
    os.rename(part, files)
    return len(names)


def _make_room(size: int) -> None:
    """Check the disk of this node, after what killed jobs have left is removed.

    Raises:
        WarmStartError: it is full, programs cannot be loaded from it, or the node is of another
            kind.
    """
    if cpu_kind() != os.environ[CPU]:
        raise WarmStartError("its CPU is of another kind than that of the head node")
    place = os.path.dirname(os.environ[FOLDER])
    if not _can_load_programs(place):
        raise WarmStartError(f"programs cannot be loaded from {place}")
    node_folder.sweep(place, PREFIX, LEFT_S)
    room = node_step.room(place)
    if room < size:
        needed = node_step.megabytes(size)
        raise WarmStartError(f"{place} has {node_step.megabytes(room)} free, {needed} are needed")
