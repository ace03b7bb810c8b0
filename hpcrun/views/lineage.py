"""Chains, and the relations between runs, in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.runs.record import Run
from hpcrun.views.text import one_line

if TYPE_CHECKING:  # otherwise status would import the modules of submit
    from hpcrun.actions.jobs.submit import SubmitResult


def link_line(result: SubmitResult) -> list[str]:
    """Return one line for a submitted link, and the remarks on it."""
    run = result.run
    place = run.chain or {}
    remarks = [one_line(f"           {line}") for line in result.remarks.splitlines()]
    return [f"submitted  {place.get('link')}/{place.get('links')}: job {run.job_id}, run {run.run_id}", *remarks]


def look_line(done: Sequence[SubmitResult]) -> list[str]:
    """Return the commands that show a chain, and the place of its checkpoints."""
    ids = " ".join(str(item.run.job_id) for item in done)
    return [
        one_line(f"folder     {done[0].folder}, and its checkpoints"),
        f"look       hpcrun status {ids} | hpcrun cancel {ids}",
    ]


def chain_json(done: Sequence[SubmitResult]) -> dict[str, Any]:
    """Return a submitted chain as a JSON document."""
    links = [
        {
            "run_id": item.run.run_id,
            "job_id": item.run.job_id,
            "name": item.run.name,
            "folder": str(item.folder),
            "after": item.run.after,
            "remarks": item.remarks,
        }
        for item in done
    ]
    return {"kind": "chain", "links": links}


def place_text(run: Run) -> str | None:
    """Return ``link 2/4``, None outside of a chain."""
    return f"link {run.chain['link']}/{run.chain['links']}" if run.chain else None


def wait_text(item: RunStatus) -> str | None:
    """Return the runs on which a job depends, and their states; None if there are none."""
    # a link depends on all links before it: show the nearest; if it never started, the one that completed
    waits = (item.waits[:1] if item.status.final else item.waits[-1:]) if item.run.chain else item.waits
    if not waits:
        return None
    states = ", ".join(f"{wait.name} ({wait.job_id}): {wait.state}" for wait in waits)
    return f"never started, after {states}" if item.status.final else f"after {states}"


def lineage_json(item: RunStatus) -> dict[str, Any]:
    """Return the relations of a run to other runs, for its JSON."""
    run = item.run
    states = {wait.run_id: wait.state for wait in item.waits}
    return {
        "after": [{**wait, "state": states.get(wait["run_id"])} for wait in run.after],
        "chain": run.chain,
        "resubmitted_from": run.resubmitted_from,
        "checkpoints_of": run.checkpoints_of,
        "code_of": run.code_of,
        "code": run.code,
    }
