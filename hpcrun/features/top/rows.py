"""The rows of the table of ``hpcrun top``: filtered, sorted, grouped.

Pure functions of what is known of the runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcrun.actions.status.run_status import ElementStatus, RunStatus, element_row
from hpcrun.job import job_states as state
from hpcrun.job.request.parameters import parameters_text
from hpcrun.job.run_paths import run_name
from hpcrun.runs.record import LastStatus
from hpcrun.views.status_table import why_text
from hpcrun.views.text import GAP, clock_text, count, fitting, short_size, visible

DAMAGED = "DAMAGED"  # the state of a run whose record cannot be read
GROUPINGS = ("study", "name", "state", "none")
_STATE_ORDER = (
    state.RUNNING,
    "COMPLETING",
    state.PENDING,
    state.SUBMITTING,
    state.UNKNOWN,
    DAMAGED,
    state.FAILED,
)
# A narrow terminal drops these columns in this order.
_DROPPED = ("profile", "limit", "size", "job", "elapsed")
_NAME_MOST = 28
_INFO_LEAST = 40
# the two are shortened to these widths before the job ids are left out
_NAME_SHORT = 14
_INFO_SHORT = 30
_COUNTED_FIRST = ("RUNNING", "PENDING", "FAILED")
_COUNTED_AS = {"TIMEOUT": "timed out"}


@dataclass(eq=False, slots=True)
class TopRow:
    """One row: a run, an element of a sweep, or a group of runs.

    A key stays the same in a later reading.

    Attributes:
        text: what a filter searches: names, ids, state, nodes, reason and cause.
    """

    key: str  # run id, ``run id/3`` of an element, or the group's name behind a colon
    name: str
    state: str
    # what is known of the run; None of a group, and of a run that cannot be read
    run: RunStatus | None = None
    element: ElementStatus | None = None
    children: Sequence[TopRow] = ()  # elements of a sweep, runs of a group
    about: str = ""  # the INFO of a row without a run
    text: str = ""

    @property
    def is_group(self) -> bool:
        """Whether it stands for several runs."""
        return self.key.startswith(":")

    @property
    def status(self) -> LastStatus | None:
        """The status of the run or element."""
        if self.element:
            return self.element.status
        if self.run:
            return self.run.status
        return None

    def item(self) -> RunStatus | None:
        """Return the run, or the element as a run of its own."""
        if self.run and self.element:
            return element_row(self.run, self.element)
        return self.run

    def runs(self) -> list[TopRow]:
        """Return the rows of runs or elements that an action on this row is about."""
        return list(self.children) if self.is_group else [self]


ShownRow = tuple[TopRow, int]  # a row and its depth: 1 inside a sweep or a group


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How a person wants the rows."""

    # the filter: each row has all of these words, and none of those that begin with ``!``
    words: str = ""
    sort: str = "age"
    reverse: bool = False
    group: str = GROUPINGS[0]
    opened: frozenset[str] = frozenset()  # keys of the rows whose children are shown


def run_rows(
    runs: Iterable[RunStatus], damaged: Mapping[str, str], before: Iterable[TopRow] = ()
) -> tuple[TopRow, ...]:
    """Return a row for each run, and a row for each damaged run that says what is wrong.

    Rows of runs that have not changed stay.
    """
    known = {row.key: row for row in before}
    rows = []
    for item in runs:
        row = known.get(item.run.run_id)
        rows.append(row if row and row.run is item else _run_row(item))
    bad = (
        TopRow(run_id, run_id, DAMAGED, about=words, text=f"{run_id} {words} damaged".lower())
        for run_id, words in damaged.items()
    )
    return (*rows, *bad)


def _run_row(item: RunStatus) -> TopRow:
    run, status = item.run, item.status
    children = []
    for each in item.elements:
        name, parameters = f"{run.name}/{each.index}", parameters_text(each.parameters)
        text = _searched(
            f"{name} {run.run_id} {each.job_id or ''} {parameters} {each.status.state}", each.status
        )
        row = TopRow(
            f"{run.run_id}/{each.index}", visible(name), each.status.state, item, each, text=text
        )
        children.append(row)
    name_of_state = state.UNKNOWN if item.lost else status.state
    text = _searched(
        f"{run.name} {run.run_id} {run.job_id or ''} {run.profile} {name_of_state}", status
    )
    return TopRow(
        run.run_id, visible(run.name), name_of_state, item, children=tuple(children), text=text
    )


def _searched(names: str, status: LastStatus) -> str:
    """Return the text in which a filter is searched for: what a row is, and why."""
    return f"{names} {status.hosts or ''} {status.reason or ''} {status.cause or ''}".lower()


def matches(row: TopRow, words: Sequence[str]) -> bool:
    """Whether a row has all words, and none of those that begin with ``!``."""
    return all(
        term[1:] not in row.text if term[0] == "!" and term[1:] else term in row.text
        for term in words
    )


def _state(row: TopRow) -> Any:
    return _STATE_ORDER.index(row.state) if row.state in _STATE_ORDER else len(
        _STATE_ORDER
    ), row.state


def _job_number(row: TopRow) -> int:
    job_id = row.run.run.job_id if row.run else None
    return int("".join(filter(str.isdigit, job_id or "")) or 0)


SORTS: Mapping[str, tuple[Callable[[TopRow], Any], str]] = {
    "age": (lambda row: -row.run.run.created_s if row.run else 0.0, "newest first"),
    "name": (lambda row: row.name, "by name"),
    "state": (_state, "by state, running first"),
    "job": (lambda row: -_job_number(row), "by job id, highest first"),
    "elapsed": (
        lambda row: -((row.status.ran_s if row.status else None) or -1),
        "by elapsed time, longest first",
    ),
}
"""How rows can be sorted: what they are compared by, and how this is said."""


def arranged(
    rows: Iterable[TopRow], how: Arrangement, studies: Mapping[str, str] | None = None
) -> list[ShownRow]:
    """Return the rows as they are shown; ``studies`` has the study of each run in one."""
    words = how.words.lower().split()
    kept: list[TopRow] = []
    matching: dict[str, list[TopRow]] = {}
    for row in rows:
        if words:
            inner = [child for child in row.children if matches(child, words)]
        else:
            inner = []
        if matches(row, words) or inner:
            kept.append(row)
            if inner and len(inner) < len(row.children):
                matching[row.key] = inner  # those are shown, whether or not the sweep is open
    order = SORTS[how.sort][0]
    kept.sort(key=order, reverse=how.reverse)
    shown: list[ShownRow] = []

    def show(row: TopRow, depth: int) -> None:
        shown.append((row, depth))
        if row.key in how.opened or row.key in matching:
            children = matching.get(row.key, row.children)
            if not row.is_group and how.sort in ("state", "elapsed"):
                children = sorted(children, key=order, reverse=how.reverse)
            elif not row.is_group and how.reverse:
                children = list(reversed(children))
            for child in children:
                show(child, depth + 1)

    for row in _grouped(kept, how.group, studies or {}):
        show(row, 0)
    return shown


def keys_to_mark(shown: Sequence[ShownRow]) -> set[str]:
    """Return the keys of all runs that are shown.

    For a sweep of which a filter shows a part, these are the keys of the shown elements.
    """
    elements: dict[str, list[str]] = {}
    for row, _ in shown:
        if row.element and row.run:
            elements.setdefault(row.run.run.run_id, []).append(row.key)
    keys: set[str] = set()
    for row, _ in shown:
        for each in [] if row.element else row.runs():
            some = elements.get(each.key, [])
            keys |= set(some) if 0 < len(some) < len(each.children) else {each.key}
    return keys


def _grouped(rows: Sequence[TopRow], group: str, studies: Mapping[str, str]) -> list[TopRow]:
    """Return the rows, those of one group in a row for it, where the first of them was."""
    names: Mapping[str, Callable[[TopRow], str | None]] = {
        "study": lambda row: studies.get(row.key),
        "name": lambda row: row.name,
        "state": lambda row: row.state,
    }
    if group not in names:
        return list(rows)
    members: dict[str | None, list[TopRow]] = {}
    for row in rows:
        members.setdefault(names[group](row), []).append(row)
    result = []
    seen = set()
    for row in rows:
        name = names[group](row)
        if name is None or (group == "name" and len(members[name]) == 1):
            result.append(row)
        elif name not in seen:
            seen.add(name)
            if group == "study":
                title = f"study {visible(run_name(name))}"
            else:
                title = name
            numbers = Counter(each.state for each in members[name]).most_common()
            counts = ", ".join(
                f"{number} {each.lower().replace('_', ' ')}" for each, number in numbers
            )
            about = f"{count(len(members[name]), 'run')}: {counts}"
            result.append(
                TopRow(f":{group}:{name}", title, "", children=members[name], about=about)
            )
    return result


def states_text(states: Sequence[str], order: str) -> str:
    """Return the states in words, such as ``12 runs, newest first: 2 running, 1 timed out``.

    The states that ask for attention come first.
    """
    numbers = Counter(states).most_common()
    numbers.sort(key=lambda pair: pair[0] not in _COUNTED_FIRST)
    counted = ", ".join(
        f"{number} {_COUNTED_AS.get(name, name.lower().replace('_', ' '))}"
        for name, number in numbers
    )
    return f"{count(len(states), 'run')}, {order}" + (f": {counted}" if states else "")


# --- what is in the cells ------------------------------------------------------------------------


def column_widths(shown: Sequence[ShownRow], width: int) -> dict[str, int]:
    """Return the columns that a terminal has room for, each with its width."""
    rows = [row for row, _ in shown]
    runs = [row.run for row in rows if row.run]
    times = [row.status for row in rows if row.status]
    needed = {
        "name": min(
            _NAME_MOST, max((len(row.name) + 2 * depth + 2 for row, depth in shown), default=4)
        ),
        "job": max((len(job_id_of(row)) for row in rows), default=3),
        "profile": max((len(item.run.profile) for item in runs), default=7),
        "state": max((len(row.state) for row in rows), default=5),
        "size": max((len(short_size(item.run)) for item in runs), default=4),
        "elapsed": len(clock_text(max((status.ran_s or 0 for status in times), default=0))),
        "limit": len(clock_text(max((status.limit_s or 0 for status in times), default=0))),
    }
    needed = {name: max(wide, len(name)) for name, wide in needed.items()}
    widths = fitted({**needed, "info": _INFO_LEAST}, width, _DROPPED)
    if "job" not in widths:
        kept = {name: wide for name, wide in needed.items() if name not in _DROPPED[:3]}
        short = {**kept, "name": min(_NAME_SHORT, kept["name"]), "info": _INFO_SHORT}
        widths = fitted(short, width, _DROPPED)
        more = max(0, min(widths["info"] - _INFO_SHORT, needed["name"] - widths["name"]))
        widths |= {"name": widths["name"] + more, "info": widths["info"] - more}
    return widths


def fitted(needed: Mapping[str, int], width: int, dropped: Sequence[str]) -> dict[str, int]:
    """Return the columns that a terminal has room for, each with its width.

    The last column takes the rest.

    Args:
        needed: column → the least width that the column needs, in terminal columns.
        width: the width of the terminal, in columns.
        dropped: the columns that the table can do without; the column that is missed least comes
            first.
    """
    *names, last = fitting(needed, width - 1, dropped)
    widths = {name: needed[name] for name in names}
    return {**widths, last: max(0, width - 1 - sum(wide + GAP for wide in widths.values()))}


def cells(
    row: TopRow, depth: int, now_s: float, *, is_open: bool, words: str = ""
) -> dict[str, str]:
    """Return the cells of a row.

    Args:
        row: the row to show.
        depth: the depth of the row in the tree, 0 for a run at the top.
        now_s: the present time, in seconds since the epoch.
        is_open: whether the children of the row are shown.
        words: what the run wrote last.
    """
    if row.children:
        sign = "- " if is_open else "+ "
    else:
        sign = "  "
    name = f"{'  ' * depth}{sign}{row.name}"
    item = row.item()
    if item is None:
        return {"name": name, "state": row.state, "info": row.about}
    status = item.status
    why = why_text(item, now_s)
    if words and item.silent_s is None:
        rest = why.removeprefix(item.about).removeprefix(", ")
        why = ", ".join(part for part in (item.about, words, rest) if part)
    return {
        "name": name,
        "job": job_id_of(row),
        "profile": item.run.profile,
        "state": row.state,
        "size": short_size(item.run),
        "elapsed": clock_text(status.ran_s),
        "limit": clock_text(status.limit_s or item.run.walltime_s),
        "info": why,
    }


def job_id_of(row: TopRow) -> str:
    """Return the job id of a run or an element, ``-`` if there is none yet."""
    if row.element:
        return row.element.job_id or "-"
    return (row.run.run.job_id or "-") if row.run else ""
