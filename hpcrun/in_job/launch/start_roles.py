"""``launch role -- ROLE ...``: the role of one node, or one role of a node.

A ROLE is ``COUNT NAME OPTIONS -- COMMAND``; COUNT tells how many words it has.

COUNT words describe each role of the job; the number of this task says which role is this one's.
Its command starts when the roles are ready for which it waits, with the addresses of all roles
filled in. The first node of a role checks whether the role is ready. What other nodes need to know
is a small file in the folder ``roles`` of the attempt, which each node lists once a second:
NAME.start (the role's address), NAME.ready, NAME.done-TASK, NAME.end (it has failed).

When each task of the roles with ``--on-exit end`` has ended well, the programs of the other roles
get SIGTERM, and SIGKILL after the same time as the ranks of a failed job. A task that fails ends
its node's process, and so the step.
"""

from __future__ import annotations

import os
import re
import socket
import time
from itertools import islice
from typing import Any

from . import rank_environment, records
from .head_address import first_resolved
from .node_watch import CLEARED, INSIST_S
from .processes import HEARD, reap, send, signal, try_start, wait
from .rendezvous import (
    ANOTHER_USER,
    LOOPBACK,
    free_port,
    problem_of_listeners,
)
from .start_ranks import Node, with_rendezvous

FOLDER = "roles"
PORT_STEP = 331
SOON_S = 0.2  # how often to look until the program is ready
SECOND_S = 1.0  # how often to look once it is ready
LATE_S = 5.0
"""A server may end this long before the role that it serves: some are shut down by their clients.
"""
CHECK_S = 1.0
"""The time that a check may take."""


class RoleBlock:
    """A role as the script describes it."""

    def __init__(self, words: list[str]) -> None:
        end = words.index("--")
        pairs = list(zip(words[1:end:2], words[2:end:2]))
        options = {
            "--ready": "",
            "--ready-timeout": "0",
            "--after": "",
            "--gpus": "",
            **dict(pairs),
        }
        self.name = words[0]
        self.command = words[end + 1 :]
        first_task = int(options["--task"])
        first_rank = int(options["--first-rank"])
        self.tasks = range(first_task, first_task + int(options["--tasks"]))
        self.ranks = range(first_rank, first_rank + int(options["--ranks"]))
        self.by_torchrun = options["--launcher"] == "torchrun"
        self.on_exit = options["--on-exit"]
        self.ready = options["--ready"]
        self.ready_timeout_s = float(options["--ready-timeout"])
        self.after = [name for name in options["--after"].split(",") if name]
        self.gpus = options["--gpus"]  # of a node that all roles share: FIRST:COUNT:OF
        self.env = dict(value.split("=", 1) for name, value in pairs if name == "--env")


def main(arguments: list[str]) -> int:
    """Run the role of this task; return 0, or the exit status with which its end fails the job."""
    # the script sets the first for a local job, srun the second
    variable = "HPCRUN_NODE_RANK" if "HPCRUN_NODE_ADDR" in os.environ else "SLURM_PROCID"
    rank_environment.be_node()
    words = iter(arguments[1:])
    roles = [RoleBlock([*islice(words, int(count))]) for count in words]
    return RoleNode(roles, int(os.environ[variable])).run_role()


class RoleNode(Node):
    """The process of one role on one node."""

    def __init__(self, roles: list[RoleBlock], task: int) -> None:
        role = next(role for role in roles if task in role.tasks)
        env = {
            "HPCRUN_ROLE": role.name,
            "NNODES": len(role.tasks),
            "HPCRUN_NODE_RANK": role.tasks.index(task),
            "HPCRUN_RANK_BASE": role.ranks[0],
            **role.env,
        }
        if role.on_exit == "ignore":
            env["HPCRUN_IGNORED"] = "ignored"
        os.environ.update({name: str(value) for name, value in env.items()})
        os.makedirs(rank_environment.flight(), exist_ok=True)
        flight = os.path.join(records.attempt_dir(), "flight")
        os.environ.update(rank_environment.moved(os.environ, flight, rank_environment.flight()))
        self._roles = roles
        self._role = role
        self._task = task
        self._is_first = task == role.tasks[0]
        self._shared = os.path.join(records.attempt_dir(), FOLDER)
        self._failure = ""
        self._check = ""
        # roles that share a node meet at its loopback address
        self._host = LOOPBACK if role.gpus else os.environ["HPCRUN_NODE_ADDR"]
        self._is_decided = False
        self._is_signalled = False
        self._is_ready = False
        self._started_at = 0.0
        self._tick_at = 0.0
        self._kill_at = float("inf")
        # programs by their process ids, which are also those of their groups
        self._terminated = set[int]()
        # last: the canary is a process that knows what stands above, and nothing set later
        super().__init__()
        self._watch.programs = self._programs

    def run_role(self) -> int:
        """Wait for the other roles, run the command, and return what its end means for the job."""
        os.makedirs(self._shared, exist_ok=True)
        if self._role.gpus:
            self._take_share()
        if self._is_first and not self._write_address():
            return self._close(1)
        is_needed = self._wait_for({f"{role.name}.start" for role in self._roles})
        command = self._with_addresses() if is_needed else []
        if not self._wait_for({f"{name}.ready" for name in self._role.after}):
            return self._close(0 if self._is_decided else records.TERM_STATUS)
        command = with_rendezvous(command, by_torchrun=self._role.by_torchrun)
        return self._close(self._run(command) if command else 1)

    # --- before the command starts ---------------------------------------------------------------

    def _take_share(self) -> None:
        """Use the role's GPUs of this node, and as large a part of its CPUs."""
        env = os.environ
        first, count, total = map(int, self._role.gpus.split(":"))
        gpus = env.get("CUDA_VISIBLE_DEVICES", "").split(",")
        if len(gpus) == total:  # on this machine without Slurm it has its own already
            env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[first : first + count])
        env["HPCRUN_NODE_RANKS"] = f"0:{sum(len(role.ranks) for role in self._roles)}"
        cpus = sorted(os.sched_getaffinity(0))
        begin = len(cpus) * first // total
        end = len(cpus) * (first + count) // total
        os.sched_setaffinity(0, cpus[begin : max(end, begin + 1)])

    def _write_address(self) -> bool:
        env = os.environ
        if self._host != LOOPBACK:
            here = first_resolved(self._host, env["HPCRUN_NODE"])
            self._host = here.address or self._host
        place = int(env["HPCRUN_PORT"]) + 2 * PORT_STEP * self._role.tasks[0]
        ports = {
            "port": free_port(place + PORT_STEP),
            "rendezvous": free_port(place + 2 * PORT_STEP),
        }
        return self._write("start", host=self._host, **ports)

    def _write(self, kind: str, **fields: Any) -> bool:
        """Write a file for which the other nodes wait; return whether it is there.

        If not, the exit status of this process ends the step.
        """
        record = {**fields, "time": time.time()}
        return records.write_patiently(f"{self._role.name}.{kind}", record, self._shared)

    def _wait_for(self, names: set[str]) -> bool:
        """Wait until the nodes of other roles have written these files.

        The result says whether this role is still needed.
        """
        if not self._is_written(names) and not self._is_not_needed():
            wait([], self._on_signal, lambda: self._tick() or self._is_written(names), SOON_S)
        return not self._is_not_needed()

    def _is_written(self, names: set[str]) -> bool:
        return names <= {*records.names_in(self._shared)}

    def _with_addresses(self) -> list[str]:
        """Set the variables with the addresses of all roles, and return the command.

        The addresses are filled in in the command.
        """
        env = os.environ
        hosts = records.read_text("hosts").split()
        places: dict[str, str] = {}
        for role in self._roles:
            address = records.read(f"{role.name}.start", self._shared) or {}
            host = str(address.get("host", ""))
            port = str(address.get("port", ""))
            places[f"{role.name}.host"] = host
            places[f"{role.name}.port"] = port
            places[f"{role.name}.url"] = f"http://{host}:{port}"
            of_role = [host]
            if host != LOOPBACK:
                of_hosts = hosts[role.tasks[0] : role.tasks[-1] + 1]
                of_role = [rank_environment.address_of(name) for name in of_hosts]
            variable = f"HPCRUN_ROLE_{role.name.upper().replace('-', '_')}"
            env[f"{variable}_HOSTS"] = ",".join(of_role)
            env[f"{variable}_PORT"] = port
            if role is self._role:
                places["port"] = port
                env["HPCRUN_HEAD_ADDR"] = host
                env["HPCRUN_PORT"] = str(address.get("rendezvous", ""))
                env["HPCRUN_HEAD"] = hosts[min(role.tasks[0], len(hosts) - 1)]
        self._check = os.path.expandvars(fill(self._role.ready, places))
        return [fill(argument, places) for argument in self._role.command]

    # --- while it runs ---------------------------------------------------------------------------

    def _run(self, command: list[str]) -> int:
        """Run the command, and return what its end means for the job."""
        self._is_ready = not self._is_first
        self._started_at = time.monotonic()
        self._pid, status = try_start(command, os.environ, blocked=HEARD)
        if not self._pid:
            return self._meaning(status)
        self._canary.guard(self._pid)
        if not self._is_ready and not self._check:
            self._look_whether_ready(self._started_at)
        status = self._wait_for_program()
        self._end_groups()
        if self._ended_early:
            status = records.TERM_STATUS
        is_expected = status == 0 or self._role.on_exit == "ignore"
        if is_expected and not self._is_ready and not self._is_not_needed():
            self._end_unready(status)
        return self._meaning(status)

    def _wait_for_program(self) -> int:
        """Wait until the command has ended; return its exit status."""
        ended = None
        while ended is None:
            period_s = SECOND_S if self._is_ready else SOON_S
            ended = wait([self._pid], self._on_signal, self._tick, period_s)
        reap(self._pid)
        return ended[1]

    def _end_unready(self, status: int) -> None:
        """Look once more whether the role, which has ended, is ready.

        If not, the roles that wait for this role would continue to wait.
        """
        self._look_whether_ready(self._started_at)
        if not self._is_ready and any(self._role.name in role.after for role in self._roles):
            self._fail(f"ended with status {status} before it was ready: {self._check}")

    def _tick(self) -> bool:
        """Do the work of each second, and return True if the waiting ends.

        The waiting is for other roles, or in the short steps until the role is ready.
        """
        now = time.monotonic()
        before = self._is_ready
        if now >= self._tick_at:
            self._tick_at = now + SECOND_S
            super()._tick()
            self._is_decided = self._is_decided or self._all_done()
        if not self._pid:
            return self._is_not_needed()
        if self._is_decided or self._failure:
            self._terminate(now)
        elif not self._is_ready:
            self._look_whether_ready(now)
        return self._is_ready != before

    def _all_done(self) -> bool:
        """Whether all roles whose end decides have ended well on all of their nodes."""
        names: set[str] = set()
        for role in self._roles:
            if role.on_exit == "end":
                names.update(f"{role.name}.done-{task}" for task in role.tasks)
        return bool(names) and self._is_written(names)

    def _is_not_needed(self) -> bool:
        return (
            self._is_decided
            or self._is_signalled
            or bool(records.stop_reasons())
            or bool(self._canary.is_orphan())
        )

    def _look_whether_ready(self, now: float) -> None:
        role = self._role
        problem = why_not_ready(self._check, self._host)
        if not problem:
            self._is_ready = True
            if not self._write("ready"):
                self._fail("is ready, and cannot tell the other roles")
        elif now > self._started_at + role.ready_timeout_s:
            what = f"was not ready after {role.ready_timeout_s:g} s: {self._check}: {problem}"
            self._fail(f"{what}; the last line of its log: {last_line(role.ranks[0])}")

    def _on_signal(self, info: Any) -> None:
        self._is_signalled = self._is_signalled or info.si_signo == signal.SIGTERM
        super()._on_signal(info)

    def _has_begun(self) -> bool:
        if not self._role.gpus:
            return super()._has_begun()
        folder = records.attempt_dir()
        logs = [os.path.join(folder, f"rank-{rank}.out") for rank in self._role.ranks]
        return any(map(os.path.exists, logs))

    def _programs(self) -> dict[int, int]:
        """Return the programs of this role on this node: others may run beside them."""
        programs = super()._programs()
        return {rank: pid for rank, pid in programs.items() if rank in self._role.ranks}

    # --- its end ---------------------------------------------------------------------------------

    def _terminate(self, now: float) -> None:
        """Send SIGTERM to each program once, with its group; after the grace SIGKILL."""
        if not self._terminated:
            self._folder.claim(CLEARED)
        self._kill_at = min(self._kill_at, now + INSIST_S)
        for pid in self._programs().values():
            if pid not in self._terminated:
                self._terminated.add(pid)
                send(pid, signal.SIGTERM, group=True)
            elif now > self._kill_at:
                send(pid, signal.SIGKILL, group=True)

    def _end_groups(self) -> None:
        """Wait until all processes of terminated programs have ended.

        The wait takes at most the rest of the grace time.
        """
        for pid in self._terminated:
            while send(pid, 0, group=True) and time.monotonic() < self._kill_at:
                time.sleep(0.05)
            send(pid, signal.SIGKILL, group=True)

    def _meaning(self, status: int) -> int:
        """Return 0 if the job continues or has ended well, otherwise the status of its failure."""
        role = self._role
        if self._failure:
            return 1
        if self._is_decided or role.on_exit == "ignore":
            return 0
        if role.on_exit == "end" and status == 0:
            if self._write(f"done-{self._task}"):
                return 0
            return records.UNWRITTEN_STATUS  # the other roles would run on
        if role.on_exit == "fail" and self._are_done_within(LATE_S if status == 0 else 0.0):
            return 0
        if self._is_not_needed():
            return status
        self._fail(self._how_it_failed(status))
        return status or 1

    def _are_done_within(self, limit_s: float) -> bool:
        """Wait until the roles whose end decides have ended well; return whether they have."""
        until = time.monotonic() + limit_s
        while not self._all_done():
            if time.monotonic() >= until:
                return False
            time.sleep(SOON_S)
        return True

    def _how_it_failed(self, status: int) -> str:
        """Return how the role ended, and which of its ranks failed first."""
        role = self._role
        # torchrun's own status says less than that of its ranks
        exits = [record for record in records.exits() if record.get("rank") in role.ranks]
        first = records.first_failed(exits) or {}
        text = f"ended with status {first.get('status', status)}"
        if role.on_exit != "end":
            deciding = [other.name for other in self._roles if other.on_exit == "end"]
            text += f", before {' and '.join(deciding)}"
        if first and len(role.ranks) > 1:
            text += f": rank {role.ranks.index(first['rank'])} on {first['node']}"
        return text

    def _after_kill(self, pid: int) -> None:
        if not self._all_done() and f"{self._role.name}.end" not in records.names_in(self._shared):
            self._fail("has lost its process of hpcrun, which was killed (SIGKILL)")
        super()._after_kill(pid)

    def _fail(self, what: str) -> None:
        self._failure = f"role {self._role.name} on {os.environ['HPCRUN_NODE']} {what}"
        records.say(self._failure)
        record = {"message": self._failure, "time": time.time()}
        records.write(f"{self._role.name}.end", record, self._shared)


def fill(text: str, places: dict[str, str]) -> str:
    """Return a text with the addresses in place of ``{server.url}``.

    ``{{server.url}}`` becomes ``{server.url}``. ``${port}`` is a shell's.
    """
    names = "|".join(map(re.escape, places))
    place = rf"\{{(\{{(?:{names})\}})\}}|(?<!\$)\{{({names})\}}"
    return re.sub(place, lambda match: match[1] or places[match[2]], text)


def why_not_ready(check: str, host: str) -> str:
    """Return why a check fails; the empty string if the role is ready.

    A check is ``tcp:PORT``, ``http:PORT/PATH`` or ``file:PATH``.
    """
    kind, _, place = check.partition(":")
    try:
        if kind == "file":
            return _file_problem(place)
        if kind:
            return _port_problem(kind, place, host)
    except Exception as error:  # whatever the port belongs to may answer anything
        return getattr(error, "strerror", None) or str(error) or repr(error)
    return ""


def _file_problem(path: str) -> str:
    """Return why a file does not say that the role is ready; the empty string if it does."""
    owner = os.stat(path).st_uid
    # in a container, users may have other numbers
    if owner != os.getuid() and rank_environment.CONTAINER not in os.environ:
        return "another user owns this file"
    return ""


def _port_problem(kind: str, place: str, host: str) -> str:
    """Return why a port is not ready; the empty string if it is.

    Args:
        kind: ``tcp`` or ``http``.
        place: ``PORT`` or ``PORT/PATH``.
        host: the address to connect to.
    """
    port, _, path = place.partition("/")
    problem = problem_of_listeners(int(port), host)
    # in a container, users may have other numbers
    if problem and (problem != ANOTHER_USER or rank_environment.CONTAINER not in os.environ):
        return problem
    if problem == "" and kind == "tcp":
        # without a connection, which the program may take for the only one that it expects
        return ""
    with socket.create_connection((host, int(port)), CHECK_S) as connection:
        if kind == "http":
            return _http_problem(connection, host, path)
    return ""


def _http_problem(connection: socket.socket, host: str, path: str) -> str:
    """Return why a GET request fails.

    The status line must come within the time of a check, whatever follows it.
    """
    request = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    connection.sendall(request.encode())
    answer = b""
    until = time.monotonic() + CHECK_S
    while b"\n" not in answer and len(answer) < 4096:
        connection.settimeout(max(0.01, until - time.monotonic()))
        data = connection.recv(1024)
        if not data:
            break
        answer += data
    match = re.match(rb"HTTP/[\d.]+ (\d{3})\b", answer)
    if match is None:
        return "the answer is not HTTP"
    return "" if int(match[1]) < 400 else f"status {int(match[1])}"


def last_line(rank: int) -> str:
    """Return the last line of a rank's log, of stderr if there is any, as printable text."""
    text = records.read_text(f"rank-{rank}.err").strip()
    if not text:
        text = records.read_text(f"rank-{rank}.out").strip()
    if not text:
        return "(it is empty)"
    last = text.splitlines()[-1]
    return "".join(char if char.isprintable() else "?" for char in last)[:200]
