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
    add: bool = flag("--add", "Add TEXT to the note, instead of replacing it."),
    remove: bool = flag("--remove", "Remove the note."),
) -> Outcomes:
    """Write a note on a run, or replace it; `status --filter` finds its words.

    Without TEXT it shows the note.
    """
    check_one_of(remove=remove, TEXT=text)
    if add and not text:
        raise UsageError("--add adds a TEXT to the note", hint="hpcrun note RUN --add TEXT")
    words = list(text or ())
    store = make_context().store
    named = find_element(run, store)
    yield note([named.note])
    if named.element is not None:
        raise UsageError(
            f"{run} is an element of a sweep, and a note is about a whole run",
            hint=f"name the run: {named.run.run_id}",
        )
    before = named.run.note
    if not words and not remove:
        yield printed([one_line(before or f"run {named.run.run_id} has no note")])
        return
    if named.run.job_id is None:
        raise PlanError(
            f"{named.run.run_id} is still being submitted: sbatch has not returned a job id",
            hint="try again in a few seconds; hpcrun submit --note TEXT notes it at once",
        )
    if add and before:
        words.insert(0, before)
    new = check_note("the note", " ".join(words)) if words else None
    changed = store.change(named.run, note=new)
    done = f"removed  the note of run {changed.run_id}"
    if changed.note:
        done = f"noted  run {changed.run_id}: {changed.note}"
    lines = [done]
    if before and not add:
        lines.append(f"was  {before}")
    yield printed(map(one_line, lines))
