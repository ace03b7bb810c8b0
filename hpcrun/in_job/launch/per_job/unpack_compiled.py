"""Fill the folders of compiled files of all nodes, before the ranks start.

The command is ``launch warm NODES GENERATION``; ``launch warm --node SIZE PART...`` runs on each
node. If one node cannot unpack the generation, the others remove what they have. ``launch warm
--save`` saves what is complete on a node while the ranks run.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from .. import node_folder, rank_environment, records
from ..compiled import archive, generations
from ..compiled.folder import (
    CPU,
    FILES,
    FOLDER,
    LEAST_ROOM,
    UNPACKED,
    cpu_kind,
    path_on,
    problem_of,
)
from ..compiled.saving import save
from . import node_step
from .warm_start import LOCAL, record, say_cold

NODE = "--node"
SAVE = "--save"
READY = "ready"
USE = "use"
EMPTY = "empty"
"""The last words for the nodes."""
_PART = "part"
_WITHIN_S = 300.0
"""Nodes that have not unpacked a generation after so long begin empty: the shared storage, or one
node, hardly responds."""


class UnpackError(Exception):
    """A generation cannot be used on this node; the message says why."""


def main(arguments: list[str]) -> int:
    """Fill the folders of all nodes, or of this one, or save this one; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(records.TERM_STATUS))
    if arguments[0] == SAVE:
        os.nice(10)
        save(path_on(os.environ["HPCRUN_NODE"]), at_end=False)
    elif arguments[0] == NODE:
        _fill_in_step(int(arguments[1]), arguments[2:])
    else:
        return _fill(arguments[0], arguments[1])
    return 0


# --- the head node -------------------------------------------------------------------------------


def _fill(where: str, path: str) -> int:
    """Fill the folders of the nodes from a generation; return 0, or 1 if all begin empty."""
    generation = generations.complete(path)
    if generation is None:
        say_cold(f"{path} is not complete any more")
        return 1
    if where == LOCAL:
        return _fill_local(generation)
    return _fill_all(where.split(","), generation)


def _fill_all(nodes: list[str], generation: generations.Generation) -> int:
    """Fill the folders of all nodes; return 0, or 1 if all have to begin empty."""
    began = time.monotonic()
    path = generation.path
    problem = ""
    files = ""
    arguments = ["warm", NODE, str(generation.size), *generation.parts]
    with node_step.NodeStep(nodes, arguments) as step:
        step.end_after(_WITHIN_S)
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
        if step.is_late:
            problem = f"not all nodes have unpacked {path} within {_WITHIN_S:.0f} s"
    if problem or status or not files:
        say_cold(problem or f"the step that unpacks {path} ended with status {status}")
        return 1
    where = node_step.count(len(nodes), "node")
    _say_warm(generation, int(files), where, time.monotonic() - began)
    return 0


def _fill_local(generation: generations.Generation) -> int:
    """Fill the folder of a node that is this machine; return 0, or 1 if all begin empty."""
    began = time.monotonic()
    try:
        _make_room(generation.size)
        os.close(node_folder.create(path_on(os.environ["HPCRUN_NODE"])))
        files = _unpack(generation.parts)
    except (OSError, archive.DamagedArchiveError, UnpackError) as error:
        say_cold(str(error))
        return 1
    if os.environ["HPCRUN_NODE_RANK"] == "0":
        _say_warm(generation, files, "this machine", time.monotonic() - began)
    return 0


def _say_warm(generation: generations.Generation, files: int, where: str, seconds: float) -> None:
    what = f"{node_step.count(files, 'compiled file')} of run {generation.run}"
    records.say(f"--warm: {what} on {where}, unpacked in {seconds:.1f} s")
    record(run=generation.run, files=files, seconds=round(seconds, 2))


# --- each node -----------------------------------------------------------------------------------


def _fill_in_step(size: int, parts: list[str]) -> None:
    """Fill the folder of this node, and remove it if the head node says so."""
    rank_environment.be_node()
    folder = path_on(os.environ["HPCRUN_NODE"])
    try:
        _make_room(size)
        held = node_folder.create(folder)
    except (OSError, UnpackError) as error:
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
        UnpackError: it is full or cannot be used, or the node is of another
            kind.
    """
    if cpu_kind() != os.environ[CPU]:
        raise UnpackError("its CPU is of another kind than that of the head node")
    place = os.path.dirname(os.environ[FOLDER])
    problem = problem_of(place)
    if problem:
        raise UnpackError(problem)
    node_folder.sweep(place, node_folder.COMPILED_PREFIX, node_folder.COMPILED_LEFT_S)
    free = node_folder.room(place)
    if free < size + LEAST_ROOM:
        needed = f"{(size + LEAST_ROOM) / 1e6:.0f} MB are needed"
        raise UnpackError(f"{place} has {free / 1e6:.0f} MB free, {needed}")
