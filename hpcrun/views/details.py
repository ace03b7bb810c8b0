"""status --verbose: a run's folder, its code, and its relations to other runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.job.secret_files import left_out_text
from hpcrun.job.units import format_size
from hpcrun.runs.lineage import checkpoints_folder, load_imports
from hpcrun.views.text import count, labelled, one_line

if TYPE_CHECKING:  # submit says what it copied, and needs no status and no attempts
    from hpcrun.actions.status.status import RunStatus

_SHOWN = 8
_INDENT, _ROOM_LEAST = 15, 20


def detail_lines(item: RunStatus, width: int, more: Sequence[tuple[str, str]] = ()) -> list[str]:
    """Return the details for which the table has no room, wrapped between words at ``width`` characters.

    Args:
        more: label and text of further lines, which come first.
    """
    from hpcrun.runs.attempt import last_attempt
    from hpcrun.runs.trackers import tracker_runs
    from hpcrun.views.trackers import tracker_rows

    run = item.run
    attempt = last_attempt(item.folder, item.element or 0)
    rows = [
        *more,
        ("folder", str(item.folder)),
        *((f"after {said['condition']}", said["run_id"]) for said in run.after),
        *([("again", f"of {run.resubmitted_from}")] if run.resubmitted_from else []),
        *([("checkpoints", str(_real(checkpoints_folder(item.folder))))] if run.checkpoints_of else []),
        *([("code", code_text(run.code))] if run.code else []),
        *([("code", f"the snapshot of {run.code_of}")] if run.code_of else []),
        *(tracker_rows(tracker_runs(run, item.folder, item.element or 0, most_attempts=1)) if attempt else []),
        *(_ran(load_imports(attempt.folder)) if attempt else []),
        *(_messages(item) if run.plan.get("notify") else []),
    ]
    name = run.run_id if item.element is None else f"{run.run_id}/{item.element}"
    width = max(width, _INDENT + _ROOM_LEAST)
    return [name, *(line for label, text in rows for line in labelled(f"  {label}", one_line(text), _INDENT, width))]


def code_text(code: dict[str, Any]) -> str:
    """Return the copied code in words: its size, its source, its commit."""
    size = f"{count(code['files'], 'file')}, {format_size(code['bytes'])} of {code['root']}"
    commit = f", commit {code['commit'][:12]}" if code["commit"] else ""
    less = f", without {left_out_text(code['left_out'])}" if code.get("left_out") else ""
    return f"{size}{commit}" + (f" and {code['changes']}" if code["changes"] else "") + less


def _ran(noted: dict[str, Any]) -> list[tuple[str, str]]:
    imports = noted.get("imports") or {}
    rows = [("script", str(noted["script"]))] if noted.get("script") else []
    # imports from elsewhere come first, since users look for them
    inside = f"{noted.get('folder')}/"
    order = sorted(imports.items(), key=lambda pair: (str(pair[1]).startswith(inside), pair[0]))
    rows += [("import", f"{name} from {path}") for name, path in order[:_SHOWN]]
    return rows + ([("import", f"and {len(order) - _SHOWN} more")] if len(order) > _SHOWN else [])


def _messages(item: RunStatus) -> list[tuple[str, str]]:
    import time

    from hpcrun.runs.messages import deliveries
    from hpcrun.views.messages import delivery_rows

    return delivery_rows(deliveries(item.folder, time.time()))


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):
        return path
