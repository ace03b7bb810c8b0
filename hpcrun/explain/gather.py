"""Reads what is known of an attempt that has ended.

Sources are the records of its ranks, their logs, and torch's flight recorder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.culprit import first_leaver
from hpcrun.explain.diagnosis.diagnose import first_to_fail
from hpcrun.explain.diagnosis.facts import SAME_MOMENT_S, Facts, LogSubject, RankEnd
from hpcrun.explain.diagnosis.flight_calls import Dump
from hpcrun.explain.diagnosis.flight_dump import MOST_BYTES, DumpError, DumpReader
from hpcrun.explain.diagnosis.flight_meetings import Flight, judge
from hpcrun.explain.diagnosis.last_words import subject_of_logs
from hpcrun.explain.diagnosis.log import Log, by_speaker, examine, parts, with_other_log
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.diagnosis.scan import Scanner, line_counter
from hpcrun.files.reading import open_regular, read_bytes, read_text
from hpcrun.job.job_states import FAILED
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.attempt import (
    RESTART_BEGINS,
    Attempt,
    names_in,
    node_addresses,
    rank_exits,
    ranks,
)
from hpcrun.runs.elements import all_elements
from hpcrun.runs.log_files import rank_log

_QUICK_RANKS = 8
_QUICK_RANKS_MOST = 64
"""Ranks whose logs a quick explanation reads; the second number if the logs of the first ranks
blame other ranks.
"""
_LONGEST_STOP = 4096
"""Bytes of a file in stop/: a host name and a time."""
_ATTEMPT_BEGINS = "hpcrun: job "
"""The first words of each attempt in the batch log, to which all attempts append."""
_RESTARTED = "hpcrun: torchrun starts the ranks of "
"""The first words of each restart of torchrun in the batch log."""
_DUMP_NAME = re.compile(r"\D*(?P<rank>0|[1-9]\d{0,6})(?:\.(?:json|pickle|pkl|bin))?")
"""in_job/launch/rank_environment.py has torch write ``rank_3``; a program may name it so too."""
_MOST_READ = 512 << 20
_MOST_READ_QUICKLY = 4 << 20
"""Bytes of all dumps: those of 512 ranks have 200 MB or more, and take some seconds."""

_MOST_REMARKS = 8


def gather(
    item: RunStatus, attempt: Attempt | None, rules: Sequence[Rule], *, quick: bool = False
) -> tuple[Facts, tuple[str, ...]]:
    """Return what the ranks and the logs of an attempt say, and what could not be read.

    If torchrun has started the ranks again, it is what they say of the start whose failure ended
    the attempt.
    """
    reader = _LogReader(item.folder, Scanner.of(rules), quick, [])
    if attempt is None:
        facts = _facts_without_attempt(item, reader)
    else:
        facts = _facts_of_attempt(item, attempt, reader)
    return facts, tuple(reader.unread)


def _facts_without_attempt(item: RunStatus, reader: _LogReader) -> Facts:
    """Return what the batch log says of a job that started no ranks."""
    logs = _parts_by_speaker(_batch_logs(item, reader))
    return Facts(item.status.state, {}, tuple(logs), None)


def _parts_by_speaker(logs: Iterable[Log]) -> list[Log]:
    """Return logs that ranks share as a log for each of the ranks."""
    return list(chain.from_iterable(map(by_speaker, logs)))


def _facts_of_attempt(item: RunStatus, attempt: Attempt, reader: _LogReader) -> Facts:
    ends = _ends(attempt, 0)
    logs = _rank_logs(reader, attempt, ends)
    shared = _batch_logs(item, reader)
    if attempt.number:
        shared = [parts(_ATTEMPT_BEGINS, log)[-1] for log in shared]
    flight = read_flight(attempt.folder, ranks(attempt.folder), reader.unread, quick=reader.quick)
    facts = Facts(
        item.status.state,
        ends,
        (),
        _signalled_s(attempt),
        flight=flight,
        role=attempt.folder.role,
        addresses=node_addresses(attempt.folder),
    )
    if any(log.restart for log in logs):
        return _facts_of_last_start(facts, attempt, logs, shared)
    if _starts_ranks_itself(item, attempt) and any(log.is_shared for log in logs):
        # the logs and records are of nodes, and not of ranks
        logs = _parts_by_speaker(logs)
        facts = replace(facts, ends={})
    if logs or facts.ends:
        logs += shared
    else:
        logs = _parts_by_speaker(shared)
    return replace(facts, logs=tuple(logs))


def _facts_of_last_start(
    facts: Facts, attempt: Attempt, logs: Sequence[Log], shared: Sequence[Log]
) -> Facts:
    """Return the facts of the start of torchrun's ranks whose failure ended the attempt.

    Args:
        facts: those of the attempt, without logs.
        attempt: the attempt.
        logs: the logs of the ranks, a part for each start.
        shared: the batch log, with the lines of torchrun.
    """
    agents = [part for log in shared for part in parts(_RESTARTED, log)]
    last = max(log.restart for log in logs)
    starts = []
    for restart in range(last + 1):
        of_start = tuple(log for log in (*logs, *agents) if log.restart == restart)
        if restart == last:
            start = replace(facts, logs=of_start)
        else:
            earlier = _ends(attempt, restart + 1)
            start = replace(
                facts, state=FAILED, ends=earlier, logs=of_start, signalled_s=None, flight=None
            )
        starts.append(start)
    return first_to_fail(starts)


def _batch_logs(item: RunStatus, reader: _LogReader) -> list[Log]:
    """Return the log of the job's script, or nothing where there is none."""
    path = all_elements(item.run).batch_log(item.folder, item.element or 0)
    return reader.read(path, None)


def _starts_ranks_itself(item: RunStatus, attempt: Attempt) -> bool:
    """Return whether the program of a job starts its ranks itself."""
    role = attempt.folder.role
    if role is not None:
        return role.launcher == "command"
    shape = item.run.plan.get("shape")  # another version's record may have anything there
    return isinstance(shape, dict) and shape.get("launcher") == "command"


def _ends(attempt: Attempt, before_restart: int) -> dict[int, RankEnd]:
    """Return how each rank has ended; of a rank that torchrun restarted, before that restart."""
    ends = {}
    for end in rank_exits(attempt.folder, before_restart=before_restart):
        signalled = end.signalled != ""
        ends[end.rank] = RankEnd(
            end.rank, end.node, end.status, end.ended_s, signalled=signalled, pid=end.pid
        )
    return ends


@dataclass(frozen=True, slots=True)
class _LogReader:
    """Reads logs below a run's folder, and notes in ``unread`` what it could not."""

    folder: Path
    scanner: Scanner
    quick: bool
    unread: list[str]

    def read(self, path: Path, rank: int | None) -> list[Log]:
        """Return a log, or nothing where it is not there or cannot be read."""
        name = str(path.relative_to(self.folder))
        opened = partial(open_regular, path, links=False)
        try:
            with opened() as file:
                scan = self.scanner.scan(file, line_counter(opened), quick=self.quick)
                return [examine(name, rank, scan, path.stat().st_mtime)]
        except FileNotFoundError:
            return []
        except OSError as error:
            self.unread.append(f"{name}: {error.strerror}")
            return []

    def read_rank(self, attempt: Attempt, rank: int) -> list[Log]:
        """Return the logs of a rank, stderr first."""
        logs = []
        for name in ("err", "out"):
            logs += self.read(rank_log(attempt.folder, rank, name).path, rank)
        logs_of_starts = [part for log in logs for part in parts(RESTART_BEGINS, log)]
        if any(log.restart for log in logs_of_starts):
            return logs_of_starts
        return with_other_log(logs_of_starts)


def _rank_logs(reader: _LogReader, attempt: Attempt, ends: Mapping[int, RankEnd]) -> list[Log]:
    """Return the logs of ranks that did not complete, and of a rank that left early.

    A rank left early if it completed before the others failed.
    """
    # one that ended well: what its log says of errors did not matter
    wanted = [rank for rank in ranks(attempt.folder) if rank not in ends or ends[rank].status != 0]
    if attempt.folder.role and not wanted:
        wanted = ranks(attempt.folder)  # a server may have ended too early
    wanted.sort(key=lambda rank: _first_to_read(ends.get(rank)))
    logs: list[Log] = []
    has_own_words = False
    for count, rank in enumerate(wanted):
        most = _QUICK_RANKS if has_own_words else _QUICK_RANKS_MOST
        if reader.quick and count >= most:
            break
        mine = reader.read_rank(attempt, rank)
        logs += mine
        has_own_words = has_own_words or _has_own_words(mine, ends.get(rank))
    leaver = first_leaver(ends.values(), within_s=SAME_MOMENT_S)
    if leaver:
        logs += reader.read_rank(attempt, leaver.rank)
    return logs


def _first_to_read(end: RankEnd | None) -> tuple[bool, float]:
    """Return the sort key: ranks that ended by themselves first, by the time of their end."""
    if end is None:
        return True, 0.0
    return not end.by_itself, end.ended_s


def _has_own_words(logs: Sequence[Log], end: RankEnd | None) -> bool:
    """Return whether a rank may have failed by itself: it does not blame other ranks."""
    subject = subject_of_logs(logs[-2:], end)
    if subject is LogSubject.OWN or end is None:
        return True
    return end.by_itself and not subject.of_others


def _signalled_s(attempt: Attempt) -> float | None:
    """Return when the script or a rank first received a signal to end; None if none did."""
    received_s = []
    if attempt.exit and attempt.exit.signal:
        received_s.append(attempt.exit.ended_s)
    stop = attempt.folder.stop
    for name in names_in(stop):  # in_job/launch/records.py: the host and the time
        with suppress(OSError, ValueError, IndexError):
            received_s.append(float(read_text(stop / name, _LONGEST_STOP).split()[1]))
    return min(filter(math.isfinite, received_s), default=None)


def read_flight(
    folder: AttemptFolder, ranks: Collection[int], unread: list[str], *, quick: bool
) -> Flight | None:
    """Return what the dumps of an attempt show; None if there are none.

    Args:
        folder: the folder of the attempt.
        ranks: the ranks of the job, as far as they are known.
        unread: gets a remark for each of the first dumps that cannot be read, and the number of the
            others.
        quick: read the dumps only if they are small.
    """
    files = _dump_files(folder)
    if not files:
        return None
    if quick and sum(map(_size, files.values())) > _MOST_READ_QUICKLY:
        return None
    reader = DumpReader()
    dumps = dict[int, Dump]()
    left = _MOST_READ
    bad = list[str]()
    for rank, path in sorted(files.items()):
        shown = path.relative_to(folder.run)
        # a sparse file may have terabytes, of which nothing is read
        left -= min(_size(path), MOST_BYTES)
        if left < 0:
            bad.append(f"{shown} and the dumps after it: only the first 512 MB were read")
            break
        try:
            dumps[rank] = reader.read(read_bytes(path, MOST_BYTES))
        except DumpError as error:
            bad.append(f"{shown}: {error}")
        except OSError as error:
            bad.append(f"{shown}: {error.strerror}")
    unread += bad[:_MOST_REMARKS]
    if bad[_MOST_REMARKS:]:
        unread.append(
            f"{folder.flight.relative_to(folder.run)}: {len(bad) - _MOST_REMARKS} more dumps"
        )
    return judge(dumps, ranks) if dumps else None


def _dump_files(folder: AttemptFolder) -> dict[int, Path]:
    """Return each rank's dump."""
    files = {}
    for name in sorted(names_in(folder.flight)):
        match = _DUMP_NAME.fullmatch(name)
        if match:
            files[int(match["rank"])] = folder.flight / name
    return files


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
