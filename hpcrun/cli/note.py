"""hpcrun note."""

from __future__ import annotations

from hpcrun.actions.runs.find import find_element
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, check_note, check_one_of, flag
from hpcrun.cli.output import Outcomes, note, printed
from hpcrun.errors import PlanError, UsageError
from hpcrun.views.text import one_line


def note_(
    run: str = argument("RUN", "Job id, run id, name, or 'last'.", default=..., complete=run_name),
    text: list[str] | None = argument("TEXT", "The note: one line of at most 200 characters."),
    remove: bool = flag("--remove", "Remove the note."),
) -> Outcomes:
    """Write a note on a run, or replace it; `status --filter` finds its words."""
    check_one_of(remove=remove, TEXT=text)
    if not text and not remove:
        raise UsageError(
            "no TEXT is given", hint="hpcrun note RUN TEXT, or hpcrun note RUN --remove"
        )
    new = check_note("the note", " ".join(text)) if text else None
    store = make_context().store
    named = find_element(run, store)
    yield note([named.note])
    if named.element is not None:
        raise UsageError(
            f"{run} is an element of a sweep, and a note is about a whole run",
            hint=f"name the run: {named.run.run_id}",
        )
    if named.run.job_id is None:
        raise PlanError(
            f"{named.run.run_id} is still being submitted: sbatch has not returned a job id",
            hint="try again in a few seconds; hpcrun submit --note TEXT notes it at once",
        )
    changed = store.change(named.run, note=new)
    done = f"removed  the note of run {changed.run_id}"
    if changed.note:
        done = f"noted  run {changed.run_id}: {changed.note}"
    yield printed([one_line(done)])
