"""Where a job could start: the table of offers, what does not fit, and the command for the best."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hpcrun.features.where.where import Offer, WhereResult
from hpcrun.job.plan import Plan
from hpcrun.job.request import option_groups
from hpcrun.views.text import GAP, count, fitting, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

_FOLDED = {"PROFILE": 16, "NODES": 10}
"""Columns that may be wrapped, and the least length for it."""
_DROPPED = ("PARTITION", "NODES")
_NOW_S = 60
"""A start within this time is now: the controller checks its queue about every half minute."""


def offers_table(result: WhereResult, width: int) -> Table:
    """Return the offers, the first start first; a terminal of few columns gets fewer of the table's."""
    rows = [_cells(offer, result.asked_s) for offer in result.offers]
    widths = _widths(rows, width)
    cells = ([row[heading] for heading in widths] for row in rows)
    return text_table(widths, cells, right=("GPU-HOURS",), widths=widths)


def _widths(rows: Sequence[Mapping[str, str]], width: int) -> dict[str, int]:
    """Return the columns that fit, with their widths; the remaining width goes to the columns that would be wrapped."""
    full = {heading: max(len(heading), *(len(row[heading]) for row in rows)) for heading in rows[0]}
    least = {heading: min(room, _FOLDED.get(heading, room)) for heading, room in full.items()}
    widths = {heading: least[heading] for heading in fitting(least, width, _DROPPED)}
    spare = width - sum(room + GAP for room in widths.values()) + GAP
    for heading in widths:
        more = max(0, min(full[heading] - widths[heading], spare))
        widths[heading] += more
        spare -= more
    return widths


def _cells(offer: Offer, asked_s: float) -> dict[str, str]:
    """Return an offer by heading."""
    displaced = len(offer.start.preempts)
    cells = {
        "PROFILE": who(offer.candidate.profile, offer.candidate.gpu_type),
        "SHAPE": shape_text(offer.candidate.plan),
        "START": start_text(offer.start.start_s, asked_s),
        "NODES": offer.start.nodes + (f" (displaces {count(displaced, 'job')})" if displaced else ""),
        "PARTITION": offer.start.partition or "-",
        "GPU-HOURS": _hours(offer),
    }
    return {heading: one_line(cell) for heading, cell in cells.items()}


def who(profile: str, gpu_type: str | None) -> str:
    """Return a profile's name, with the GPU type if it has several."""
    return f"{profile} {gpu_type}" if gpu_type else profile


def shape_text(plan: Plan) -> str:
    """Return ``2 × 4 a100``, or ``1 × 64 CPUs``."""
    shape = plan.shape
    if not shape.gpus_per_node:
        cpus = "default CPUs" if plan.cpus_per_node is None else count(plan.cpus_per_node, "CPU")
        return f"{shape.nodes} × {cpus}"
    return f"{shape.nodes} × {shape.gpus_per_node} {shape.gpu_type or 'GPU'}"


def start_text(start_s: float, now_s: float) -> str:
    """Return ``now``, or the time until the start and the time of day, with the date if it is another day."""
    wait_s = start_s - now_s
    if wait_s < _NOW_S:
        return "now"
    minutes = int(wait_s // 60)
    days, hours, minutes = minutes // 1440, minutes // 60 % 24, minutes % 60
    parts = [f"{days} d" if days else "", f"{hours} h" if hours else "", f"{minutes} min" if minutes else ""]
    start, now = datetime.fromtimestamp(start_s), datetime.fromtimestamp(now_s)
    clock = f"{start:%H:%M}" if start.date() == now.date() else f"{start:%b} {start.day} {start:%H:%M}"
    return f"in {' '.join([part for part in parts if part][:2])}, {clock}"


def _hours(offer: Offer) -> str:
    return f"{offer.gpu_hours:.1f}".removesuffix(".0") if offer.gpu_hours else "-"


def misfit_lines(result: WhereResult) -> list[str]:
    """Return the profiles that do not fit, each with its reason on one line."""
    rows = [(who(misfit.profile, misfit.gpu_type), _reason(misfit.reason)) for misfit in result.misfits]
    if not rows:
        return []
    width = max(len(name) for name, _ in rows)
    return [*([""] if result.offers else []), "does not fit:", *(one_line(f"  {a:<{width}}  {b}") for a, b in rows)]


def _reason(text: str) -> str:
    return "; ".join(line.strip() for line in text.splitlines() if line.strip())


def submit_line(offer: Offer) -> str:
    """Return the command that submits the job there; the user replaces SCRIPT."""
    candidate = offer.candidate
    _, *groups = option_groups(candidate.request.model_dump(exclude_defaults=True), candidate.profile)
    options = shlex.join(text for group in groups for text in group)
    return one_line(f"hpcrun submit -P {shlex.quote(candidate.profile)} {options} SCRIPT")


def where_json(result: WhereResult) -> dict[str, Any]:
    """Return the offers, and the profiles that do not fit, as a JSON document."""
    return {
        "kind": "where",
        "asked_s": result.asked_s,
        "offers": [_offer_json(offer) for offer in result.offers],
        "misfits": [asdict(misfit) for misfit in result.misfits],
    }


def _offer_json(offer: Offer) -> dict[str, Any]:
    candidate, start, shape = offer.candidate, offer.start, offer.candidate.plan.shape
    return {
        "profile": candidate.profile,
        "gpu_type": shape.gpu_type,
        "nodes": shape.nodes,
        "gpus_per_node": shape.gpus_per_node,
        "cpus_per_node": candidate.plan.cpus_per_node,
        "walltime_s": candidate.plan.walltime_s,
        "gpu_hours": offer.gpu_hours,
        "start_s": start.start_s,
        "start": datetime.fromtimestamp(start.start_s).astimezone().isoformat(),
        "node_list": start.nodes,
        "partition": start.partition,
        "displaces": list(start.preempts),
        "submit": submit_line(offer),
    }
