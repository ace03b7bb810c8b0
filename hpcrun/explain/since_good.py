"""What is new in a run that failed, since the nearest run of the same program that completed.

A fact, and never a cause: data that were replaced, or a node, are in no record. The nearest run is
the one with the fewest other facts. The last one would be the wrong one: it may have tried
something that this run has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from hpcrun.actions.runs.code_changes import changed_files, snapshot_folder
from hpcrun.actions.runs.run_facts import (
    ARGUMENTS,
    CODE,
    NOT_COMPARED,
    OPTIONS,
    FactDifference,
    Facts,
    differences,
    facts_of,
)
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import HpcrunError
from hpcrun.explain.evidence import Evidence
from hpcrun.job.job_states import COMPLETED
from hpcrun.job.run_paths import run_name
from hpcrun.job.text.arguments import ON, program_of
from hpcrun.job.text.units import cut_at_word
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

MOST_RUNS = 20
"""How many completed runs are compared, the newest first."""
_MOST_LOOKED_AT = 400
"""How many earlier runs are looked at for these."""
_MOST_FACTS = 3
"""More new facts than these help nobody."""
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class _GoodRun:
    """A run that completed, and in which facts the failed run differs from it."""

    run: Run
    facts: dict[str, Facts]
    different: list[FactDifference]


def since_good_run(item: RunStatus, store: RunStore) -> tuple[Evidence, ...]:
    """Return what is new in a run that failed; empty if there is no run to compare it with.

    Elements of a sweep are not compared: their parameters differ on purpose.
    """
    run = item.run
    is_failed = item.status.final and item.status.state != COMPLETED
    if not is_failed or item.elements or item.element is not None:
        return ()
    mine = facts_of(run, store)
    nearest = _nearest_run(run, mine, store)
    if nearest is None:
        return ()
    new = [*map(_fact_text, nearest.different)]
    is_code_known = _is_code_known(nearest.facts) and _is_code_known(mine)
    before = snapshot_folder(nearest.run, store)
    after = snapshot_folder(run, store)
    if before is not None and after is not None:
        is_code_known = True
        new = [_fact_text(one) for one in nearest.different if one.section != CODE]
        new += [f"{path} ({change})" for path, change in changed_files(before, after).items()]
    if len(new) > _MOST_FACTS:
        return ()
    return (_evidence(run, nearest.run, new, is_code_known=is_code_known),)


def _nearest_run(run: Run, mine: dict[str, Facts], store: RunStore) -> _GoodRun | None:
    """Return the completed run that differs in the fewest facts, of such runs the newest."""
    compared = []
    for good in islice(_good_runs(run, store), MOST_RUNS):
        facts = facts_of(good, store)
        compared.append(_GoodRun(good, facts, differences(facts, mine)))
    return min(compared, key=lambda good: len(good.different), default=None)


def _is_code_known(facts: dict[str, Facts]) -> bool:
    """Return whether the code of a run is known: a commit, and the files changed since."""
    changes = facts[CODE].get("changes")
    return changes is not None and NOT_COMPARED not in changes


def _good_runs(run: Run, store: RunStore) -> Iterator[Run]:
    """Yield the completed runs of the same name and program, the newest first."""
    name = run_name(run.run_id)
    earlier = [other for other in store.run_ids() if other < run.run_id and run_name(other) == name]
    for run_id in islice(reversed(earlier), _MOST_LOOKED_AT):
        status = store.last_status(run_id)
        if status is None or not status.final or status.state != COMPLETED:
            continue
        with suppress(HpcrunError):  # damaged, or removed meanwhile
            good = store.load(run_id)
            if good.name == run.name and program_of(good.request) == program_of(run.request):
                yield good


def _evidence(run: Run, good: Run, new: list[str], *, is_code_known: bool) -> Evidence:
    """Return what is new, with the command that shows all.

    Code of which not all is known is not said to be the same.
    """
    before = good.job_id or good.run_id
    compare = f"hpcrun compare {before} {run.job_id or run.run_id}"
    if new:
        line = f"{', '.join(new)}, since run {before}, which completed; {compare}"
        return Evidence("new", None, (line,))
    code = ""
    if is_code_known:
        code = "code, "
    line = (
        f"as run {before}, which completed: {code}arguments, options and --env; exported "
        f"variables, the data or the node may differ; {compare}"
    )
    return Evidence("the same", None, (line,))


def _fact_text(one: FactDifference) -> str:
    """Return ``--batch 8192 (was 512)``."""
    name = one.name
    if one.section == ARGUMENTS and name.isdecimal():
        name = f"argument {name}:"
    elif one.section == ARGUMENTS and name != "program":
        name = f"--{name}"
    elif one.section == CODE and name == "changes":
        name = "code:"
    if one.after is None:
        return f"no {name} (was {_short(one.before)})"
    text = name
    if one.after != ON or one.section not in (ARGUMENTS, OPTIONS):
        text += f" {_short(one.after)}"
    if one.before is not None:
        text += f" (was {_short(one.before)})"
    return text


def _short(value: str | None) -> str:
    return cut_at_word(value or "", _LONGEST)
