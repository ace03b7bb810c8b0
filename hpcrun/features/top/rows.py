"""The rows of the table of ``hpcrun top``: filtered, sorted, grouped.

Pure functions of what is known of the runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpcrun.actions.status.run_filter import (
    element_text,
    filter_words,
    has_words,
    run_text,
)
from hpcrun.actions.status.run_status import ElementStatus, RunStatus, element_row
from hpcrun.job import job_states as state
from hpcrun.job.run_paths import run_name
from hpcrun.job.text.arguments import arguments_apart
from hpcrun.runs.record import LastStatus
from hpcrun.views.status_table import note_text, why_text, with_about
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
_COLUMNS = ("name", "job", "profile", "state", "size", "elapsed", "limit")
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
        text: what a filter searches.
    """

    key: str  # run id, ``run id/3`` of an element, or the group's name behind a colon
    name: str
    state: str
    # what is known of the run; None of a group, and of a run that cannot be read
    run: RunStatus | None = None
    element: ElementStatus | None = None
    children: Sequence[TopRow] = ()  # elements of a sweep, runs of a group
    # the INFO of a row without a run; of a run, the arguments that set it apart from other runs
    about: str = ""
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
        if row is None or row.run is not item:
            row = _run_row(item)
        rows.append(row)
    requests = [row.run.run.request if row.run else {} for row in rows]
    for row, arguments in zip(rows, arguments_apart(requests), strict=True):
        row.about = arguments
    for run_id, problem in damaged.items():
        text = f"{run_id} {problem} damaged".lower()
        rows.append(TopRow(run_id, run_id, DAMAGED, about=problem, text=text))
    return tuple(rows)


def _run_row(item: RunStatus) -> TopRow:
    return TopRow(
        item.run.run_id,
        visible(item.run.name),
        state.UNKNOWN if item.lost else item.status.state,
        item,
        children=[_element_row(item, element) for element in item.elements],
        text=run_text(item),
    )


def _element_row(item: RunStatus, element: ElementStatus) -> TopRow:
    return TopRow(
        f"{item.run.run_id}/{element.index}",
        visible(f"{item.run.name}/{element.index}"),
        element.status.state,
        item,
        element,
        text=element_text(item, element),
    )


def matches(row: TopRow, words: Sequence[str]) -> bool:
    """Whether a row has all words, and none of those that begin with ``!``."""
    return has_words(row.text, words)


def _state(row: TopRow) -> tuple[int, str]:
    if row.state in _STATE_ORDER:
        return _STATE_ORDER.index(row.state), row.state
    return len(_STATE_ORDER), row.state


def _age(row: TopRow) -> float:
    return -row.run.run.created_s if row.run else 0.0


def _job_number(row: TopRow) -> int:
    job_id = row.run.run.job_id if row.run else None
    digits = "".join(filter(str.isdigit, job_id or ""))
    return int(digits or 0)


def _elapsed_s(row: TopRow) -> int:
    if row.status is None:
        return 0
    return row.status.ran_s or 0


SORTS: Mapping[str, tuple[Callable[[TopRow], Any], str]] = {
    "age": (_age, "newest first"),
    "name": (lambda row: row.name, "by name"),
    "state": (_state, "by state, running first"),
    "job": (lambda row: -_job_number(row), "by job id, highest first"),
    "elapsed": (lambda row: -_elapsed_s(row), "by elapsed time, longest first"),
}
"""How rows can be sorted: what they are compared by, and how this is said."""


def arranged(
    rows: Iterable[TopRow], how: Arrangement, studies: Mapping[str, str] | None = None
) -> list[ShownRow]:
    """Return the rows as they are shown; ``studies`` has the study of each run in one."""
    kept, matching = _filtered(rows, filter_words(how.words))
    order = SORTS[how.sort][0]
    kept.sort(key=order, reverse=how.reverse)

    def children_of(row: TopRow) -> Sequence[TopRow]:
        if row.key in matching:
            children: Sequence[TopRow] = matching[row.key]
        elif row.key in how.opened:
            children = row.children
        else:
            return ()
        if row.is_group:
            return children  # sorted before they were grouped
        if how.sort in ("state", "elapsed"):
            return sorted(children, key=order, reverse=how.reverse)
        return children[::-1] if how.reverse else children

    shown: list[ShownRow] = []

    def show(row: TopRow, depth: int) -> None:
        shown.append((row, depth))
        for child in children_of(row):
            show(child, depth + 1)

    for row in _grouped(kept, how.group, studies or {}):
        show(row, 0)
    return shown


def _filtered(
    rows: Iterable[TopRow], words: Sequence[str]
) -> tuple[list[TopRow], dict[str, list[TopRow]]]:
    """Return the rows that match, or have children that match.

    The second result has the key of each sweep of which the filter shows only some elements, and
    these elements. They are shown whether or not the sweep is open.
    """
    if not words:
        return list(rows), {}
    kept = []
    matching = {}
    for row in rows:
        inner = [child for child in row.children if matches(child, words)]
        if matches(row, words) or inner:
            kept.append(row)
        if 0 < len(inner) < len(row.children):
            matching[row.key] = inner
    return kept, matching


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
        if row.element:
            continue
        for run_row in row.runs():
            some = elements.get(run_row.key, [])
            if 0 < len(some) < len(run_row.children):
                keys.update(some)
            else:
                keys.add(run_row.key)
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
    name_of = names[group]
    members: dict[str | None, list[TopRow]] = {}
    for row in rows:
        members.setdefault(name_of(row), []).append(row)
    result = []
    seen = set()
    for row in rows:
        name = name_of(row)
        if name is None or (group == "name" and len(members[name]) == 1):
            result.append(row)
        elif name not in seen:
            seen.add(name)
            title = f"study {visible(run_name(name))}" if group == "study" else name
            children = members[name]
            numbers = Counter(child.state for child in children).most_common()
            states = [f"{number} {_state_words(each)}" for each, number in numbers]
            about = f"{count(len(children), 'run')}: {', '.join(states)}"
            result.append(TopRow(f":{group}:{name}", title, "", children=children, about=about))
    return result


def _state_words(name: str) -> str:
    return name.lower().replace("_", " ")


def states_text(states: Sequence[str], order: str) -> str:
    """Return the states in words, such as ``12 runs, newest first: 2 running, 1 timed out``.

    The states that ask for attention come first.
    """
    text = f"{count(len(states), 'run')}, {order}"
    if not states:
        return text
    numbers = Counter(states).most_common()
    numbers.sort(key=lambda pair: pair[0] not in _COUNTED_FIRST)
    counted = []
    for name, number in numbers:
        counted.append(f"{number} {_COUNTED_AS.get(name, _state_words(name))}")
    return f"{text}: {', '.join(counted)}"


# --- what is in the cells ------------------------------------------------------------------------


def column_widths(shown: Sequence[ShownRow], width: int) -> dict[str, int]:
    """Return the columns that a terminal has room for, each with its width."""
    needed = _needed_widths(shown)
    widths = fitted({**needed, "info": _INFO_LEAST}, width, _DROPPED)
    if "job" in widths:
        return widths
    # job ids are worth more than whole names and the ends of what INFO says
    kept = {name: wide for name, wide in needed.items() if name not in _DROPPED[:3]}
    short = {**kept, "name": min(_NAME_SHORT, kept["name"]), "info": _INFO_SHORT}
    widths = fitted(short, width, _DROPPED)
    more = max(0, min(widths["info"] - _INFO_SHORT, needed["name"] - widths["name"]))
    widths["name"] += more
    widths["info"] -= more
    return widths


def _needed_widths(shown: Sequence[ShownRow]) -> dict[str, int]:
    """Return the width that each column needs for its heading and its cells."""
    needed = {name: len(name) for name in _COLUMNS}

    def widen(column: str, text: str) -> None:
        needed[column] = max(needed[column], len(text))

    longest_s = 0
    limit_s = 0
    for row, depth in shown:
        widen("name", f"{'  ' * depth}  {row.name}")
        widen("job", job_id_of(row))
        widen("state", row.state)
        if row.run:
            widen("profile", row.run.run.profile)
            widen("size", short_size(row.run.run))
        if row.status:
            longest_s = max(longest_s, row.status.ran_s or 0)
            limit_s = max(limit_s, row.status.limit_s or 0)
    widen("elapsed", clock_text(longest_s))
    widen("limit", clock_text(limit_s))
    needed["name"] = min(_NAME_MOST, needed["name"])
    return needed


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
    taken = sum(wide + GAP for wide in widths.values())
    widths[last] = max(0, width - 1 - taken)
    return widths


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
    item = with_about(item, row.about)
    status = item.status
    why = why_text(item, now_s)
    if words and item.silent_s is None:
        first = ", ".join(part for part in (note_text(item), item.about) if part)
        rest = why.removeprefix(first).removeprefix(", ")
        why = ", ".join(part for part in (first, words, rest) if part)
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
    if row.run:
        return row.run.run.job_id or "-"
    return ""
