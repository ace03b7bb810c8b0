"""``launch rank [--task | --once] [--as-is] -- PROGRAM ...``: one rank.

Its output goes into its own files, and a record describes how it ended. The program starts as it
would without hpcrun: default dispositions of signals, no signal blocked, its own process group. It
gets each signal to its wrapper once.

--task: srun started it, and it has no node process as parent: the rank's number comes from Slurm.
--once: the program runs once per node, and may start its own ranks.
--as-is: a script has set the environment of its ranks: RANK and the like stay as they are.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count

from . import rank_environment, records, tracker_environment
from .head_address import find_head
from .node_folder import FOLDER, RANK, make
from .node_watch import CLEARED, INSIST_S, StopRequests
from .processes import (
    HEARD,
    Canary,
    block_signals,
    has_ended,
    name_tree,
    reap,
    send,
    signal,
    start,
    sweep,
    try_start,
    wait,
)

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from typing import Any

    from .compiled.node import CompiledFolder
    from .rank_links import RankLinks

SHELLS = ("sh", "bash", "dash", "ksh", "zsh")
ALONE_S = 60.0
"""A rank that is without a connection for so long is reported while it runs."""
ECHO_S = 1.0
"""The same signal within this time is a copy that a container's runtime forwards."""


def main(arguments: list[str]) -> int:
    """Run one rank; return the exit status of its program, 128 + n if signal n ended it."""
    end = arguments.index("--")
    options = arguments[:end]
    program = arguments[end + 1 :]
    as_is = "--as-is" in options
    is_task = "--task" in options
    if is_task and as_is:
        rank_environment.be_node()
    elif is_task:
        _be_a_task()
    for name in os.environ.pop(rank_environment.FOR_TORCHRUN, "").split():
        os.environ.pop(name, None)
    variable = "RANK"
    if "--once" in options:
        variable = "HPCRUN_NODE_RANK"
    elif is_task and as_is:
        variable = "SLURM_PROCID"
    rank = int(os.environ[variable])
    # of its role: its logs and records are numbered through the job
    rank += int(os.environ.get("HPCRUN_RANK_BASE", 0))
    # its parent is the runtime of a container
    contained = rank_environment.CONTAINER in os.environ and bool(options)
    return Rank(rank, is_task=is_task, contained=contained).run(program)


def _be_a_task() -> None:
    """Set the variables of torch's env:// initialisation from srun's variables."""
    env = os.environ
    rank_environment.be_node()
    if "MASTER_ADDR" not in env:
        find_head(is_needed=False)
    env["RANK"] = env["SLURM_PROCID"]
    env["LOCAL_RANK"] = env["SLURM_LOCALID"]
    env["WORLD_SIZE"] = env["SLURM_NTASKS"]
    env["LOCAL_WORLD_SIZE"] = env["SLURM_NTASKS_PER_NODE"].partition("(")[0]
    env.setdefault("MASTER_ADDR", env["HPCRUN_HEAD_ADDR"])
    env.setdefault("MASTER_PORT", env["HPCRUN_PORT"])


_ELF = b"\x7fELF"


class Rank:
    """The wrapper of one rank."""

    def __init__(self, rank: int, *, is_task: bool, contained: bool) -> None:
        self._rank = rank
        self._is_task = is_task
        self._contained = contained
        self._heard_at: dict[int, float] = {}
        self._signalled = ""
        self._insist_at = float("inf")
        self._folder = make()
        os.environ.update({FOLDER: self._folder.path, RANK: str(rank)})
        self._compiled: CompiledFolder | None = None
        if is_task and rank_environment.COMPILED in os.environ:
            from .compiled import node  # slow to import, and most jobs keep no compiled files

            self._compiled = node.use()
        block_signals()
        # a program that sets its title would overwrite the name in /proc/PID/environ
        os.environ.setdefault("SPT_NOENV", "1")
        self._tree = name_tree()
        self._links: RankLinks | None = None
        self._started_at = time.monotonic()
        self._is_reported = False
        self._canary = Canary(self._after_kill)  # another process, which knows what is above
        self._watch = StopRequests(self._folder, self._canary)
        self._pid = 0
        self._writer = 0  # the process that records the versions, until it is reaped

    def run(self, program: list[str]) -> int:
        """Start the program, wait for it, and record how it ended."""
        status = self._set_aside_earlier_start()
        if status is not None:
            self._canary.end()
            return status
        self._write_node_start()
        if self._is_task and os.environ.get("SLURM_LOCALID") == "0":
            rank_environment.warn_of_foreign_folder()
        tracker_environment.continue_run(self._rank)
        log = os.path.join(records.attempt_dir(), f"rank-{self._rank}")
        self._pid, status = try_start(
            program, os.environ, out=log + ".out", err=log + ".err", own_group=True
        )
        heard = False
        if self._pid:
            self._canary.guard(self._pid)
            self._folder.claim(self._mark)
            self._catch_up()
            if self._rank == 0:
                self._writer = self._record_versions(program[0])
            status = self._wait_for_end()
            stops = self._signalled == "TERM" or self._folder.is_stopping()
            heard = stops and self._folder.has(f"heard-{self._rank}")
        self._write_exit(status, heard)
        self._canary.end()
        self._watch.end()
        self._leave_compiled(status)
        self._folder.leave(self._mark)
        if self._pid:
            reap(self._pid)
        return status

    def _wait_for_end(self) -> int:
        """Wait until the program ends, and kill what it has left; return its exit status."""
        ended = wait([self._pid], self._on_signal, self._tick)
        status = ended[1] if ended else records.KILL_STATUS
        self._signalled = self._signalled or self._signalled_by_node()
        if status and not self._signalled:  # not yet reaped, so that its id cannot be another's
            send(self._pid, signal.SIGKILL, group=True)
        if self._is_task or (status and not self._signalled):
            self._sweep()  # a node's process does this for its ranks
        return status

    def _leave_compiled(self, status: int) -> None:
        """Leave the folder of compiled files, which the last rank of the node saves."""
        if self._compiled:
            may_save = not self._signalled and status != records.KILL_STATUS
            self._compiled.leave(ended_well=status == 0, may_save=may_save)

    def _sweep(self) -> None:
        """Kill what the program has left."""
        note_writers = self._compiled.note_writers if self._compiled else None
        sweep(self._tree, before_kill=note_writers)

    @property
    def _mark(self) -> str:
        return f"rank-{self._rank}.{self._pid}"

    def _signalled_by_node(self) -> str:
        """Return how the node has signalled the program without this process."""
        if self._folder.has(CLEARED):
            return "cleared"
        return "TERM" if self._folder.has(f"stop-{records.TERMINATED}") else ""

    def _after_kill(self, pid: int) -> None:
        """End the program after this process was killed, and record it: in the canary."""
        self._pid = pid
        if pid:
            send(pid, signal.SIGKILL, group=True)
        sweep(self._tree)
        if pid:
            self._signalled = self._signalled_by_node()
            node = os.environ["HPCRUN_NODE"]
            self._log("err", f"hpcrun: the wrapper of this rank on {node} was killed\n")
            self._write_exit(records.KILL_STATUS, heard=False)
        self._leave_compiled(records.KILL_STATUS)
        self._folder.leave(self._mark)

    def _log(self, name: str, line: str) -> None:
        path = os.path.join(records.attempt_dir(), f"rank-{self._rank}.{name}")
        with open(path, "a", encoding="utf-8") as log:
            log.write(line)

    def _set_aside_earlier_start(self) -> int | None:
        """Rename the exit record and the dump of an earlier start of this rank.

        These files do not belong to the new start.

        TORCHELASTIC_RESTART_COUNT is not enough: it counts only the failures of this node.

        Returns:
            The status to end with if the ranks must stop: torchrun would take a stopped rank for a
            failed one.
        """
        path = os.path.join(records.attempt_dir(), f"rank-{self._rank}")
        before = records.read(f"rank-{self._rank}.exit")
        if before is None:
            return None
        if self._folder.is_stopping():
            return int(before.get("status", records.TERM_STATUS))
        number = next(number for number in count(1) if not os.path.exists(f"{path}.exit.{number}"))
        os.rename(f"{path}.exit", f"{path}.exit.{number}")
        dump = os.path.join(rank_environment.flight(), f"rank_{os.environ.get('RANK', self._rank)}")
        if os.path.exists(dump):  # torch's flight recorder may not write another
            os.rename(dump, f"{dump}.{number}")
        line = f"hpcrun: torchrun restart {number}\n"
        for name in ("out", "err"):
            self._log(name, line)
        if os.environ.get("LOCAL_RANK", "0") == "0":
            records.say(
                f"torchrun starts the ranks of {os.environ['HPCRUN_NODE']} again: restart {number}"
            )
        return None

    def _is_echo(self, info: Any) -> bool:
        """Whether a signal is a copy, from a container's runtime or from the node's process."""
        if not self._contained:
            return False
        if not self._is_task:
            return bool(info.si_pid == os.getppid())
        last = self._heard_at.get(info.si_signo, -ECHO_S)
        self._heard_at[info.si_signo] = time.monotonic()
        return time.monotonic() < last + ECHO_S

    def _catch_up(self) -> None:
        """Forward a SIGTERM for the job that arrived too early.

        It arrived before the process of the node knew of this program.
        """
        if not self._folder.has(f"stop-{records.TERMINATED}"):
            return
        if self._canary.heard(signal.SIGTERM):
            return
        self._folder.note_heard(self._rank, self._pid, signal.SIGTERM)
        if self._folder.claim(f"ended-{self._rank}"):
            send(self._pid, signal.SIGTERM)

    def _on_signal(self, info: Any) -> None:
        if self._is_echo(info):
            return
        if info.si_pid == os.getppid() and not self._is_task:
            # from torchrun's agent, after another rank has failed: it is meant for all processes of
            # the rank
            self._signalled = self._signalled or "cleared"
            self._insist_at = min(self._insist_at, time.monotonic() + INSIST_S)
            send(self._pid, info.si_signo, group=True)
        elif self._watches():
            ended_by = self._watch.on_signal(info.si_signo, {self._rank: self._pid})
            self._signalled = ended_by or self._signalled
        else:
            if info.si_signo == signal.SIGTERM:
                self._signalled = "TERM"
            self._folder.note_heard(self._rank, self._pid, info.si_signo)
            if not self._canary.heard(info.si_signo):
                send(self._pid, info.si_signo)

    def _tick(self) -> bool:
        if self._canary.is_orphan() and self._insist_at:
            self._signalled = self._signalled or "cleared"
            self._insist_at = 0.0
            node = os.environ["HPCRUN_NODE"]
            self._log("err", f"hpcrun: the launcher of this rank on {node} was killed\n")
        if time.monotonic() > self._insist_at:
            send(self._pid, signal.SIGKILL, group=True)
        if self._writer and has_ended(self._writer):
            reap(self._writer)
            self._writer = 0
        self._canary.renew()
        if self._watches():
            self._watch.tick()
            if self._compiled:
                self._compiled.tick()
        if "HPCRUN_ROLE" not in os.environ:
            self._look_for_links()
        return False

    def _look_for_links(self) -> None:
        """Look whether the program has met another rank; leave a file while it has not for long."""
        if self._links is None:
            from .rank_links import RankLinks  # a second after the start, which it does not delay

            self._links = RankLinks(self._pid)
        self._links.observe()
        is_long = time.monotonic() > self._started_at + ALONE_S
        is_alone = self._links.is_alone and is_long
        if is_alone == self._is_reported:
            return
        self._is_reported = is_alone
        name = f"rank-{self._rank}.alone"
        if is_alone:
            records.write(name, {})
        else:
            records.remove(os.path.join(records.attempt_dir(), name))

    def _watches(self) -> bool:
        """Whether this task watches for its node."""
        return self._is_task and self._folder.leads()

    def _write_node_start(self) -> None:
        env = os.environ
        variable = "SLURM_LOCALID" if self._is_task else "LOCAL_RANK"
        if env.get(variable, "0") != "0":
            return
        node = env["HPCRUN_NODE"]
        ranks = int(env.get("LOCAL_WORLD_SIZE") or 1)
        first = self._rank
        of_all = env.get("HPCRUN_NODE_RANKS")
        if of_all:  # of all roles that share the node
            first, ranks = map(int, of_all.split(":"))
        fields = {
            "node": node,
            "first_rank": first,
            "ranks": ranks,
            "started": time.time(),
            "addresses": _addresses(),
        }
        records.write(f"node-{node}.start", fields)

    @staticmethod
    def _record_versions(program: str) -> int:
        """Let the program's Python record its versions while the program starts; return its id.

        That is the Python that the program is, or else that of the job, if the program is a shell
        or belongs to the same environment. Another program may bring a Python of its own. A script
        that is called python is a person's: it is not called a second time.
        """
        python = sys.executable
        name = os.path.basename(program)
        if name.startswith("python"):
            python = _binary(program)
        elif name not in SHELLS and not os.path.exists(os.path.join(os.path.dirname(python), name)):
            return 0
        if not python:
            return 0
        file = os.path.join(os.path.dirname(os.path.abspath(__file__)), "program_versions.py")
        env = {**os.environ}
        del env[FOLDER], env[RANK]  # it is no process of the rank
        null = os.devnull
        argv = [python, "-B", file, records.attempt_dir()]
        try:
            return start(argv, env, out=null, err=null, blocked=HEARD)
        except OSError:
            return 0

    def _write_exit(self, status: int, heard: bool) -> None:
        ended_by = self._signalled
        if status and not ended_by:
            ended_by = os.environ.get("HPCRUN_IGNORED", "")  # its failure is not that of the job
        fields = {
            "rank": self._rank,
            "node": os.environ["HPCRUN_NODE"],
            "pid": self._pid,
            "status": status,
            "ended": time.time(),
            "told": ended_by,
            "heard": heard,
            "alone": self._links is not None and self._links.is_alone,
        }
        records.write_patiently(f"rank-{self._rank}.exit", fields)


def _addresses() -> list[str]:
    """Return the IPv4 addresses of this node, by which programs name it in their messages.

    The kernel's table of routes has them: /proc/net/fib_trie, a "host LOCAL" below each.
    """
    addresses: list[str] = []
    address = ""
    try:
        with open("/proc/net/fib_trie", encoding="ascii") as file:
            table = file.read()
    except OSError:
        return []
    for line in table.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            address = words[1]
        elif words == ["/32", "host", "LOCAL"] and address not in addresses:
            addresses.append(address)
    return [address for address in addresses if not address.startswith("127.")]


def _binary(program: str) -> str:
    """Return the path of a program that is no script; empty if it is one, or cannot be read."""
    folders = os.get_exec_path()
    if "/" in program:
        folders = [""]
    for folder in folders:
        path = os.path.join(folder, program)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            break
    else:
        return ""
    try:
        with open(path, "rb") as file:
            is_binary = file.read(len(_ELF)) == _ELF
    except OSError:
        return ""
    if not is_binary:
        return ""
    return path
