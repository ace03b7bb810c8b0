"""The records of the script itself: start, exit, and how each node and rank ended."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hpcrun.files import reading
from hpcrun.job.job_states import EXIT_TERMINATED
from hpcrun.job.run_paths import (
    AttemptFolder,
    RoleRanks,
    RunFolder,
    parse_nodes,
    parse_numbers,
    parse_ranks,
)
from hpcrun.runs.record import JOB_ID, Run

NODE_FAILURE = "node_failure"
IDLE = "idle"
# why an attempt ended, in the words of in_job/launch/per_job/why_ended.py
REASONS = (
    "time_limit",
    "preemption",
    NODE_FAILURE,
    "failure",
    "cancelled",
    "terminated",
    "requeued",
    IDLE,
)
# the line in a rank's logs where torchrun restarts the rank (in_job/launch/rank.py)
RESTART_BEGINS = "hpcrun: torchrun restart "
# in_job/launch/per_job/exit_record.py records it at the end
_WORKERS = re.compile(
    rb"will create (\d{1,6}) worker processes in total\. Our suggested max number of worker in "
    rb"current system is (\d{1,6})"
)
_MOST_SEARCHED = 1 << 18
_MOST_HOSTS = 8 << 20  # bytes of the list of nodes: the largest machines have some ten thousand
_RANK = reading.whole(0, 10**7)
_RANKS_OF_NODE = reading.whole(0, 4096)
_STATUS = reading.whole(0, 10**6)
_START: dict[str, reading.Kind] = {
    "job_id": JOB_ID,
    "host": reading.text,
    "started": reading.time_s,
}
_EXIT: dict[str, reading.Kind] = {
    "status": _STATUS,
    "signal": reading.text,
    "ended": reading.time_s,
    "message": reading.text,
    "reason": reading.text,
    "how": reading.text,
    "nodes": reading.list_of(reading.text),
    "alone": _RANK,
    "workers": reading.list_of(_RANK),
}
RESTART = "restart"  # a run continues in the same allocation; otherwise it is requeued
_NODE_START: dict[str, reading.Kind] = {
    "node": reading.text,
    "first_rank": _RANK,
    "ranks": _RANKS_OF_NODE,
    "addresses": reading.list_of(reading.text),
}
_OF_EVERY_NODE = ("node", "first_rank", "ranks")
_DEAD_NODES: dict[str, reading.Kind] = {"nodes": reading.list_of(reading.text)}
_RANK_EXIT: dict[str, reading.Kind] = {
    "rank": _RANK,
    "node": reading.text,
    "status": _STATUS,
    "ended": reading.time_s,
    "pid": reading.whole(0, 1 << 22),
}
_OF_EVERY_RANK = ("rank", "node", "status", "ended")
IGNORED = "ignored"
SIGNALLED = ("TERM", "cleared", IGNORED)
_IMPORTS: dict[str, reading.Kind] = {
    "folder": reading.text,
    "script": reading.optional(reading.text),
    "imports": reading.optional(reading.table()),
}


@dataclass(frozen=True, slots=True)
class ExitRecord:
    """How the batch script ended."""

    status: int  # exit status; 128 + n if signal n ended it
    # ``TERM`` if the script was terminated (scancel, time limit, preemption), else empty
    signal: str
    ended_s: float  # seconds since the epoch
    message: str = ""  # an error that the script itself detected, else empty
    # one of ``REASONS`` if something ended it; empty if the ranks ended by themselves, or if
    # unknown
    reason: str = ""
    again: bool = False  # the script has requeued or restarted the job
    how: str = ""  # ``RESTART`` or ``requeue`` if ``again``
    nodes: tuple[str, ...] = ()  # the nodes on which it failed
    alone: int = 0  # the number of the ranks, if several ran and none was seen with a connection
    # the workers of a DataLoader and the most that torch advises; empty without its warning
    workers: tuple[int, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What did not work although nothing failed."""
        notes = []
        if self.alone:
            notes.append(alone_note(self.alone))
        if len(self.workers) == 2:
            notes.append(workers_note(*self.workers))
        return tuple(notes)

    @property
    def hides_failure(self) -> bool:
        """Whether a person's script ended well although its launch had failed."""
        return self.status == 0 and bool(self.message)


@dataclass(frozen=True, slots=True)
class RankExit:
    """How one rank ended."""

    rank: int
    node: str
    status: int  # exit status; 128 + n where signal n ended it
    ended_s: float  # seconds since the epoch
    # ``TERM`` if it was terminated, ``cleared`` if it was terminated because another rank had
    # failed, ``ignored`` if the job ignores its failure, else empty, as in all records of an older
    # hpcrun
    signalled: str = ""
    pid: int = 0  # the process id of its program on its node; 0 in records of an older hpcrun

    @property
    def is_consequence(self) -> bool:
        """Whether it was terminated, with any status, or SIGTERM ended it."""
        return self.signalled != "" or self.status == EXIT_TERMINATED


@dataclass(frozen=True, slots=True)
class Attempt:
    """One start of a run."""

    folder: AttemptFolder
    number: int  # 0 for the first
    job_id: str  # of the job, from the script
    host: str  # where the batch script ran
    started_s: float  # seconds since the epoch
    exit: ExitRecord | None  # None while it runs, or if it was killed before it wrote the record
    alive_s: float  # the script's last heartbeat, in seconds since the epoch by its host's clock


def last_attempt(
    run_folder: Path, element: int = 0, role: RoleRanks | None = None
) -> Attempt | None:
    """Return the newest attempt of an element of a run, None if it has not started."""
    return next(iter(attempts(run_folder, element, role)), None)


def newest_number(run_folder: Path, element: int = 0) -> int:
    """Return the number of the newest attempt of an element that has a folder, -1 without any."""
    names = names_in(RunFolder(run_folder).element(element).attempts)
    return max(parse_numbers(names), default=-1)


def last_attempts(run_folder: Path) -> Iterator[Attempt]:
    """Yield the newest attempt of each element of a run that has started."""
    for index in parse_numbers(names_in(RunFolder(run_folder).elements)):
        yield from islice(attempts(run_folder, index), 1)


def in_failed_role(attempt: Attempt | None, run: Run) -> Attempt | None:
    """Return an attempt with the ranks of one role: the role that failed first, if any.

    If no role has failed, the role is the one that the message of the attempt's end names, or else
    the role that decides. Any end of a role without which the job fails is a failure. The
    terminated ranks of other roles are consequences.
    """
    if attempt is None or not run.roles:
        return attempt
    message = attempt.exit.message if attempt.exit else ""
    chosen = attempt.folder
    least: tuple[int, float] | None = None
    for role in reversed(run.roles):
        folder = replace(attempt.folder, role=role)
        order = _order_of_failure(folder, role, message)
        if least is None or order < least:
            chosen = folder
            least = order
    return replace(attempt, folder=chosen)


def _order_of_failure(folder: AttemptFolder, role: RoleRanks, message: str) -> tuple[int, float]:
    """Return the sort key of a role: the role that most likely failed first has the smallest."""
    failed_s = _failed_s(folder, role)
    if failed_s is not None:
        return 0, failed_s
    if message.startswith(f"role {role.name} on "):  # in_job/launch/start_roles.py
        return 1, 0.0
    order = 2
    if role.on_exit != "end":
        order += 1
    if not ranks(folder):
        order += 2
    return order, 0.0


def _failed_s(folder: AttemptFolder, role: RoleRanks) -> float | None:
    """Return when the first rank of a role failed, in seconds since the epoch; None if none did."""
    if role.on_exit == "ignore":
        return None
    times = []
    for end in rank_exits(folder):
        failed = end.status != 0 or role.on_exit == "fail"
        if failed and not end.is_consequence:
            times.append(end.ended_s)
    return min(times, default=None)


def has_started(run_folder: Path) -> bool:
    """Whether the script of a run, or of one of its elements, has started at least once."""
    return any(True for _ in last_attempts(run_folder))


def chain_stop(run_folder: Path, job_id: str | None = None) -> str:
    """Return why a link has ended the chain of a run.

    Returns the empty string if no link has ended the chain, or if the link did not cancel this job.
    """
    try:
        record = reading.read_object(RunFolder(run_folder).element(0).chain("stopped"))
        if job_id is not None:
            cancelled = reading.list_of(reading.text)(record.get("job_ids"))
            if job_id not in cancelled:
                return ""
        return reading.text(record.get("reason"))
    except (OSError, ValueError):
        return ""


def attempts(
    run_folder: Path, element: int = 0, role: RoleRanks | None = None
) -> Iterator[Attempt]:
    """Yield the attempts of an element that have started, the newest first.

    Each attempt has all ranks, or the ranks of ``role``.
    """
    folder = RunFolder(run_folder).element(element)
    for number in reversed(parse_numbers(names_in(folder.attempts))):
        path = replace(folder.attempt(number), role=role)
        start = _read(path.start, _START, needed=tuple(_START))
        if start:
            yield Attempt(
                path,
                number,
                job_id=start["job_id"],
                host=start["host"],
                started_s=start["started"],
                exit=_exit(path),
                alive_s=max(start["started"], _alive_s(path)),
            )


def _alive_s(folder: AttemptFolder) -> float:
    try:
        return reading.time_s(float(reading.read_bytes(folder.heartbeat, 100)))
    except (OSError, ValueError):
        return 0.0


def _exit(folder: AttemptFolder) -> ExitRecord | None:
    data = _read(folder.exit, _EXIT, needed=("status", "signal", "ended"))
    if data is None:
        return None
    return ExitRecord(
        data["status"],
        data["signal"],
        data["ended"],
        message=data.get("message", ""),
        reason=data.get("reason", ""),
        again=data.get("again") is True,
        how=data.get("how", ""),
        nodes=tuple(data.get("nodes", ())),
        alone=data.get("alone", 0),
        workers=tuple(data.get("workers", ())),
    )


def alone_note(ranks: int) -> str:
    """Return that ranks ran, and were not seen to meet; they may be independent on purpose."""
    return f"none of the {ranks} ranks was seen connected to another: each seems to work alone"


def workers_note(workers: int, advised: int) -> str:
    """Return torch's warning about the CPUs of a DataLoader."""
    return (
        f"a DataLoader has {workers} workers, and torch advises at most {advised} with these CPUs"
    )


def loader_note(folder: AttemptFolder) -> str:
    """Return torch's warning about the CPUs of a DataLoader of a running job; empty without it."""
    try:
        with reading.open_regular(folder.rank_log(0, "err"), links=False) as file:
            match = _WORKERS.search(file.read(_MOST_SEARCHED))
    except OSError:
        return ""
    return workers_note(int(match[1]), int(match[2])) if match else ""


def alone_ranks(folder: AttemptFolder) -> int:
    """Return the number of the ranks if all that run have been without a connection for long."""
    alone = len(parse_ranks(names_in(folder.path), "alone"))
    if alone < 2:
        return 0
    started = sum(map(len, node_ranks(folder).values()))
    return alone if alone == started else 0


def _read(
    path: Path,
    kinds: Mapping[str, reading.Kind],
    needed: tuple[str, ...],
    joined: Mapping[str, str] | None = None,
) -> dict[str, Any] | None:
    """Return a complete record of the script, None if there is none of this kind."""
    try:
        content = (joined or {}).get(path.name)
        if content is None:
            data = reading.read_object(path, strict=False)
        else:
            data = reading.parse_object(content)
        known, unknown = reading.read_fields(data, kinds, needed)
    except (OSError, ValueError):
        return None
    return {**known, **unknown}


def joined_files(folder: AttemptFolder) -> dict[str, str]:
    """Return the small files that the end of an element has joined into its exit record.

    The element is of a sweep. The files are name → text.
    """
    record = _read(folder.exit, {}, ()) or {}
    files = record.get("files")
    if not isinstance(files, dict):
        return {}
    return {name: text for name, text in files.items() if isinstance(text, str)}


def load_imports(folder: AttemptFolder) -> dict[str, Any]:
    """Return an attempt's record of its code: ``folder``, ``script``, ``imports``.

    The record is empty if there is none.
    """
    return _read(folder.imports, _IMPORTS, needed=()) or {}


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it does not exist, or is not a folder."""
    try:
        return reading.list_folder(folder)
    except OSError:
        return []


def ranks(folder: AttemptFolder) -> list[int]:
    """Return the ranks of an attempt that have a log or an exit record.

    There are none if the folder does not exist.
    """
    return folder.role_ranks(parse_ranks(names_in(folder.path), "out", "err", "exit"))


def hosts(folder: AttemptFolder) -> list[str]:
    """Return the nodes of an attempt in Slurm's order; none if they are not yet known."""
    try:
        return reading.read_text(folder.hosts, _MOST_HOSTS).split()
    except OSError:
        return joined_files(folder).get(folder.hosts.name, "").split()


def with_granted_nodes(run: Run, run_folder: Path, element: int = 0) -> Run:
    """Return a run with the nodes that Slurm has given to its newest attempt, if Slurm chooses."""
    if not run.node_choice:
        return run
    attempt = last_attempt(run_folder, element)
    number = len(hosts(attempt.folder)) if attempt else 0
    if number == 0:
        return run
    shape = {**run.plan["shape"], "node_choice": ""}
    ranks = number * (run.world_size // run.nodes)
    return replace(run, nodes=number, world_size=ranks, plan={**run.plan, "shape": shape})


def dead_nodes(folder: AttemptFolder) -> list[str]:
    """Return the nodes of an attempt without an exit record that Slurm has seen dead.

    There are none if the next attempt found none, or has not begun.
    """
    record = _read(folder.dead_nodes, _DEAD_NODES, ("nodes",)) or {}
    return list(record.get("nodes", ()))


def node_ranks(folder: AttemptFolder) -> dict[str, range]:
    """Return the ranks of each node on which ranks have started."""
    names = names_in(folder.path)
    joined = joined_files(folder)
    ranks_of_nodes = {}
    for node in parse_nodes({*names, *joined}):
        record = _read(folder.node_file(node), _NODE_START, _OF_EVERY_NODE, joined)
        if record is None:
            continue
        first = record["first_rank"]
        of_role = folder.role_ranks(range(first, first + record["ranks"]))
        if of_role:
            ranks_of_nodes[record["node"]] = range(of_role[0], of_role[-1] + 1)
    return ranks_of_nodes


def node_addresses(folder: AttemptFolder) -> dict[str, str]:
    """Return address → node, of the nodes on which ranks have started."""
    names = names_in(folder.path)
    joined = joined_files(folder)
    nodes = {}
    for node in parse_nodes({*names, *joined}):
        record = _read(folder.node_file(node), _NODE_START, _OF_EVERY_NODE, joined) or {}
        for address in record.get("addresses", ()):
            nodes[address] = record["node"]
    return nodes


def first_failure(folder: AttemptFolder) -> RankExit | None:
    """Return the rank of an attempt that failed first, None if none failed.

    The end of a terminated rank is a consequence, whatever its status: it is returned only if no
    other rank failed.
    """
    failed = [end for end in rank_exits(folder) if end.status != 0]
    return min(failed, key=lambda end: (end.is_consequence, end.ended_s), default=None)


def rank_exits(folder: AttemptFolder, *, before_restart: int = 0) -> list[RankExit]:
    """Return the exit records of the ranks of an attempt.

    With ``before_restart``, they are those that torchrun's restart of this number has renamed
    (in_job/launch/rank.py).
    """
    names = names_in(folder.path)
    joined = joined_files(folder)
    ends = []
    for rank in folder.role_ranks(parse_ranks({*names, *joined}, "exit")):
        path = folder.rank_exit(rank)
        if before_restart:
            path = path.with_name(f"{path.name}.{before_restart}")
        record = _read(path, _RANK_EXIT, _OF_EVERY_RANK, joined)
        if record is None:
            continue
        signalled = record.get("told", "")
        if signalled not in SIGNALLED:
            signalled = ""
        for rank_in_role in folder.role_ranks([record["rank"]]):
            end = RankExit(
                rank_in_role,
                record["node"],
                record["status"],
                record["ended"],
                signalled,
                record.get("pid", 0),
            )
            ends.append(end)
    return ends
