"""Which sweeps are one table: a sweep, and those whose elements it repeats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.features.sweep.compare_elements import repeated_runs, sweeps_of
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from tests.unit.builders import run

REQUEST = {"script": "train.py", "sweep": [[["lr", "1"]], [["lr", "2"]]]}
FIRST, SECOND, THIRD = (f"2026010{number}-000000-train-000{number}" for number in (1, 2, 3))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path)


def sweep(store: RunStore, run_id: str, before: str | None = None, **said: Any) -> Run:
    """A sweep of two elements, which may repeat another."""
    made = run(
        run_id,
        resubmitted_from=before,
        request={**REQUEST, **said},
        plan={"sweep": {"indices": "0-1", "first": 0}},
    )
    store.create(made, "")
    return made


def ids(runs: list[Run]) -> list[str]:
    return [each.run_id for each in runs]


def test_a_sweep_is_shown_with_those_it_repeats(store: RunStore) -> None:
    sweep(store, FIRST)
    sweep(store, SECOND, FIRST)
    third = sweep(store, THIRD, SECOND)
    assert ids(repeated_runs(third, store)) == [FIRST, SECOND, THIRD]
    runs, remarks = sweeps_of(THIRD, store)
    assert ids(runs) == [FIRST, SECOND, THIRD]
    assert remarks == [
        f"{THIRD} repeats elements of {FIRST}, {SECOND}: the newest of each is shown",
        None,
    ]


def test_the_last_sweep_is_named(store: RunStore) -> None:
    sweep(store, FIRST)
    runs, remarks = sweeps_of("last", store)
    assert ids(runs) == [FIRST]
    assert remarks == [None, None, "the newest of all runs: train, job 4711"]


@pytest.mark.parametrize("changed", [{"script": "other.py"}, {"args": ["x"]}, {"sweep": []}])
def test_a_sweep_of_another_program_is_another_table(
    store: RunStore, changed: dict[str, Any]
) -> None:
    sweep(store, FIRST, **changed)
    second = sweep(store, SECOND, FIRST)
    assert ids(repeated_runs(second, store)) == [SECOND]


def test_sweeps_that_repeat_each_other_or_a_removed_one_end(store: RunStore) -> None:
    sweep(store, FIRST, SECOND)
    second = sweep(store, SECOND, FIRST)
    assert ids(repeated_runs(second, store)) == [FIRST, SECOND]
    third = sweep(store, THIRD, "20250101-000000-train-0009")
    assert ids(repeated_runs(third, store)) == [THIRD]


@pytest.mark.parametrize(
    ("named", "hint"),
    [
        ([FIRST], "hpcrun metrics 4711 shows its metrics"),
        ([FIRST, "my run"], f"hpcrun compare {FIRST} 'my run' compares runs"),
    ],
)
def test_a_run_without_elements_is_no_sweep(store: RunStore, named: list[str], hint: str) -> None:
    store.create(run(FIRST), "")
    with pytest.raises(UsageError, match="is no sweep: it has no elements") as caught:
        sweeps_of(FIRST, store, named)
    assert caught.value.hint == hint
