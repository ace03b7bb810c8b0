"""The rows of the table of all runs: filtered, sorted, grouped, and what is in their cells."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.features.top.rows import (
    DAMAGED,
    Arrangement,
    TopRow,
    arranged,
    cells,
    column_widths,
    keys_to_mark,
    run_rows,
)
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run


def item(
    name: str, state: str = "RUNNING", created_s: float = 1000.0, elements: str = "", **said: object
) -> RunStatus:
    """A run; each letter of ``elements`` is the state of an element: running, pending, completed,
    failed.
    """
    final = state not in ("RUNNING", "PENDING")
    words = {"r": "RUNNING", "p": "PENDING", "c": "COMPLETED", "f": "FAILED"}
    parts = tuple(
        ElementStatus(
            n, f"7_{n}", (("lr", str(n)),), LastStatus(words[each], 1.0, final=each in "cf")
        )
        for n, each in enumerate(elements)
    )
    status = LastStatus(state, 1.0, final=final, **said)  # type: ignore[arg-type]
    known = run(f"20260102-030405-{name}-0a1b", created_s=created_s, job_id=str(int(created_s)))
    return RunStatus(known, Path("/r"), status, elements=parts)


def names(shown: list[tuple[TopRow, int]]) -> list[str]:
    return [f"{'  ' * depth}{row.name}" for row, depth in shown]


HELD = item("b", "PENDING", 2.0, reason="JobHeldUser")
THREE = run_rows([item("a", "COMPLETED", 1.0), HELD, item("lr", created_s=3.0, elements="rf")], {})


def info(known: RunStatus, words: str = "") -> str:
    """What the last column says of a run."""
    (row,) = run_rows([known], {})
    return cells(row, 0, 1.0, is_open=False, words=words)["info"]


def test_the_newest_come_first_and_a_sort_can_be_reversed() -> None:
    assert names(arranged(THREE, Arrangement())) == ["lr", "b", "a"]
    assert names(arranged(THREE, Arrangement(sort="name", reverse=True))) == ["lr", "b", "a"]
    assert names(arranged(THREE, Arrangement(sort="state"))) == ["lr", "b", "a"]
    assert names(arranged(THREE, Arrangement(sort="job", reverse=True))) == ["a", "b", "lr"]


def test_an_open_sweep_shows_its_elements() -> None:
    opened = frozenset({THREE[2].key})
    assert names(arranged(THREE, Arrangement(opened=opened))) == [
        "lr",
        "  lr/0",
        "  lr/1",
        "b",
        "a",
    ]
    by_state = arranged(THREE, Arrangement(opened=opened, sort="state", reverse=True))
    assert names(by_state) == ["a", "b", "lr", "  lr/1", "  lr/0"]


def test_the_rows_of_a_group_and_of_a_sweep_are_reversed_with_the_others() -> None:
    same = run_rows([item("x", created_s=1.0, elements="rr"), item("x", created_s=2.0)], {})
    opened = frozenset({":name:x", same[0].key})
    shown = arranged(same, Arrangement(reverse=True, group="name", opened=opened))
    assert names(shown) == ["x", "  x", "    x/1", "    x/0", "  x"]


def test_by_elapsed_time_a_run_that_has_not_started_comes_last() -> None:
    rows = run_rows([item("waits", "PENDING", 2.0), item("runs", elapsed_s=60)], {})
    assert names(arranged(rows, Arrangement(sort="elapsed"))) == ["runs", "waits"]


def test_a_name_that_no_other_run_has_is_no_group() -> None:
    (shown,) = arranged(run_rows([item("x")], {}), Arrangement(group="name"))
    assert not shown[0].is_group


def test_a_filter_takes_all_words_and_shows_the_elements_that_have_them() -> None:
    assert names(arranged(THREE, Arrangement("JobHeld"))) == ["b"]
    assert names(arranged(THREE, Arrangement("failed"))) == ["lr", "  lr/1"]
    assert names(arranged(THREE, Arrangement("lr !failed"))) == ["lr", "  lr/0"]
    assert names(arranged(THREE, Arrangement("completed held"))) == []
    assert names(arranged(THREE, Arrangement("!"))) == []  # still being typed


def test_all_that_is_shown_is_marked_of_a_filtered_sweep_its_elements() -> None:
    assert keys_to_mark(arranged(THREE, Arrangement())) == {row.key for row in THREE}
    opened = Arrangement(opened=frozenset({THREE[2].key}))
    assert keys_to_mark(arranged(THREE, opened)) == {row.key for row in THREE}
    assert keys_to_mark(arranged(THREE, Arrangement("failed"))) == {f"{THREE[2].key}/1"}


def test_runs_are_grouped_where_the_first_of_them_was() -> None:
    study = "20260102-030405-sizes-0a1b"
    studies = {THREE[0].key: study, THREE[2].key: study}
    shown = arranged(THREE, Arrangement(), studies)
    assert names(shown) == ["study sizes", "b"]
    assert shown[0][0].about == "2 runs: 1 running, 1 completed"
    opened = frozenset({f":study:{study}"})
    assert names(arranged(THREE, Arrangement(opened=opened), studies)) == [
        "study sizes",
        "  lr",
        "  a",
        "b",
    ]
    assert [row.key for row in shown[0][0].runs()] == [THREE[2].key, THREE[0].key]
    same = run_rows(
        [item("x", created_s=1.0), item("y", created_s=2.0), item("x", created_s=3.0)], {}
    )
    assert names(arranged(same, Arrangement(group="name"))) == ["x", "y"]
    assert names(arranged(same, Arrangement(group="none"))) == ["x", "y", "x"]


def test_a_damaged_run_is_a_row_with_what_is_wrong() -> None:
    (row,) = run_rows([], {"20260102-030405-x-0a1b": "it is damaged"})
    assert row.state == DAMAGED
    assert cells(row, 0, 1.0, is_open=False)["info"] == "it is damaged"


def test_rows_of_runs_that_did_not_change_are_kept() -> None:
    items = [item("a"), item("b")]
    before = run_rows(items, {})
    after = run_rows([items[0], item("b", "FAILED")], {}, before)
    assert (after[0] is before[0], after[1] is before[1]) == (True, False)


def test_what_a_run_wrote_last_stands_before_its_nodes_unless_it_is_silent() -> None:
    running = item("a", hosts="node1")
    assert info(running, "step=3") == "step=3, node1"
    silent = RunStatus(running.run, running.folder, running.status, silent_s=720.0)
    assert info(silent, "step=3").startswith("silent 12 min")


def test_the_arguments_that_set_a_run_apart_stand_first() -> None:
    runs = []
    for number in (1, 2):
        made = run(
            f"2026010{number}-030405-train-0a1b", request={"script": "t", "args": [f"lr={number}"]}
        )
        runs.append(RunStatus(made, Path("/runs"), LastStatus("RUNNING", 0.0, hosts="n1")))
    shown = [cells(row, 0, 0.0, is_open=False)["info"] for row in run_rows(runs, {})]
    assert shown == ["lr=1, n1", "lr=2, n1"]


def test_of_a_failed_run_the_exception_comes_first() -> None:
    failed = item("a", "FAILED", cause="rank 0 on a100-1 failed first: KeyError: 'labels'")
    assert info(failed) == "KeyError: 'labels' (rank 0, a100-1)"


def test_a_narrow_terminal_keeps_what_says_most(subtests: pytest.Subtests) -> None:
    shown = arranged(THREE, Arrangement())
    assert list(column_widths(shown, 60)) == ["name", "state", "elapsed", "info"]
    assert {"profile", "limit"}.isdisjoint(column_widths(shown, 80))
    assert (
        list(column_widths(shown, 140)) == "name job profile state size elapsed limit info".split()
    )
    for width in (20, 60, 80, 140):
        with subtests.test(width=width):
            assert sum(wide + 2 for wide in column_widths(shown, width).values()) <= max(
                width + 1, 40
            )


def test_a_thousand_runs_with_ten_thousand_elements_are_arranged() -> None:
    rows = run_rows([item(f"r{n}", created_s=float(n), elements="c" * 10) for n in range(1000)], {})
    shown = arranged(rows, Arrangement("r9 completed", opened=frozenset(row.key for row in rows)))
    column_widths(shown, 80)
    assert len(shown) == 111 * 11


def test_a_word_is_looked_for_in_causes_too() -> None:
    rows = run_rows([item("request"), item("big", "FAILED", 2.0, cause="2.00 GiB requested")], {})
    assert names(arranged(rows, Arrangement("req"))) == ["request", "big"]
    assert names(arranged(rows, Arrangement("gib"))) == ["big"]
    assert names(arranged(rows, Arrangement("!gib"))) == ["request"]


def test_names_are_shortened_before_job_ids_are_left_out() -> None:
    rows = run_rows([item("a-long-name-of-a-training", "COMPLETED", elements="rrff")], {})
    widths = column_widths(arranged(rows, Arrangement(opened=frozenset({rows[0].key}))), 80)
    assert list(widths) == ["name", "job", "state", "elapsed", "info"]
    assert widths["name"] >= 14
    assert widths["info"] >= 30


def test_a_shortened_name_takes_the_room_that_is_left() -> None:
    rows = run_rows([item("a-long-name-of-a-training", "COMPLETED")], {})
    widths = column_widths(arranged(rows, Arrangement()), 80)
    assert widths["name"] > 14
    assert widths["info"] == 30


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("age", ["b", "c", "a"]),
        ("name", ["a", "b", "c"]),
        ("state", ["c", "a", "b"]),
        ("job", ["b", "c", "a"]),
        ("elapsed", ["b", "a", "c"]),
    ],
)
def test_rows_are_sorted_by_what_is_asked_for(sort: str, order: list[str]) -> None:
    known = [
        item("a", "FAILED", 9.0, elapsed_s=20),
        item("c", "RUNNING", 10.0, elapsed_s=3),
        item("b", "COMPLETED", 11.0, elapsed_s=100),
    ]
    rows = run_rows(known, {})
    assert names(arranged(rows, Arrangement(sort=sort))) == order
    assert names(arranged(rows, Arrangement(sort=sort, reverse=True))) == order[::-1]
