"""The compiled files of a job (--warm): what each attempt begins with.

All nodes begin with the same files, or none does: ranks that find what others have to compile wait
for these, or hang. So the head node chooses one generation for all (unpack_compiled.py), and each
attempt has a new folder: nothing that an earlier attempt has left on one node is used.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from .. import node_folder, records
from ..compiled import generations
from ..compiled.folder import (
    CPU,
    FILLED,
    FOLDER,
    INTO,
    MORE,
    SECRET,
    cpu_kind,
    path_on,
    problem_of,
)
from ..compiled.node import VARIABLES
from ..processes import launch_program
from .repeated_failure import has_made_a_step

if TYPE_CHECKING:
    from ..job_step import JobStep

RECORD = "warm"
"""In the folder of an attempt: from which generation it has started, or why from none."""
LOCAL = "--local"


class WarmStart:
    """The compiled files of a job, of which each attempt has its own folder on each node.

    Args:
        program: the folder of the program's generations, below that of all programs.
        variables: further variables of compilers that keep files.
        is_local: the nodes of the job are this machine.
    """

    def __init__(self, program: str, variables: list[str], *, is_local: bool) -> None:
        self._runs = os.path.dirname(os.path.realpath(os.environ["HPCRUN_RUN_DIR"]))
        self._folder = os.path.join(self._runs, ".compiled", f"{program}-{_system_kind()}")
        self._variables = variables
        self._is_local = is_local

    def prepare(self, step: JobStep, nodes: list[str]) -> None:
        """Fill the folders of the nodes for the next attempt, or let all begin empty."""
        env = os.environ
        env.pop(FOLDER, None)
        env[INTO] = ""
        if not generations.is_own_folder(self._runs):
            say_cold(f"others may write to {self._runs}; keep runs in a folder of your own")
            return
        place = _place()
        if not place:
            say_cold("; ".join(map(problem_of, _places())))
            return
        env[INTO] = generations.new(self._folder)
        env[CPU] = cpu_kind()
        env[MORE] = " ".join(self._variables)
        name = f"{node_folder.COMPILED_PREFIX}{env['HPCRUN_JOB_ID']}"
        env[FOLDER] = os.path.join(place, name)
        env[SECRET] = os.urandom(16).hex()
        env[FILLED] = "1" if self._fill(step, nodes) else ""
        if not env[FILLED]:
            env[SECRET] = os.urandom(16).hex()

    def _fill(self, step: JobStep, nodes: list[str]) -> bool:
        """Fill the folders; return whether they are filled."""
        if _failed_before_a_step():
            number = int(os.environ["HPCRUN_ATTEMPT"])
            say_cold(f"attempt {number} started warm and failed before its first step")
            return False
        generation = generations.newest(self._folder)
        if generation is None:
            record()
            return False
        where = LOCAL if self._is_local else ",".join(nodes)
        status = step.run_other([*launch_program(), "warm", where, generation.path], nodes)
        if status and self._is_local:
            for node in nodes:
                node_folder.remove(path_on(node))
        if status not in (0, records.TERM_STATUS) and not records.read(RECORD):
            say_cold(f"unpacking {generation.path} ended with status {status}")
        return status == 0


def _failed_before_a_step() -> bool:
    """Return whether the attempt before has started warm, failed, and shows no step."""
    folder = records.folder_before()
    if not folder or "run" not in (records.read(RECORD, folder) or {}):
        return False
    ended = records.read("exit", folder) or {}
    return ended.get("reason") == "failure" and not has_made_a_step(folder)


def say_cold(why: str) -> None:
    """Say, and record, that this attempt starts cold although it could have started warm."""
    records.say(f"--warm: this attempt starts cold: {why}")
    record(cold=why)


def record(**fields: object) -> None:
    """Record how this attempt starts, and which variables of compilers a person has set."""
    chosen = [name for name in VARIABLES if name in os.environ]
    records.write(RECORD, {"into": os.environ[INTO], "set": chosen, **fields})


def _place() -> str:
    """Return a folder of this node in which compiled files can lie; empty if none."""
    for place in _places():
        if not problem_of(place):
            return place
    return ""


def _places() -> list[str]:
    chosen = os.environ.get("HPCRUN_STAGE_DIR", "")
    return [chosen, *node_folder.PLACES] if chosen else [*node_folder.PLACES]


def _system_kind() -> str:
    """Return a code of what compiled code depends on and compilers do not look at."""
    import binascii

    facts = (os.confstr("CS_GNU_LIBC_VERSION"), sys.version, cpu_kind())
    return f"{binascii.crc32(repr(facts).encode()):08x}"
