"""Which rank or node is slower than the others, from what the ranks note of their steps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.explain.diagnosis.stragglers import (
    STEP_TIME,
    find_stragglers,
    noted_paces,
    straggler_sentence,
)
from tests.unit.explain.written import Written, explained, write_run

NODES = {rank: f"node-{rank // 4 + 1}" for rank in range(16)}


def said(
    times: dict[int, list[float]], kind: str = STEP_TIME, nodes: dict[int, str] | None = None
) -> str:
    """Return the sentence about the times of each rank, empty if nothing is found."""
    node_of = NODES if nodes is None else nodes
    found = find_stragglers({rank: {kind: values} for rank, values in times.items()}, node_of)
    return straggler_sentence(found, node_of) if found else ""


def steps(usual: float, number: int = 20) -> list[float]:
    """Return times of steps that vary by a few percent."""
    return [usual * (1 + 0.04 * (step % 3 - 1)) for step in range(number)]


def test_a_slow_rank_is_named_with_its_node_and_the_numbers() -> None:
    times = {rank: steps(1.9 if rank == 5 else 1.2) for rank in range(8)}
    assert said(times) == "rank 5 on node-2 takes 1.9 s a step, the others 1.2 s: 58 % more"
    assert (
        said({0: steps(0.03), 1: steps(0.06)}, nodes={})
        == "rank 1 takes 60 ms a step, the others 30 ms: 100 % more"
    )


def test_a_node_is_named_if_all_its_ranks_are_slow() -> None:
    slow = {rank: steps(1.5 if 4 <= rank < 8 else 1.0) for rank in range(16)}
    assert said(slow) == "node-2 takes 1.5 s a step, the other nodes 1 s: 50 % more"
    slow = {rank: steps(1.5 if rank >= 8 else 1.0) for rank in range(16)}
    assert said(slow) == "node-3 and node-4 take 1.5 s a step, the other nodes 1 s: 50 % more"
    # three of its four ranks are not the node
    slow = {rank: steps(1.5 if 4 <= rank < 7 else 1.0) for rank in range(16)}
    assert said(slow).startswith(
        "rank 4 on node-2, rank 5 on node-2 and rank 6 on node-2 take 1.5 s a step, the others"
    )
    # one rank on a node is named, since the rank is what can be looked at
    assert said({0: steps(1), 1: steps(2)}, nodes={0: "a", 1: "b"}).startswith(
        "rank 1 on b takes 2 s a step"
    )
    many = {rank: steps(2.0 if rank % 2 else 1.0) for rank in range(16)}
    assert " and 5 more take" in said(many)


def test_one_slow_step_or_the_first_ones_or_ranks_that_wait_for_each_other_say_nothing() -> None:
    assert said({rank: steps(1.9) for rank in range(16)}) == ""
    assert said({rank: steps(1.0 + 0.01 * rank) for rank in range(16)}) == ""
    times = {rank: steps(1.0) for rank in range(8)}
    times[3][7] = 600.0
    assert said(times) == ""
    times[3][:4] = [30.0] * 4
    assert said(times) == ""
    # half of them slow: it is not the usual step that is slow
    times[3] = [1.0, 2.0] * 10
    assert said(times) == ""


def test_too_few_numbers_say_nothing() -> None:
    assert said({}) == said({0: steps(1.0)}) == said({0: steps(1.0), 1: steps(9.0, 4)}) == ""
    assert said({0: steps(1.0), 1: [0.0, -1.0, float("inf")] * 20}) == ""


def test_rates_are_compared_as_rates() -> None:
    rates = {rank: steps(340.0 if rank == 5 else 540.0) for rank in range(8)}
    assert (
        said(rates, "samples/s")
        == "rank 5 on node-2 reaches 340 samples/s, the others 540: 37 % less"
    )


def test_the_time_of_a_step_comes_before_a_rate_and_kinds_are_not_mixed() -> None:
    paces = {
        0: {"samples/s": steps(900), STEP_TIME: steps(1)},
        1: {"samples/s": steps(90), STEP_TIME: steps(2)},
    }
    found = find_stragglers(paces, {})
    assert found is not None
    assert found.kind == STEP_TIME
    assert find_stragglers({0: {"tokens/s": steps(900)}, 1: {"samples/s": steps(9)}}, {}) is None


def test_metrics_say_it_by_their_names() -> None:
    values = {"loss": 1.0, "perf/step_time_ms": 250.0, "it_per_s": 2, "run": "a"}
    assert noted_paces([(None, step, values) for step in (1.0, 2.0)]) == {STEP_TIME: [0.25, 0.25]}
    assert noted_paces([(None, None, {"it_per_s": 2})]) == {STEP_TIME: [0.5]}
    assert noted_paces([(None, 1.0, {"samples_per_s": 9.5, "tokens_per_second": 100.0})]) == {
        "samples/s": [9.5],
        "tokens/s": [100.0],
    }
    assert noted_paces([(None, 1.0, {"step_time": float("nan"), "epoch_time": 3.0})]) == {}


def test_without_such_a_metric_the_time_between_two_rows_counts() -> None:
    rows = [
        (100.0, 0.0, {"loss": 1.0}),
        (110.0, 10.0, {}),
        (112.0, 10.0, {}),
        (None, 11.0, {}),
        (122.0, 20.0, {}),
    ]
    assert noted_paces(rows) == {STEP_TIME: [1.0, 1.0]}


@pytest.mark.parametrize("kind", [STEP_TIME, "tokens/s"])
@pytest.mark.parametrize(
    ("one", "other"),
    [(1e308, 1e-300), (1.0, 5e-324), (5e-324, 5e-324), (float("nan"), 1.0), (1e9, 1)],
)
def test_what_is_no_pace_of_a_program_makes_no_remark(one: float, other: float, kind: str) -> None:
    assert said({0: [one] * 9, 1: [other] * 9}, kind) == ""
    noted = {
        rank: noted_paces([(1.0, 1.0, {"step_time": value})] * 9)
        for rank, value in ((0, one), (1, 10**400))
    }
    assert find_stragglers(noted, NODES) is None


def test_of_a_job_that_came_to_its_time_limit_the_slow_rank_is_named_by_the_ends_of_the_metrics(
    tmp_path: Path,
) -> None:
    write_run(Written(None, "", "", "TIMEOUT", None), tmp_path / "run")
    attempt = tmp_path / "run/elements/0/attempts/0"
    assert "steps" not in [part.who for part in explained(tmp_path / "run").evidence]
    for rank in range(4):
        # at first rank 0 was slow; a step takes 2 s on rank 1, by the time of its rows
        rows = [
            {"time": 9 * step, "step": step, "step_time": 30.0}
            for step in range(99 if rank == 0 else 0)
        ]
        rows += [
            {"time": 1000 + step * (2 if rank == 1 else 1), "step": step, "loss": 1.0}
            for step in range(99)
        ]
        (attempt / f"rank-{rank}.metrics").write_text(
            "".join(f"{json.dumps(row)}\n" for row in rows) + '{"half a'
        )
    (slow,) = (part for part in explained(tmp_path / "run").evidence if part.who == "steps")
    assert slow.lines == ("rank 1 on node01 takes 2 s a step, the others 1 s: 100 % more",)
