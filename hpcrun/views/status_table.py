"""The status table, and its JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun.actions.hooks import about_run
from hpcrun.actions.status.resolve import BEFORE_START
from hpcrun.actions.status.run_status import (
    NEVER,
    ElementStatus,
    RunStatus,
    StatusResult,
    element_row,
    number_failed,
)
from hpcrun.errors import UsageError, did_you_mean
from hpcrun.job import job_states as state
from hpcrun.job.job_states import explain_reason
from hpcrun.job.text.units import format_age, format_span
from hpcrun.runs.record import LastStatus, Run, known_fields
from hpcrun.runs.role_states import RoleState, role_states
from hpcrun.views.text import (
    GAP,
    clock_text,
    count,
    fields_of,
    fitting,
    one_line,
    rows_csv,
    short_size,
    start_text,
    text_table,
)

if TYPE_CHECKING:
    from rich.table import Table

TABLE = ("name", "job", "profile", "state", "size", "elapsed", "limit", "why")
"""The columns of the table by default; also names for --columns."""
FIELDS = (
    "run_id",
    "name",
    "job_id",
    "state",
    "final",
    "reason",
    "exit_status",
    "signal",
    "attempt",
    "elapsed_s",
    "limit_s",
    "hosts",
    "scheduler",
    "cluster",
    "host",
    "profile",
    "nodes",
    "gpus_per_node",
    "world_size",
    "walltime_s",
    "created_s",
    "asked_s",
    "stale",
    "folder",
    "total_elapsed_s",
)
"""Fields of the JSON with a single value, and the columns of --csv: never rename or remove one; add
at the end.
"""
# A narrow terminal drops these columns in this order.
_DROPPED = ("size", "profile", "limit", "elapsed", "why", "job")

COLOURS = {
    state.COMPLETED: "green",
    state.RUNNING: "cyan",
    state.PENDING: "yellow",
    state.SUBMITTING: "yellow",
    "CONFIGURING": "yellow",
    "COMPLETING": "cyan",
}
_HEADINGS = {"why": "NODES (REASON)"}
_RIGHT = ("elapsed", "limit")
_FOLDED = ("why", "reason", "folder", "hosts")
_NAME_LEAST = 8
_WHY_LEAST = 18
_WHY_ROOMY = 28
_RANK_FIRST = re.compile(
    r"(?s)(?P<rank>(\S+ )?rank \d+|\S+(?= on ))( on (?P<host>\S+))? failed( first)?: (?P<what>.+)"
)
_WHY_MOST_LINES = 3
"""A longer reason is shown completely by ``hpcrun explain``, and in ``--json``."""


def check_columns(given: Sequence[str]) -> tuple[str, ...]:
    """Return the requested columns, each once; empty if none are requested.

    Raises:
        UsageError: there is no such column.
    """
    known = (*TABLE, *(name for name in FIELDS if name not in TABLE))
    wanted = tuple(
        dict.fromkeys(
            column.strip() for item in given for column in item.split(",") if column.strip()
        )
    )
    for column in wanted:
        if column not in known:
            raise UsageError(
                f"--columns {column}: no such column",
                hint=did_you_mean(column, known, ", ".join(known)),
            )
    return wanted


def status_table(
    result: StatusResult, now_s: float, width: int, columns: Sequence[str] = ()
) -> Table:
    """Return the table of runs, at most ``width`` wide if this is enough for its numbers.

    ``width`` is in characters. Long names are cut, since ``--json`` has them and users can type a
    part; reasons are wrapped, and long reasons are cut. A narrow terminal gets fewer columns.
    """
    from rich.text import Text

    rows = [_cells(item, now_s, columns or TABLE) for item in result.runs]
    headings = {name: _HEADINGS.get(name, name.upper()) for name in columns or TABLE}
    needed = {
        name: max(len(heading), *(len(row[name]) for row in rows))
        for name, heading in headings.items()
    }
    least = {**needed, "name": min(needed.get("name", 0), _NAME_LEAST), "why": _WHY_LEAST}
    names = columns or _fitting(least, width)
    spare = width - sum(least[name] + GAP for name in names if name != "name")
    widths = {**needed, "name": min(needed.get("name", 0), max(_NAME_LEAST, spare))}
    if not columns:
        _shorten(rows, width - sum(widths[name] + GAP for name in names if name != "why"))
    whole = {headings[name]: needed[name] for name in names if name not in _FOLDED}
    colours = (
        COLOURS.get(item.status.state, "red" if item.status.final else "") for item in result.runs
    )
    cells = (
        [Text(row[name], style=colour if name == "state" else "") for name in names]
        for row, colour in zip(rows, colours, strict=True)
    )
    right = [headings[name] for name in names if name in _RIGHT]
    shown = [headings[name] for name in names]
    return text_table(
        shown, cells, right=right, whole=whole, widths={"NAME": widths["name"]}, least=whole
    )


def _fitting(least: Mapping[str, int], width: int) -> tuple[str, ...]:
    """Return the columns there is room for: for the sake of readable reasons, fewer others."""
    roomy = fitting(
        {name: _WHY_ROOMY if name == "why" else least[name] for name in TABLE}, width, _DROPPED
    )
    if "why" in roomy:
        return roomy
    return fitting({name: least[name] for name in TABLE}, width, _DROPPED)


def _shorten(rows: Sequence[dict[str, str]], room: int) -> None:
    """Cut every reason to a few lines of ``room`` characters."""
    for row in rows:
        lines = textwrap.wrap(
            row["why"],
            max(room, 1),
            max_lines=_WHY_MOST_LINES,
            placeholder=" …",
            break_on_hyphens=False,
        )
        row["why"] = "\n".join(lines)


def lost_line(number: int) -> str:
    """Return the line for lost runs: their number, and the command that lists them."""
    runs = count(number, "run")
    return (
        f"{runs} without a heartbeat for over a day, state unknown: hpcrun status --state unknown"
    )


def status_csv(result: StatusResult, now_s: float, columns: Sequence[str] = ()) -> str:
    """Return the statuses as CSV: the JSON's plain fields, or the columns that were named."""
    rows = [{**_cells(item, now_s, TABLE), **_run_json(item)} for item in result.runs]
    return rows_csv(rows, columns or FIELDS)


def only_elements(result: StatusResult, chosen: Mapping[str, set[int] | None]) -> StatusResult:
    """Return the result with only the named elements of its sweeps, by run id.

    If the run itself was named, the result has all of its elements.
    """

    def kept(item: RunStatus) -> RunStatus:
        indices = chosen.get(item.run.run_id)
        if indices is None:
            return item
        return replace(
            item, elements=tuple(element for element in item.elements if element.index in indices)
        )

    return replace(result, runs=tuple(map(kept, result.runs)))


def with_element_rows(result: StatusResult, of: Collection[str] | None = None) -> StatusResult:
    """Return the result with each sweep as its elements.

    An element is ``train/3``, job ``123_3``, with its parameters first.

    Args:
        result: the statuses of runs.
        of: the ids of the runs that become their elements. Default: all sweeps.
    """
    rows: list[RunStatus] = []
    for item in result.runs:
        elements = item.elements if of is None or item.run.run_id in of else ()
        rows += [element_row(item, element) for element in elements] or [item]
    return replace(result, runs=tuple(rows))


def _cells(item: RunStatus, now_s: float, names: Sequence[str]) -> dict[str, str]:
    run, status = item.run, item.status
    cells = {
        "name": run.name,
        "job": run.job_id or "-",
        "profile": run.profile,
        "state": status.state,
        "size": short_size(run),
        "elapsed": clock_text(status.ran_s),
        "limit": clock_text(status.limit_s or run.walltime_s),
        "why": why_text(item, now_s),
    }
    others = [name for name in names if name not in cells]
    if others:
        document = _run_json(item)
        cells |= {name: "-" if document[name] is None else str(document[name]) for name in others}
    return {name: one_line(cells[name]) for name in names}


def why_text(item: RunStatus, now_s: float) -> str:
    """Return what is to be said of a run besides its state.

    That is its attempt, cause, silence, place in a chain and reason. An exception comes before its
    rank: there may be room for the beginning only.
    """
    status = item.status
    cause = _exception_first(status.cause or "")
    about = item.about or about_run(item)[0]
    parts = [about] if about else []
    if item.elements and cause:  # first: the cell may be cut off
        parts.append(f"{number_failed(item)} of {len(item.elements)} failed: {cause}")
    requeue = item.run.plan.get("requeue") or {}
    times = requeue.get("times", 0) + requeue.get("restarts", 0)
    if status.attempt or (times and not status.final):
        if status.before and not status.final:
            before = f" (before: {status.before})"
        else:
            before = ""
        # JobRequeue may requeue an imported script
        total = f"/{times + 1}" if status.attempt <= times else ""
        parts.append(f"attempt {status.attempt + 1}{total}{before}")
    if status.state == state.FAILED and status.exit_status and not item.elements and not cause:
        parts.append(f"exit status {status.exit_status}")
    if cause and not item.elements:
        parts.append(cause)
    if item.silent_s is not None:
        parts.append(f"silent {format_span(item.silent_s)}")
    place = link_text(item.run)
    waits = wait_text(item)
    parts += [text for text in (None if status.final and not waits else place, waits) if text]
    if waits and status.reason in (None, "Dependency", NEVER, BEFORE_START):
        pass  # the dependency is shown instead
    elif reason := _reason_text(status):
        parts += [] if (item.elements or item.run.roles) and cause and status.final else [reason]
    elif status.hosts and not cause and not (status.state == state.FAILED and status.exit_status):
        parts.append(status.hosts)
    if item.stale:
        age = format_age(now_s - status.asked_s)
        parts.append(
            f"as of {age}" if status.missed_s is None else f"last seen {status.state.lower()} {age}"
        )
    return ", ".join(parts)


def link_text(run: Run) -> str | None:
    """Return ``link 2/4``, None outside of a chain."""
    if run.chain:
        return f"link {run.chain['link']}/{run.chain['links']}"
    return None


def wait_text(item: RunStatus) -> str | None:
    """Return the runs on which a job depends, and their states; None if there are none."""
    # a link depends on all links before it: show the nearest; if it never started, the one that
    # completed
    if item.run.chain:
        waits = item.waits[:1] if item.status.final else item.waits[-1:]
    else:
        waits = item.waits
    if not waits:
        return None
    states = ", ".join(f"{wait.name} ({wait.job_id}): {wait.state}" for wait in waits)
    if item.status.final:
        return f"never started, after {states}"
    return f"after {states}"


def lineage_json(item: RunStatus) -> dict[str, Any]:
    """Return the relations of a run to other runs, for its JSON."""
    run = item.run
    states = {wait.run_id: wait.state for wait in item.waits}
    return {
        "after": [{**wait, "state": states.get(wait["run_id"])} for wait in run.after],
        **fields_of(run, "chain resubmitted_from checkpoints_of code_of code"),
    }


def _exception_first(cause: str) -> str:
    """Return ``KeyError: 'x' (rank 0, node1)`` for a cause that names a rank first.

    Such a cause is ``rank 0 on node1 failed first: KeyError: 'x'``.
    """
    match = _RANK_FIRST.fullmatch(cause)
    if match:
        return f"{match['what']} ({', '.join(filter(None, match.group('rank', 'host')))})"
    return cause


def never_starts_lines(item: RunStatus) -> list[str]:
    """Return the lines about a pending job that Slurm never starts as it is.

    The list is empty if there is nothing to tell.
    """
    status, job_id = item.status, item.run.job_id or item.run.run_id
    never = item.never_starts
    if never is None:
        return []
    return [
        f"hpcrun: job {job_id} is pending: {never.short} ({status.reason}). {never.advice}",
        f"hint: hpcrun cancel {job_id}",
    ]


def waiting_lines(item: RunStatus, now_s: float) -> list[str]:
    """Return what to tell of a job that has not started.

    That is its state, why it has not started, and when Slurm expects to start it.
    """
    status, job_id = item.status, item.run.job_id or item.run.run_id
    start = start_text(status.start_s, now_s) if status.start_s else ""
    why = ", ".join(filter(None, (why_text(item, now_s), start)))
    return never_starts_lines(item)[:1] or [
        f"hpcrun: job {job_id} is {status.state}" + (f": {why}" if why else "")
    ]


def _reason_text(status: LastStatus) -> str | None:
    """Return Slurm's reason if it is useful, with plain words for a pending job."""
    if status.reason in (None, "NonZeroExitCode") or (status.cause or "").startswith(
        f"{status.reason}:"
    ):
        return None
    known = explain_reason(status.reason)
    if status.state == state.CANCELLED and known:
        return None  # Slurm still shows why the job was pending before
    if known is None or status.state != state.PENDING:
        return status.reason
    return f"{'never starts: ' if known.is_final else ''}{known.short} ({status.reason})"


def status_json(
    result: StatusResult, more: Callable[[RunStatus], Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the statuses as a JSON document, with ``more`` fields of each run.

    The document also says that the scheduler is away.
    """
    away = result.away
    if away:
        failure = {"message": away.message, "hint": away.hint, "exit_code": away.exit_code}
    else:
        failure = None
    return {
        "kind": "status",
        "runs": [
            {**_run_json(item), **_roles_json(item), **(more(item) if more else {})}
            for item in result.runs
        ],
        "away": away.message if away else None,
        "damaged": list(result.damaged),
        **({"error": failure} if failure else {}),
    }


def _run_json(item: RunStatus) -> dict[str, Any]:
    kept = (
        "run_id name scheduler cluster host created_s job_id profile nodes gpus_per_node "
        "world_size walltime_s"
    )
    return {
        **fields_of(item.run, kept),
        "folder": str(item.folder),
        **fields_of(item, "stale lost"),
        "silent_s": None if item.silent_s is None else int(item.silent_s),
        **known_fields(item.status),
        **lineage_json(item),
        **(
            {"elements": [_element_json(element) for element in item.elements]}
            if item.elements
            else {}
        ),
    }


def _roles_json(item: RunStatus) -> dict[str, Any]:
    """Return what the roles of a run do; none without roles.

    For a sweep, the roles are those of its only named element.
    """
    if item.elements:
        element = item.elements[0].index
    else:
        element = item.element or 0
    roles: Iterable[RoleState] = ()
    if len(item.elements) < 2:
        roles = role_states(item.run, item.folder, element)
    names = "state since_s exit_status nodes"
    return {
        "roles": [
            {**fields_of(each.role, "name first_rank ranks"), **fields_of(each, names)}
            for each in roles
        ]
    }


def _element_json(element: ElementStatus) -> dict[str, Any]:
    front = {
        "element": element.index,
        "job_id": element.job_id,
        "parameters": dict(element.parameters),
    }
    return {**front, **known_fields(element.status)}
