"""When the ranks of a running job last wrote, and what their silence means.

The times are those of the ranks' files. One listing of the attempt's folder and one stat for each
file: 512 ranks take some milliseconds, and no log is opened.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcrun.files.reading import parse_object, time_s
from hpcrun.job.run_paths import AttemptFolder, parse_nodes, parse_ranks
from hpcrun.job.text.units import count, format_span, joined
from hpcrun.runs.attempt import Attempt, names_in
from hpcrun.runs.log_files import fold, rank_log, tail

STREAMS = ("out", "err")
SILENT_S = 600.0  # the shortest silence that status shows
SILENT_WITHOUT_PACE_S = 1800.0  # the same of a run with too few lines to know its pace
_KINDS = (*STREAMS, "metrics")
_PACE_LINES = 64  # the pace of a rank is that of its last lines
_FEW_LINES = 3  # fewer lines show no pace


@dataclass(frozen=True, slots=True)
class Writes:
    """The last signs of the ranks and nodes of an attempt.

    The times are in seconds since the epoch, by the file server's clock.
    """

    # rank → when it last wrote a line or a metric; None if it has written nothing
    ranks: Mapping[int, float | None]
    # node → its last heartbeat; nodes have heartbeats only if the job may be warned or requeued
    nodes: Mapping[str, float]


def last_writes(folder: AttemptFolder) -> Writes:
    """Return when each rank of an attempt last wrote."""
    names = names_in(folder.path)
    last: dict[int, float | None] = {}
    for kind in _KINDS:
        for rank in folder.role_ranks(parse_ranks(names, kind)):
            at_s = written_s(_path(folder, rank, kind))
            last[rank] = _latest([last.get(rank), at_s])
    heartbeats = {}
    for node in parse_nodes(names):
        heartbeat_s = written_s(folder.node_file(node))
        if heartbeat_s:
            heartbeats[node] = heartbeat_s
    return Writes(dict(sorted(last.items())), heartbeats)


def last_write_s(folder: AttemptFolder, rank: int) -> float | None:
    """Return when one rank last wrote; None if it has written nothing."""
    return _latest([written_s(_path(folder, rank, kind)) for kind in _KINDS])


def _latest(times: Sequence[float | None]) -> float | None:
    return max([at_s for at_s in times if at_s], default=None)


def _path(folder: AttemptFolder, rank: int, kind: str) -> Path:
    if kind == "metrics":
        return folder.rank_metrics(rank)
    return folder.rank_log(rank, kind)


def written_s(path: Path) -> float | None:
    """Return when a file was last written, in seconds since the epoch.

    Returns None if the file is empty, missing or a link.
    """
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if stat.S_ISREG(status.st_mode) and status.st_size:
        return status.st_mtime
    return None


def usual_pause_s(attempt: Attempt, rank: int) -> float | None:
    """Return the longest pause between the recent lines of a rank, in seconds.

    Returns None if the pause is unknown. The times are those of its metrics, else those at the
    beginnings of its lines. Without them, the result is the mean pause from the start to the last
    line; a log may have millions of lines: their number is the number of bytes over the mean length
    of the last lines.
    """
    pause_s = _longest_pause_s(_metric_times(attempt, rank))
    if pause_s is not None:
        return pause_s
    mean_s = None
    for stream in STREAMS:
        path = rank_log(attempt.folder, rank, stream).path
        with suppress(OSError):
            last = tail(path, _PACE_LINES)
            pause_s = _longest_pause_s(_line_times(last, attempt.started_s))
            if pause_s is not None:
                return pause_s
            if mean_s is None:
                mean_s = _mean_pause_s(path, last, attempt.started_s)
    return mean_s


def _longest_pause_s(times: Sequence[float]) -> float | None:
    """Return the longest pause between times that follow each other; None of fewer than two."""
    pauses = [after - before for before, after in itertools.pairwise(times)]
    return max(pauses, default=None)


def _mean_pause_s(path: Path, last: str, started_s: float) -> float | None:
    """Return the mean pause between the lines of a log, from its last lines; None if they are few.

    Raises:
        OSError: the log cannot be checked.
    """
    number = len(last.splitlines())
    if number < _FEW_LINES:
        return None
    status = path.lstat()
    size = max(1, status.st_size)  # 0 if the program has emptied its log since
    share = min(1.0, len(last.encode()) / size)
    return share * max(0.0, status.st_mtime - started_s) / number


def _line_times(text: str, started_s: float) -> list[float]:
    # its patterns take 3 ms, and only silent ranks need it
    from hpcrun.runs.log_times import Stamps

    stamps = Stamps(started_s)
    times = [stamps.read(line) for line in text.splitlines()]
    return [at_s for at_s in times if at_s is not None]


def _metric_times(attempt: Attempt, rank: int) -> list[float]:
    times = []
    with suppress(OSError):
        for line in tail(attempt.folder.rank_metrics(rank), _PACE_LINES).splitlines():
            with suppress(ValueError):
                times.append(time_s(parse_object(line, finite=False).get("time")))
    return times


def last_line_of(attempt: Attempt, rank: int) -> str:
    """Return the last line that a rank wrote, of the stream that it wrote to last."""
    paths = [rank_log(attempt.folder, rank, stream).path for stream in STREAMS]
    for path in sorted(paths, key=lambda path: -(written_s(path) or 0.0)):
        with suppress(OSError):
            lines = [line for line in tail(path, 5).splitlines() if line.strip()]
            if lines:
                return fold(lines[-1]).strip()
    return ""


# the age up to which a rank's last line is fresh, whatever the rank's usual pause
WROTE_LATELY_S = 20.0
MUCH_LONGER = 3.0  # how many times the usual pause a pause must be to count as silence
# the time within which ranks count as stopped together: file servers write with delays of seconds
STOPPED_TOGETHER_S = 5.0
# the beginning of a job: ranks whose last line is from it print nothing while they train
_BEGINNING_S = 120.0


def long_silence_s(attempt: Attempt, now_s: float) -> float | None:
    """Return for how many seconds no rank of an attempt has written.

    Returns:
        The seconds; None if they are few, also beside the usual pauses, or if the ranks have
        written nothing at all.
    """
    if now_s - attempt.started_s < SILENT_S:
        return None
    first_s = last_write_s(attempt.folder, 0)
    if first_s is not None and now_s - first_s < SILENT_S:
        return None  # most runs: rank 0 writes, and the files of the others are not needed
    written = {}
    for rank, at_s in last_writes(attempt.folder).ranks.items():
        if at_s is not None:
            written[rank] = at_s
    if not written:
        return None
    latest = max(written, key=lambda rank: written[rank])
    silent_s = now_s - written[latest]
    if silent_s < SILENT_S:
        return None
    usual_s = usual_pause_s(attempt, latest)
    if usual_s is None:
        least_s = SILENT_WITHOUT_PACE_S
    else:
        least_s = MUCH_LONGER * usual_s
    return silent_s if silent_s >= least_s else None


def silence_limit_s(usual_s: float | None) -> float:
    """Return the pause after which a job counts as silent, in seconds.

    ``usual_s`` is the usual pause of the job between two lines (None: unknown).
    """
    return max(WROTE_LATELY_S, MUCH_LONGER * (usual_s or 0.0))


def silence_sentence(
    silent_s: Mapping[int, float | None],
    where: Callable[[int], str],
    *,
    running_s: float,
    usual_s: float | None,
) -> str:
    """Return who stopped first, or that no rank looks stuck.

    Args:
        silent_s: rank → seconds since it last wrote; None if it has written nothing.
        where: returns the name of a rank: ``rank 11 on node-3``.
        running_s: seconds since the job started.
        usual_s: the usual pause between two lines, in seconds; None if unknown.
    """
    ages = {rank: age for rank, age in silent_s.items() if age is not None}
    if not ages:
        return (
            "the job is running; no rank has written anything since it started "
            f"{format_span(running_s)} ago"
        )
    newest_s = min(ages.values())
    limit_s = silence_limit_s(usual_s)
    if newest_s <= WROTE_LATELY_S:
        return f"{_calm(ages, len(silent_s), limit_s)}: nothing looks stuck"
    if newest_s <= limit_s:
        pace = f"at {format_span(usual_s or 0.0)} from line to line until then"
        return f"{_calm(ages, len(silent_s), limit_s)}: {pace}, that is too early to call it stuck"
    usually = ""
    if usual_s and usual_s >= 1:
        usually = f", which usually takes {format_span(usual_s)} from line to line"
    if len(silent_s) == 1:
        return f"the job has written nothing for {format_span(newest_s)}{usually}"
    return _who_stopped(ages, len(silent_s), where, running_s, usually)


def _who_stopped(
    ages: Mapping[int, float],
    number: int,
    where: Callable[[int], str],
    running_s: float,
    usually: str,
) -> str:
    """Return which of several ranks stopped first, or that all stopped together.

    Args:
        ages: rank → seconds since it last wrote, without ranks that have written nothing.
        number: the number of all ranks.
        where: returns the name of a rank.
        running_s: seconds since the job started.
        usually: the usual pause between two lines, for the end of a sentence; empty if unknown.
    """
    ranks = sorted(talkers(ages, running_s), key=lambda rank: -ages[rank])
    first = [rank for rank in ranks if ages[ranks[0]] - ages[rank] <= STOPPED_TOGETHER_S]
    rest = [rank for rank in ranks if rank not in first]
    if rest and len(first) <= len(rest):
        who = joined([where(rank) for rank in first])
        text = f"{who} last wrote {format_span(ages[first[0]])} ago; {_others(rest, ages)}"
        return f"{text} {format_span(ages[rest[0]])} ago"
    text = f"no rank has written for {format_span(min(ages.values()))}{usually}"
    quiet = number - len(ranks)
    if quiet:
        text += f" ({count(quiet, 'other rank')} wrote only at the start, or nothing)"
    return text


def _calm(ages: Mapping[int, float], ranks: int, limit_s: float) -> str:
    """Return which ranks wrote lately."""
    newest = min(ages, key=lambda rank: ages[rank])
    oldest_s = max(ages.values())
    if ranks == 1:
        return f"the job wrote {format_span(ages[newest])} ago"
    if len(ages) == ranks and oldest_s <= limit_s:
        return f"all {ranks} ranks wrote in the last {format_span(max(WROTE_LATELY_S, oldest_s))}"
    return f"rank {newest} wrote {format_span(ages[newest])} ago"


def talkers(ages: Mapping[int, float], running_s: float) -> list[int]:
    """Return the ranks that wrote after the beginning of the job; all if none did."""
    newest_s = min(ages.values())
    ranks = []
    for rank, age in ages.items():
        wrote_at_beginning = running_s - age <= _BEGINNING_S
        if not wrote_at_beginning or age - newest_s <= _BEGINNING_S:
            ranks.append(rank)
    return ranks


def _others(ranks: Sequence[int], ages: Mapping[int, float]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} wrote"
    all_others = len(ranks) == len(ages) - 1
    if all_others:
        return f"the other {len(ranks)} wrote"
    return f"{len(ranks)} others wrote"
