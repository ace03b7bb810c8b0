"""share: all that is known of a run, gathered for one page that other people read.

It only reads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
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
from hpcrun.features.sweep.compare_elements import SweepTable, sweep_table
from hpcrun.features.trackers.tracker_files import is_local, tracker_runs
from hpcrun.files.reading import open_regular
from hpcrun.files.writing import replace_file
from hpcrun.job import job_states
from hpcrun.job.plan.sweep import one_element
from hpcrun.job.request.request_line import (
    option_groups,
    program_words,
    with_named_secrets,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.units import rank_text
from hpcrun.runs.attempt import Attempt, attempts, hosts, rank_exits, ranks
from hpcrun.runs.elements import all_elements
from hpcrun.runs.job_versions import versions_of
from hpcrun.runs.log_files import fold, rank_log
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.store import RunStore
from hpcrun.runs.use_samples import NodeUse, read_use

# elements of a sweep whose metrics and attempts are read
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
    # of the newest attempt; unknown ones are left out
    versions: Mapping[str, str] = field(default_factory=dict)
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
    item = result.runs[0]
    now_s = ports.now_s()
    if element is not None:
        item = element_of(item, element)
    item = with_element_lines(item, failed_elements(item.elements), ports.store, lambda: rules)
    explanation = _explained(item, rules, patterns, now_s)
    missing: list[str] = []
    command: tuple[tuple[str, ...], ...] = ()
    try:
        command = _command(item)
    except ValueError as error:  # another program has written the record, or changed it
        missing.append(f"the request in the run's record is damaged: {error}")
    shared = SharedRun(item, now_s, command, explanation, attempts=tuple(_attempts(item)))
    shared = _with_measurements(shared, patterns)
    if code:
        shared = replace(shared, script=_text(RunFolder(item.folder).script))
    if logs:
        shared = replace(shared, logs=tuple(_logs(item, explanation)))
    if result.away:
        missing.append(f"{result.away.message}; the state is the last known")
    versions: Mapping[str, str] = _NONE
    if shared.attempts:
        versions = versions_of(shared.attempts[-1].attempt.folder)
    shared = replace(shared, missing=tuple(missing), versions=versions)
    snapshot = _snapshot(item.run, ports.store)
    if not snapshot.code:
        return shared
    diff = None
    if code:
        diff = _text(RunFolder(ports.store.folder(snapshot.run_id)).code_diff)
    return replace(shared, code=snapshot.code, diff=diff)


def _with_measurements(shared: SharedRun, patterns: Mapping[str, str]) -> SharedRun:
    """Return the run with its metrics, trackers and use; a sweep with its table."""
    item = shared.item
    role = item.run.deciding_role
    if item.elements:
        indices = [one.index for one in item.elements[:MOST_ELEMENTS]]
        metrics_of = read_elements(item.folder, indices, patterns, role=role)
        return replace(shared, table=sweep_table([(item, metrics_of)]))
    index = item.element or 0
    return replace(
        shared,
        metrics=read_metrics(item.folder, patterns, element=index, role=role),
        trackers=_tracker_pages(item),
        use=_newest_use(item),
    )


def _tracker_pages(item: RunStatus) -> tuple[tuple[str, str], ...]:
    """Return the trackers' pages that others can open: not those of a server on this machine."""
    pages = []
    for each in tracker_runs(item.run, item.folder, item.element or 0):
        if each.url and not is_local(each.url):
            pages.append((each.tracker, each.url))
    return tuple(dict.fromkeys(pages))[:_MOST_PAGES]


def _newest_use(item: RunStatus) -> tuple[NodeUse, ...]:
    """Return the use of the hardware by the newest attempt that has samples."""
    for attempt in attempts(item.folder, item.element or 0):
        nodes = read_use(attempt.folder)
        if any(node.samples for node in nodes):
            return nodes
    return ()


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
    if item.elements:
        index = most_silent(item, now_s)
        if index is not None:
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
        request = one_element(request, item.element, parameters)
    request = with_named_secrets(request)
    profile = run.profile_file or run.profile
    return (("hpcrun", "submit"), *option_groups(request, profile), program_words(request))


def _attempts(item: RunStatus) -> Iterator[AttemptSpan]:
    if not item.elements:
        yield from _attempts_of(item, item.element or 0)
    for one in item.elements[:MOST_ELEMENTS]:
        yield from _attempts_of(element_row(item, one), one.index)


def _attempts_of(item: RunStatus, element: int) -> Iterator[AttemptSpan]:
    """Yield the attempts of a run without elements, or of one element, the oldest first."""
    newest = list(islice(attempts(item.folder, element), _MOST_ATTEMPTS))
    times = attempt_times(newest, item.status)
    for attempt, (_, ended_s) in zip(reversed(newest), times, strict=True):
        nodes = hosts(attempt.folder) or [attempt.host]
        status = item.status if attempt is newest[0] else None
        yield AttemptSpan(attempt, element, nodes, ended_s, status)


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
    if not item.elements:
        yield from _logs_of(item, explanation)
    for one in sorted(item.elements, key=_oddness)[:_MOST_FAILED_ELEMENTS]:
        is_explained = explanation is not None and explanation.item.element == one.index
        about = explanation if is_explained else None
        for source, end in _logs_of(element_row(item, one), about):
            yield f"element {one.index}: {source}", end


def _logs_of(item: RunStatus, explanation: Explanation | None) -> Iterator[LogEnd]:
    """Yield the ends of the logs of a run without elements, or of one element."""
    role = (explanation and explanation.role) or item.run.deciding_role
    attempt = next(attempts(item.folder, item.element or 0, role), None)
    ends: list[LogEnd] = []
    if attempt:
        ends += _rank_ends(attempt, explanation)
    yield from ends
    has_failed = item.status.final and item.status.state != job_states.COMPLETED
    if ends and not has_failed:
        return
    last = _end(all_elements(item.run).batch_log(item.folder, item.element or 0))
    if last:
        yield "batch script", last


def _oddness(one: ElementStatus) -> tuple[bool, bool]:
    """Return the sort key of elements: those that failed come first, then those that ran."""
    is_good = one.status.state in (job_states.COMPLETED, job_states.CANCELLED)
    has_failed = one.status.final and not is_good
    return not has_failed, one.status.elapsed_s is None


def _rank_ends(attempt: Attempt, explanation: Explanation | None) -> Iterator[LogEnd]:
    node_of = {end.rank: end.node for end in rank_exits(attempt.folder)}
    for rank, why in islice(_odd_ranks(attempt, explanation).items(), _MOST_RANKS):
        source = rank_text(rank, node_of.get(rank), attempt.folder.role)
        for name, stream in (("err", "stderr"), ("out", "stdout")):
            end = _end(rank_log(attempt.folder, rank, name).path)
            if end:
                parts = [source, stream, why]
                yield ", ".join(part for part in parts if part), end


def _odd_ranks(attempt: Attempt, explanation: Explanation | None) -> dict[int, str]:
    """Return the ranks to show, each with the reason to show the rank.

    These are the rank that explain names, the ranks that failed, and the first rank.
    """
    failed = [end for end in rank_exits(attempt.folder) if end.status]
    failed.sort(key=lambda end: (end.is_consequence, end.ended_s))
    reasons: dict[int, str] = {}
    for end in failed:
        terminated = ", terminated" if end.is_consequence else ""
        reasons[end.rank] = f"exit status {end.status}{terminated}"
    order: list[int] = []
    named = explanation.rank if explanation else None
    if named is not None:
        order.append(named)
    order += [end.rank for end in failed if not end.is_consequence]
    order += ranks(attempt.folder)[:1]
    order += reasons
    shown = dict.fromkeys(order, "")
    if named is not None:
        shown[named] = "named by hpcrun explain"
    for rank, reason in reasons.items():
        shown[rank] = reason
    return shown


def _end(path: Path) -> SharedText | None:
    """Return the last lines of a log, None if it is empty or cannot be read."""
    with suppress(OSError), open_regular(path, links=False) as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(0, size - _LOG_BYTES))
        lines = file.read(_LOG_BYTES).decode("utf-8", "replace").splitlines(keepends=True)
        if start and lines:
            lines = _without_first_word(lines)
        last = lines[-_LOG_LINES:]
        text = "".join(fold(line) for line in last).rstrip("\n")
        if text:
            shown_bytes = sum(len(line.encode()) for line in last)
            return SharedText(text, max(0, size - shown_bytes))
    return None


def _without_first_word(lines: list[str]) -> list[str]:
    """Return lines without the first, or of a single line what stands behind its first word.

    A token of which only the end is left could not be recognised.
    """
    if len(lines) > 1:
        return lines[1:]
    return [lines[0].partition(" ")[2]]


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
