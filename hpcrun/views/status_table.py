"""The status table, and its JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hpcrun.actions.hooks import about_run
from hpcrun.actions.status.decide_status import BEFORE_START
from hpcrun.actions.status.run_status import (
    NEVER,
    ElementStatus,
    RunStatus,
    StatusResult,
    element_row,
    number_failed,
)
from hpcrun.errors import UsageError, did_you_mean
from hpcrun.job.job_states import (
    CANCELLED,
    COMPLETED,
    FAILED,
    PENDING,
    RUNNING,
    SUBMITTING,
)
from hpcrun.job.text.arguments import (
    LONGEST,
    arguments_apart,
    arguments_of,
    command_of,
    short_arguments,
)
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.units import cut_at_word, format_age, format_span
from hpcrun.runs.elements import request_of
from hpcrun.runs.record import LastStatus, Run, known_fields
from hpcrun.runs.role_states import role_states
from hpcrun.views.end_json import waiting_json
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
    "note",
    "command",
    "by",
    "gpu_hours_at_most",
)
"""Fields of the JSON with a single value, and the columns of --csv.

Never rename or remove one; add new ones at the end.
"""
# A narrow terminal drops these columns in this order.
_DROPPED = ("size", "profile", "limit", "elapsed", "why", "job")

COLOURS = {
    COMPLETED: "green",
    RUNNING: "cyan",
    PENDING: "yellow",
    SUBMITTING: "yellow",
    "CONFIGURING": "yellow",
    "COMPLETING": "cyan",
}
_HEADINGS = {"why": "NODES (REASON)"}
_RIGHT = ("elapsed", "limit")
_FOLDED = ("why", "reason", "folder", "hosts", "command")
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
    names = [name.strip() for name in ",".join(given).split(",")]
    requested = tuple(dict.fromkeys(name for name in names if name))
    for name in requested:
        if name not in known:
            raise UsageError(
                f"--columns {name}: no such column",
                hint=did_you_mean(name, known, ", ".join(known)),
            )
    return requested


def status_table(
    result: StatusResult, now_s: float, width: int, columns: Sequence[str] = ()
) -> Table:
    """Return the table of runs, at most ``width`` wide if this is enough for its numbers.

    Long names are cut, since ``--json`` has them and users can type a part; reasons are wrapped,
    and long reasons are cut. A narrow terminal gets fewer columns.

    Args:
        result: the statuses of runs.
        now_s: the present time, in seconds since the epoch.
        width: the width of the terminal, in characters.
        columns: the requested columns; all of them are shown. Default: those of ``TABLE``.
    """
    from rich.text import Text

    requested = columns or TABLE
    headings = {name: _HEADINGS.get(name, name.upper()) for name in requested}
    rows = [_cells(item, now_s, requested) for item in result.runs]
    needed: dict[str, int] = {}
    for name, heading in headings.items():
        needed[name] = max(len(heading), *(len(row[name]) for row in rows))
    longest_name = needed.get("name", 0)
    least = {**needed, "name": min(longest_name, _NAME_LEAST), "why": _WHY_LEAST}
    names = columns or _fitting(least, width)
    name_room = _room_of("name", names, least, width)
    name_width = min(longest_name, max(_NAME_LEAST, name_room))
    if not columns:
        _shorten(rows, _room_of("why", names, {**needed, "name": name_width}, width))
    cells = []
    for item, row in zip(result.runs, rows, strict=True):
        styles = {"state": _colour(item.status)}
        cells.append([Text(row[name], style=styles.get(name, "")) for name in names])
    whole = {headings[name]: needed[name] for name in names if name not in _FOLDED}
    return text_table(
        [headings[name] for name in names],
        cells,
        right=[headings[name] for name in names if name in _RIGHT],
        whole=whole,
        widths={"NAME": name_width},
        least=whole,
    )


def _colour(status: LastStatus) -> str:
    """Return the colour of a state; empty for the terminal's own."""
    return COLOURS.get(status.state, "red" if status.final else "")


def _room_of(column: str, names: Sequence[str], widths: Mapping[str, int], width: int) -> int:
    """Return the width that the other columns leave to a column."""
    return width - sum(widths[name] + GAP for name in names if name != column)


def _fitting(least: Mapping[str, int], width: int) -> tuple[str, ...]:
    """Return the columns there is room for: for the sake of readable reasons, fewer others."""
    roomy = fitting({**least, "why": _WHY_ROOMY}, width, _DROPPED)
    if "why" in roomy:
        return roomy
    return fitting(least, width, _DROPPED)


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
    rows = []
    for item in result.runs:
        row = {**_cells(item, now_s, TABLE), **_run_json(item)}
        rows.append({**row, "command": HIDER.hide(row["command"])})
    return rows_csv(rows, columns or FIELDS)


def with_arguments(result: StatusResult, *, alone: bool) -> StatusResult:
    """Return the runs with the arguments that set them apart from others of the same program.

    Args:
        result: the statuses of runs.
        alone: a run without others has all of its arguments.
    """
    if alone and len(result.runs) == 1:
        arguments = arguments_of(result.runs[0].run.request)
        texts = [short_arguments(arguments, list(arguments), len(arguments))]
    else:
        texts = arguments_apart([item.run.request for item in result.runs])
    runs = [with_about(item, text) for item, text in zip(result.runs, texts, strict=True)]
    return replace(result, runs=tuple(runs))


def with_about(item: RunStatus, arguments: str) -> RunStatus:
    """Return a run with its arguments, unless its parameters or its program say what it is."""
    if not arguments or item.about or about_run(item)[0]:
        return item
    return replace(item, about=arguments)


def command_text(item: RunStatus) -> str:
    """Return the command of a run, or of its only named element, for a person."""
    return cut_at_word(one_line(HIDER.hide(_command(item))), LONGEST)


def _command(item: RunStatus) -> str:
    element = item.element
    if len(item.elements) == 1:
        element = item.elements[0].index
    return command_of(request_of(item.run, element))


def only_elements(result: StatusResult, chosen: Mapping[str, set[int] | None]) -> StatusResult:
    """Return the result with only the named elements of its sweeps, by run id.

    If the run itself was named, the result has all of its elements.
    """
    runs = [_with_only(item, chosen.get(item.run.run_id)) for item in result.runs]
    return replace(result, runs=tuple(runs))


def _with_only(item: RunStatus, indices: set[int] | None) -> RunStatus:
    """Return a run with only these of its elements; None stands for all."""
    if indices is None:
        return item
    elements = tuple(element for element in item.elements if element.index in indices)
    return replace(item, elements=elements)


def with_element_rows(result: StatusResult, of: Collection[str] | None = None) -> StatusResult:
    """Return the result with each sweep as its elements.

    An element is ``train/3``, job ``123_3``, with its parameters first.

    Args:
        result: the statuses of runs.
        of: the ids of the runs that become their elements. Default: all sweeps.
    """
    rows: list[RunStatus] = []
    for item in result.runs:
        is_chosen = of is None or item.run.run_id in of
        if is_chosen and item.elements:
            rows += [element_row(item, element) for element in item.elements]
        else:
            rows.append(item)
    return replace(result, runs=tuple(rows))


def _cells(item: RunStatus, now_s: float, names: Sequence[str]) -> dict[str, str]:
    run = item.run
    status = item.status
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
        for name in others:
            value = document[name]
            cells[name] = "-" if value is None else str(value)
        if "command" in others:
            cells["command"] = command_text(item)
    return {name: one_line(cells[name]) for name in names}


def why_text(item: RunStatus, now_s: float) -> str:
    """Return what is to be said of a run besides its state.

    That is its attempt, cause, silence, place in a chain and reason. An exception comes before its
    rank: there may be room for the beginning only.
    """
    status = item.status
    cause = _exception_first(status.cause or "")
    waits = wait_text(item)
    parts = [
        note_text(item),
        item.about or about_run(item)[0],
        _sweep_cause(item, cause),
        _attempt_text(item),
        _run_cause(item, cause),
    ]
    if item.silent_s is not None:
        parts.append(f"silent {format_span(item.silent_s)}")
    if waits or not status.final:
        parts.append(link_text(item.run) or "")
    parts.append(waits or "")
    parts.append(_reason_or_hosts(item, cause, waits))
    if item.stale:
        parts.append(_age_text(item, now_s))
    return ", ".join(part for part in parts if part)


def note_text(item: RunStatus) -> str:
    """Return the note of a run; empty without one, and for an element, as the note is the run's."""
    return "" if item.element is not None else item.run.note or ""


def _sweep_cause(item: RunStatus, cause: str) -> str:
    """Return how many elements of a sweep failed, and the cause; empty without either."""
    if not item.elements or not cause:
        return ""
    return f"{number_failed(item)} of {len(item.elements)} failed: {cause}"


def _run_cause(item: RunStatus, cause: str) -> str:
    """Return the cause of a failure, or else the exit status; empty for a sweep."""
    if item.elements:
        return ""
    if cause:
        return cause
    if _has_exit_status(item.status):
        return f"exit status {item.status.exit_status}"
    return ""


def _has_exit_status(status: LastStatus) -> bool:
    return status.state == FAILED and bool(status.exit_status)


def _attempt_text(item: RunStatus) -> str:
    """Return the number of the attempt; empty for a run that has one attempt only."""
    status = item.status
    requeue = item.run.plan.get("requeue") or {}
    times = requeue.get("times", 0) + requeue.get("restarts", 0)
    may_continue = times and not status.final
    if not status.attempt and not may_continue:
        return ""
    text = f"attempt {status.attempt + 1}"
    if status.attempt <= times:  # JobRequeue may requeue an imported script more often
        text += f"/{times + 1}"
    if status.before and not status.final:
        text += f" (before: {status.before})"
    return text


def _reason_or_hosts(item: RunStatus, cause: str, waits: str | None) -> str:
    """Return the scheduler's reason, or else the nodes of a run whose end needs no words."""
    status = item.status
    if waits and status.reason in (None, "Dependency", NEVER, BEFORE_START):
        return ""  # the dependency is shown instead
    reason = _reason_text(item)
    if reason:
        has_parts = item.elements or item.run.roles
        if has_parts and cause and status.final:
            return ""
        return reason
    if cause or _has_exit_status(status):
        return ""
    return status.hosts or ""


def _age_text(item: RunStatus, now_s: float) -> str:
    """Return the age of an old status."""
    age = format_age(now_s - item.status.asked_s)
    if item.status.missed_s is None:
        return f"as of {age}"
    return f"last seen {item.status.state.lower()} {age}"


def link_text(run: Run) -> str | None:
    """Return ``link 2/4``, None outside of a chain."""
    if run.chain:
        return f"link {run.chain['link']}/{run.chain['links']}"
    return None


def wait_text(item: RunStatus) -> str | None:
    """Return the runs on which a job depends, and their states; None if there are none."""
    waits = item.waits
    if item.run.chain:
        # a link depends on all links before it: show the nearest; if it never started, the one
        # that completed
        waits = waits[:1] if item.status.final else waits[-1:]
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
    if match is None:
        return cause
    place = match["rank"]
    if match["host"]:
        place += f", {match['host']}"
    return f"{match['what']} ({place})"


def never_starts_lines(item: RunStatus) -> list[str]:
    """Return the lines about a pending job that Slurm never starts as it is.

    The list is empty if there is nothing to tell.
    """
    never = item.never_starts
    if never is None:
        return []
    job_id = item.run.job_id or item.run.run_id
    reason = f"{never.short} ({item.status.reason})"
    return [
        f"hpcrun: job {job_id} is pending: {reason}. {never.advice}",
        f"hint: hpcrun cancel {job_id}",
    ]


def waiting_lines(item: RunStatus, now_s: float) -> list[str]:
    """Return what to tell of a job that has not started.

    That is its state, why it has not started, and when Slurm expects to start it.
    """
    never = never_starts_lines(item)
    if never:
        return never[:1]
    parts = [why_text(item, now_s)]
    if item.status.start_s:
        parts.append(start_text(item.status.start_s, now_s))
    why = ", ".join(part for part in parts if part)
    text = f"hpcrun: job {item.run.job_id or item.run.run_id} is {item.status.state}"
    if why:
        text += f": {why}"
    return [text]


def _reason_text(item: RunStatus) -> str | None:
    """Return Slurm's reason if it is useful, with plain words for a pending job."""
    status = item.status
    reason = status.reason
    if reason is None or reason == "NonZeroExitCode":
        return None
    if status.cause and status.cause.startswith(f"{reason}:"):
        return None  # the cause is shown instead
    known = item.known_reason
    if known is None:
        return reason
    if status.state == CANCELLED:
        return None  # Slurm still shows why the job was pending before
    if status.state != PENDING:
        return reason
    text = f"{known.short} ({reason})"
    return f"never starts: {text}" if known.is_final else text


def status_json(
    result: StatusResult, more: Callable[[RunStatus], Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Return the statuses as a JSON document.

    The document also says that the scheduler is away.

    Args:
        result: the statuses of runs.
        more: returns additional fields of a run.
    """
    runs = []
    for item in result.runs:
        fields = {**_run_json(item), **_roles_json(item)}
        if more:
            fields.update(more(item))
        runs.append(fields)
    away = result.away
    document: dict[str, Any] = {
        "kind": "status",
        "runs": runs,
        "away": away.message if away else None,
        "damaged": list(result.damaged),
    }
    if away:
        document["error"] = fields_of(away, "message hint exit_code")
    return document


def _unknown_sizes(run: Run) -> dict[str, None]:
    """Return the sizes that only a batch script decides: unknown is not 0."""
    if not run.plan.get("batch"):
        return {}
    return {name: None for name in ("gpus_per_node", "world_size") if not getattr(run, name)}


def _run_json(item: RunStatus) -> dict[str, Any]:
    of_run = (
        "run_id name scheduler cluster host created_s job_id profile nodes gpus_per_node "
        "world_size walltime_s note gpu_hours_at_most"
    )
    document = {
        **fields_of(item.run, of_run),
        **_unknown_sizes(item.run),
        "folder": str(item.folder),
        "command": _command(item),
        "by": item.run.submitted_by,
        **fields_of(item, "stale lost"),
        "silent_s": None if item.silent_s is None else int(item.silent_s),
        **known_fields(item.status),
        **lineage_json(item),
        **waiting_json(item),
    }
    if item.elements:
        document["elements"] = [_element_json(element) for element in item.elements]
    return document


def _roles_json(item: RunStatus) -> dict[str, Any]:
    """Return what the roles of a run do; none without roles.

    For a sweep, the roles are those of its only named element.
    """
    if len(item.elements) > 1:
        return {"roles": []}
    element = item.element or 0
    if item.elements:
        element = item.elements[0].index
    roles = []
    for state in role_states(item.run, item.folder, element):
        role = fields_of(state.role, "name first_rank ranks")
        roles.append({**role, **fields_of(state, "state since_s exit_status nodes")})
    return {"roles": roles}


def _element_json(element: ElementStatus) -> dict[str, Any]:
    return {
        "element": element.index,
        "job_id": element.job_id,
        "parameters": dict(element.parameters),
        **known_fields(element.status),
    }
