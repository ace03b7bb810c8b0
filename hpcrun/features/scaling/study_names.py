"""The names of studies, as the shell completes them."""

from __future__ import annotations

from hpcrun.cli.complete import MOST_RUNS, quiet, run_name
from hpcrun.cli.context import make_context


@quiet
def study_name(_: str) -> list[str]:
    """Complete a study: ``last`` and the names of the newest, each once, then their ids."""
    from hpcrun.actions.runs import find
    from hpcrun.features.scaling.studies import StudyStore

    newest = StudyStore(make_context(announce=None).store.root).study_ids()[: -MOST_RUNS - 1 : -1]
    return [*dict.fromkeys([find.LAST, *map(find.run_name, newest)]), *newest]


def study_or_run_name(incomplete: str) -> list[str]:
    """Complete a study or a run."""
    return list(dict.fromkeys([*study_name(incomplete), *run_name(incomplete)]))
