"""Without a terminal: which runs cancel, hold and release change although nobody can be asked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hpcrun.actions.runs.cancel import named_statuses
from hpcrun.actions.runs.find import FoundRun, is_last
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import Context
from hpcrun.cli.output import Outcome, Outcomes, can_ask, wants_json
from hpcrun.errors import UsageError
from hpcrun.schedulers.protocol import Verb
from hpcrun.views.changes_json import matches_json
from hpcrun.views.text import count

DONE: dict[Verb, str] = {"cancel": "cancelled", "hold": "held", "release": "released"}

_LISTED = 20
"""So many runs are listed where a question would be needed; --json has all of --state."""


def check_consent(
    verb: Verb,
    words: Sequence[str],
    named: Sequence[FoundRun],
    items: Sequence[RunStatus],
    context: Context,
) -> Outcomes:
    """Check that these runs may be changed although nobody can be asked.

    Args:
        verb: what is to be done.
        words: the runs as they were typed; empty if --state chooses them.
        named: the run of each word.
        items: the runs that would be changed.
        context: of the command.

    Raises:
        UsageError: --state chooses the runs, a name is ``last`` or that of several runs, or a
            person submitted one of the runs at a terminal.
    """
    if not can_ask() or wants_json():
        yield from _check_exact(verb, words, named, items, context)
    if not can_ask():
        yield from _check_own(verb, items)


def _check_exact(
    verb: Verb,
    words: Sequence[str],
    named: Sequence[FoundRun],
    items: Sequence[RunStatus],
    context: Context,
) -> Outcomes:
    """Check that the user has named each run by a name of this run alone."""
    if not words:
        yield Outcome(document=partial(matches_json, verb, items))
        jobs = " ".join(item.label for item in items)
        raise _not_exact(verb, f"--state chooses {count(len(items), 'run')}", items, jobs)
    for label, item in zip(words, named, strict=True):
        if not item.matches and not is_last(label):
            continue
        meaning = "is the newest of all runs"
        if item.matches:
            meaning = f"is the name of {count(len(item.matches), 'run')}"
        ids = item.matches or (item.run.run_id,)
        matches = named_statuses([(run_id, None) for run_id in ids[-_LISTED:]], context.ports)
        yield Outcome(document=partial(matches_json, verb, matches))
        exact = item.run.run_id
        if item.element is not None:
            exact += f"/{item.element}"
        raise _not_exact(verb, f"{label!r} {meaning}", matches, exact)


def _not_exact(verb: Verb, what: str, items: Sequence[RunStatus], exact: str) -> UsageError:
    """Return the error of a command that needs a question, with the runs that it is about."""
    done = DONE[verb]
    lines = [f"{what}, and nothing was {done}: without a terminal, {verb} needs ids"]
    for item in items[-_LISTED:]:
        lines.append(f"  {item.run.run_id}  job {item.run.job_id or '-'}  {item.status.state}")
    if len(items) > _LISTED:
        lines.append(f"  and {len(items) - _LISTED} older ones")
    return UsageError("\n".join(lines), hint=f"hpcrun {verb} {exact}")


def _check_own(verb: Verb, items: Sequence[RunStatus]) -> Outcomes:
    """Check that no run that has not ended was submitted at a terminal, or perhaps was."""
    matches = []
    is_known = True
    for item in items:
        by = item.run.by
        if item.status.final or (by is not None and not by["terminal"]):
            continue
        matches.append(item)
        is_known = is_known and by is not None
    if not matches:
        return
    yield Outcome(document=partial(matches_json, verb, matches))
    ids = " ".join(item.label for item in matches)
    was = "was" if len(matches) == 1 else "were"
    how = was if is_known else f"perhaps {was}"
    raise UsageError(
        f"{ids} {how} submitted at a terminal, and here is none: nothing was {DONE[verb]}, since "
        "a person decides that",
        hint=f"ask the person, who can type hpcrun {verb} {ids} (--yes only if the person said so)",
    )
