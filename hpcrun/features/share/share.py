"""share: all that is known of a run, gathered for one page that other people read.

It only reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hpcrun.actions.ports import Ports
from hpcrun.actions.runs.run_metrics import Metrics, read_elements, read_metrics
from hpcrun.actions.status.decide_status import attempt_times
from hpcrun.actions.status.run_status import (
    ElementStatus,
    RunStatus,
    element_of,
    element_row,
    failed_elements,
)
from hpcrun.actions.status.status_query import one_status
from hpcrun.errors import HpcrunError, PlanError
from hpcrun.explain.diagnosis.rules import Rule
from hpcrun.explain.ended import Explanation, explain
from hpcrun.explain.first_line import with_element_lines
from hpcrun.explain.running import explain_running, most_silent, read_running
from hpcrun.features.sweep.sweep import SweepTable, sweep_table
from hpcrun.features.trackers.tracker_files import TrackerRun, is_local, tracker_runs
from hpcrun.files.reading import open_regular
from hpcrun.files.writing import replace_file
from hpcrun.job import job_states
from hpcrun.job.plan.sweep import element_arguments
from hpcrun.job.request.request_line import (
    of_one_element,
    option_groups,
    program_words,
    with_named_secrets,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.units import rank_text
from hpcrun.runs.attempt import Attempt, attempts, hosts, rank_exits, ranks
from hpcrun.runs.elements import all_elements
from hpcrun.runs.log_files import fold, rank_log
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from hpcrun.runs.use_samples import NodeUse, read_use

# elements of a sweep whose metrics are read; the others are shown with their states alone
MOST_ELEMENTS = 500
_MOST_RANKS = 4
_MOST_FAILED_ELEMENTS = 3
_MOST_ATTEMPTS = 50
_MOST_PAGES = 8
_LOG_BYTES = 256 << 10
_TEXT_BYTES = 512 << 10
_LOG_LINES = 150
_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SharedText:
    """A part of a file.

    ``bytes_left_out`` is the number of bytes after the part. For the end of a log, the number is
    that of the bytes before the part.
    """

    text: str
    bytes_left_out: int = 0


LogEnd = tuple[str, SharedText]
"""The end of a log behind its source, stream and the reason to show it: ``rank 3 on node-1, stderr,
exit status 1``.
"""


@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """An attempt of an element, its nodes, and its end.

    For an attempt that runs, the end is the time when hpcrun asked the scheduler.
    """

    attempt: Attempt
    element: int
    nodes: Sequence[str]
    ended_s: float
    # of the element whose newest attempt it is; None for an earlier one
    status: LastStatus | None = None


@dataclass(frozen=True, slots=True)
class SharedRun:
    """All that a page shows of a run, a sweep, or one element of a sweep, with its secrets.

    Attributes:
        command: the words of the ``hpcrun submit`` line that does the same, those of each option
            together.
        diff: what distinguishes the code from its commit; None where there is nothing, or nobody
            wants it.
        metrics, trackers, use: of a run or an element; none of a sweep.
    """

    item: RunStatus
    now_s: float
    command: tuple[tuple[str, ...], ...]
    explanation: Explanation | None = None
    attempts: tuple[AttemptSpan, ...] = ()  # oldest first, of a sweep those of all its elements
    # the snapshot's source and commit; None without a snapshot
    code: Mapping[str, Any] | None = None
    diff: SharedText | None = None
    script: SharedText | None = None
    metrics: Metrics | None = None
    table: SweepTable | None = None  # of a sweep
    # name → page of the experiment trackers' runs, the newest first
    trackers: tuple[tuple[str, str], ...] = ()
    use: tuple[NodeUse, ...] = ()  # of the hardware, by the newest attempt that has samples
    logs: tuple[LogEnd, ...] = ()
    missing: tuple[str, ...] = ()  # what could not be read


def gather(
    run: Run,
    ports: Ports,
    *,
    element: int | None = None,
    logs: bool = True,
    code: bool = True,
    rules: Sequence[Rule] = (),
    patterns: Mapping[str, str] = _NONE,
) -> SharedRun:
    """Return what a page shows of a run, a sweep, or one element of a sweep.

    Args:
        run: the run to show.
        ports: the store, the scheduler and the clock that hpcrun uses.
        element: the index of the element to show; None for the whole run.
        logs: whether to include the ends of the logs.
        code: whether to include the script and the changes of the code.
        rules: the rules of explain.
        patterns: metric → regular expression that finds the metric in a log.

    Raises:
        NotFoundError: the folder of the run is gone.
    """
    result = one_status(run.run_id, ports)
    item, now_s = result.runs[0], ports.now_s()
    if element is not None:
        item = element_of(item, element)
    item = with_element_lines(item, failed_elements(item.elements), ports.store, lambda: rules)
    explanation = _explained(item, rules, patterns, now_s)
    snapshot = _snapshot(item.run, ports.store)
    role = item.run.deciding_role
    table = None
    if item.elements:
        read = [one.index for one in item.elements[:MOST_ELEMENTS]]
        table = sweep_table([(item, read_elements(item.folder, read, patterns, role=role))])
    uses: Iterable[tuple[NodeUse, ...]] = ()
    tracked: Sequence[TrackerRun] = ()
    if not table:
        uses = (read_use(attempt.folder) for attempt in attempts(item.folder, item.element or 0))
        tracked = tracker_runs(item.run, item.folder, item.element or 0)
    # those that others can open: not those of a server on this machine
    pages = ((each.tracker, each.url) for each in tracked if each.url and not is_local(each.url))
    return SharedRun(
        item,
        now_s,
        _command(item),
        explanation=explanation,
        attempts=tuple(_attempts(item)),
        code=snapshot.code,
        diff=_text(RunFolder(ports.store.folder(snapshot.run_id)).code_diff)
        if code and snapshot.code
        else None,
        script=_text(RunFolder(item.folder).script) if code else None,
        metrics=None
        if table
        else read_metrics(item.folder, patterns, element=item.element or 0, role=role),
        table=table,
        trackers=tuple(dict.fromkeys(pages))[:_MOST_PAGES],
        use=next((nodes for nodes in uses if any(node.samples for node in nodes)), ()),
        logs=tuple(_logs(item, explanation)) if logs else (),
        missing=(f"{result.away.message}; the state is the last known",) if result.away else (),
    )


def _explained(
    item: RunStatus, rules: Sequence[Rule], patterns: Mapping[str, str], now_s: float
) -> Explanation | None:
    """Return why the run is as it is; None if it completed, or has not started."""
    if item.status.final:
        if item.status.state == job_states.COMPLETED:
            return None
        return explain(item, rules)
    if item.status.state != job_states.RUNNING:
        return None
    if item.elements and (index := most_silent(item, now_s)) is not None:
        item = element_of(item, index)
    running = read_running(item, now_s, patterns)
    return explain_running(running) if running else None


def _command(item: RunStatus) -> tuple[tuple[str, ...], ...]:
    run = item.run
    request: dict[str, Any] = run.request
    if not request.get("script"):
        return ()  # a Python function has no line
    if item.element is not None:
        parameters = all_elements(run).parameters[item.element]
        arguments = element_arguments(request.get("args", ()), item.element, parameters)
        request = of_one_element(request, arguments)
    request = with_named_secrets(request)
    profile = run.profile_file or run.profile
    return (("hpcrun", "submit"), *option_groups(request, profile), program_words(request))


def _attempts(item: RunStatus) -> Iterator[AttemptSpan]:
    indices = [one.index for one in item.elements] or [item.element or 0]
    for index in indices[:MOST_ELEMENTS]:
        newest = list(islice(attempts(item.folder, index), _MOST_ATTEMPTS))
        if item.elements:
            status = element_of(item, index).status
        else:
            status = item.status
        for attempt, (_, ended_s) in zip(
            reversed(newest), attempt_times(newest, status), strict=True
        ):
            nodes = hosts(attempt.folder) or [attempt.host]
            yield AttemptSpan(
                attempt, index, nodes, ended_s, status if attempt is newest[0] else None
            )


def _snapshot(run: Run, store: RunStore) -> Run:
    """Return the run whose snapshot of the code ran: its own, or an earlier run's."""
    if run.code_of:
        with suppress(HpcrunError):
            return store.load(run.code_of)
    return run


def _text(path: Path) -> SharedText | None:
    """Return the beginning of a file, None if it is empty or cannot be read."""
    with suppress(OSError), open_regular(path, links=False) as file:
        content = file.read(_TEXT_BYTES)
        more = max(0, os.fstat(file.fileno()).st_size - len(content))
        if content:
            return SharedText(content.decode("utf-8", "replace"), more)
        return None
    return None


def _logs(item: RunStatus, explanation: Explanation | None) -> Iterator[LogEnd]:
    """Yield the ends of the logs that tell most: those of the ranks that failed first."""
    if item.elements:
        for one in sorted(item.elements, key=_oddness)[:_MOST_FAILED_ELEMENTS]:
            row = element_row(item, one)
            if explanation and explanation.item.element == one.index:
                about = explanation
            else:
                about = None
            yield from (
                (f"element {one.index}: {source}", end) for source, end in _logs(row, about)
            )
        return
    role = (explanation and explanation.role) or item.run.deciding_role
    attempt = next(attempts(item.folder, item.element or 0, role), None)
    ends = list(_rank_ends(attempt, explanation)) if attempt else []
    yield from ends
    if not ends or (item.status.final and item.status.state != job_states.COMPLETED):
        batch = all_elements(item.run).batch_log(item.folder, item.element or 0)
        last = _end(batch)
        if last:
            yield "batch script", last


def _oddness(one: ElementStatus) -> tuple[bool, bool]:
    failed = one.status.final and one.status.state not in (
        job_states.COMPLETED,
        job_states.CANCELLED,
    )
    return not failed, one.status.elapsed_s is None


def _rank_ends(attempt: Attempt, explanation: Explanation | None) -> Iterator[LogEnd]:
    node_of = {end.rank: end.node for end in rank_exits(attempt.folder)}
    for rank, why in islice(_odd_ranks(attempt, explanation).items(), _MOST_RANKS):
        source = rank_text(rank, node_of.get(rank), attempt.folder.role)
        for name, stream in (("err", "stderr"), ("out", "stdout")):
            end = _end(rank_log(attempt.folder, rank, name).path)
            if end:
                yield ", ".join(filter(None, (source, stream, why))), end


def _odd_ranks(attempt: Attempt, explanation: Explanation | None) -> dict[int, str]:
    """Return the ranks to show, each with the reason to show the rank.

    These are the rank that explain names, the ranks that failed, and the first rank.
    """
    failed = sorted(
        (end for end in rank_exits(attempt.folder) if end.status),
        key=lambda end: (end.is_consequence, end.ended_s),
    )
    reasons = {
        end.rank: f"exit status {end.status}{', terminated' if end.is_consequence else ''}"
        for end in failed
    }
    named = explanation.rank if explanation else None
    causes = [end.rank for end in failed if not end.is_consequence]
    order = [*([] if named is None else [named]), *causes, *ranks(attempt.folder)[:1], *reasons]
    return {
        rank: reasons.get(rank, "named by hpcrun explain" if rank == named else "")
        for rank in dict.fromkeys(order)
    }


def _end(path: Path) -> SharedText | None:
    """Return the last lines of a log, None if it is empty or cannot be read."""
    with suppress(OSError), open_regular(path, links=False) as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines(keepends=True)
        if start:  # a token of which only the end is left could not be recognised
            first, *rest = lines
            lines = rest or [first.partition(" ")[2]]
        shown = [fold(line) for line in lines[-_LOG_LINES:]]
        text = "".join(shown).rstrip("\n")
        left_out = size - sum(len(line.encode()) for line in lines[-_LOG_LINES:])
        return SharedText(text, max(0, left_out)) if text else None
    return None


def save_page(path: Path, content: bytes) -> None:
    """Write the page: whole, or not at all.

    Raises:
        PlanError: the file cannot be written.
    """
    try:
        replace_file(path, content, mode=0o644, keep_mode=True)
    except OSError as error:
        raise PlanError(
            f"cannot write {path}: {error.strerror}", hint="choose another name with --out FILE"
        ) from None
