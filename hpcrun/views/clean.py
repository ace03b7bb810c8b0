"""The runs that clean would remove, as a table and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.actions.runs.clean import Candidate, CleanLeftover, CleanPlan
from hpcrun.job.units import format_age
from hpcrun.views.text import count, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table


def clean_table(plan: CleanPlan, now_s: float) -> Table:
    """Return the runs that would go, oldest first."""
    rows = (
        (
            candidate.item.run.run_id,
            candidate.item.status.state,
            format_age(now_s - candidate.ended_s),
            bytes_text(candidate.size.total),
            bytes_text(candidate.size.checkpoints) if candidate.size.checkpoints else "-",
        )
        for candidate in plan.going
    )
    headings = ("RUN", "STATE", "ENDED", "SIZE", "CHECKPOINTS")
    return text_table(headings, rows, right=headings[3:], whole=headings[1:])


def clean_summary(plan: CleanPlan) -> str:
    """Return what would be removed, in one line."""
    parts = [count(len(plan.going), "run")] if plan.going else []
    if plan.going_leftovers:
        parts.append(count(len(plan.going_leftovers), "leftover folder"))
    text = f"{' and '.join(parts)}, {bytes_text(plan.total)}"
    return f"{text}, of which {bytes_text(plan.checkpoints)} are checkpoints" if plan.checkpoints else text


def leftover_lines(plan: CleanPlan, now_s: float) -> list[str]:
    """Return the other folders that would be removed: the rest of runs whose process was killed."""
    return [
        f"leftover   {one_line(str(item.leftover.path))}: interrupted while hpcrun created or removed it, "
        f"{format_age(now_s - item.leftover.changed_s)}, {bytes_text(item.total)}"
        for item in plan.going_leftovers
    ]


def staying_lines(plan: CleanPlan) -> list[str]:
    """Return the requested runs that stay, with the reasons; runs with checkpoints in one line."""
    with_checkpoints = [candidate for candidate in plan.staying if candidate.kept == "it has checkpoints"]
    others = [candidate for candidate in plan.staying if candidate not in with_checkpoints]
    lines = [f"kept       {one_line(candidate.item.run.run_id)}: {candidate.kept}" for candidate in others]
    if with_checkpoints:
        held = bytes_text(sum(candidate.size.checkpoints for candidate in with_checkpoints))
        which = count(len(with_checkpoints), "run")
        lines.append(f"kept       {which} with checkpoints ({held}): add --checkpoints to remove them")
    kept = [item.leftover for item in plan.leftovers if item.leftover.kept is not None]
    return lines + [f"kept       {one_line(str(each.path))}: {each.kept}; check it by hand" for each in kept]


def clean_json(plan: CleanPlan, *, removed: bool) -> dict[str, Any]:
    """Return a plan as a JSON document; ``removed``: whether it was carried out."""
    return {
        "kind": "clean",
        "removed": removed,
        "bytes": plan.total,
        "checkpoint_bytes": plan.checkpoints,
        "runs": [_candidate_json(candidate) for candidate in plan.going],
        "kept": [{**_candidate_json(candidate), "why": candidate.kept} for candidate in plan.staying],
        "leftovers": [_leftover_json(item) for item in plan.going_leftovers],
        "kept_leftovers": [
            {**_leftover_json(item), "why": item.leftover.kept}
            for item in plan.leftovers
            if item.leftover.kept is not None
        ],
    }


def _leftover_json(item: CleanLeftover) -> dict[str, Any]:
    leftover = item.leftover
    return {
        "run_id": leftover.run_id,
        "folder": str(leftover.path),
        "changed_s": leftover.changed_s,
        "bytes": item.total,
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "run_id": candidate.item.run.run_id,
        "state": candidate.item.status.state,
        "folder": str(candidate.item.folder),
        "ended_s": candidate.ended_s,
        "bytes": candidate.size.total,
        "checkpoint_bytes": candidate.size.checkpoints,
    }


def bytes_text(number: int) -> str:
    """Return a size in the largest unit that fits, like du -h."""
    size = float(number)
    for unit in ("B", "K", "M", "G"):
        if size < 1000:
            return f"{size:.0f}{unit}" if unit == "B" or size >= 10 else f"{size:.1f}{unit}"
        size /= 1024
    return f"{size:.1f}T"
