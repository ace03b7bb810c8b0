"""Stacks that py-spy and faulthandler really printed: tests/data/stacks/README.md says of which
programs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hpcrun.explain.diagnosis.stack_groups import (
    RankStack,
    grouped,
    odd_ranks,
    own_work,
    parse_faulthandler,
    parse_py_spy,
    position_of,
    verdict,
    waits_for_worker,
)
from hpcrun.explain.diagnosis.traceback import Frame
from tests.harness import REPO

STACKS = REPO / "tests/data/stacks"
WAIT = "ranks wait in all_reduce (train.py:29); "


def spied(name: str) -> tuple[Frame, ...]:
    return parse_py_spy((STACKS / f"{name}.py-spy.json").read_text())


def dumped(name: str) -> tuple[Frame, ...]:
    return parse_faulthandler((STACKS / f"{name}.faulthandler.txt").read_text())


def rank(number: int, name: str, state: str = "S", **more: float | str) -> RankStack:
    frames = spied(name) if name else ()
    return RankStack(number, f"node-{number // 4}", frames, state, **more)  # type: ignore[arg-type]


WAITING = [rank(number, "all-reduce") for number in range(16)]
LOADER = replace(rank(11, "loader"), node="node-3", worker=own_work(spied("loader-worker")))


def with_odd(*odd: RankStack) -> list[RankStack]:
    numbers = {each.rank for each in odd}
    return sorted(
        [*(each for each in WAITING if each.rank not in numbers), *odd], key=lambda each: each.rank
    )


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_the_main_thread_is_found_among_others(version: str) -> None:
    for frames in (spied(f"spin-{version}"), dumped(f"spin-{version}")):
        assert [(frame.function, frame.line) for frame in frames] == [
            ("<module>", 14),
            ("train", 12),
            ("spin", 10),
        ]


@pytest.mark.parametrize("name", ["all-reduce", "loader", "dataset"])
def test_both_tools_show_the_same_stack(name: str) -> None:
    assert spied(name) == dumped(name)


@pytest.mark.parametrize(
    ("name", "function", "line", "call", "waits"),
    [
        ("all-reduce", "epoch", 29, "all_reduce", True),
        ("loader", "epoch", 27, "__next__", False),
        ("dataset", "read_slowly", 20, "", False),
        ("spin-3.13", "spin", 10, "", False),
    ],
)
def test_the_line_of_the_users_code_and_what_it_called(
    name: str, function: str, line: int, call: str, waits: bool
) -> None:
    position = position_of(rank(0, name))
    assert position.user is not None
    assert position.user.function == function
    assert position.user.line == line
    assert position.call == call
    assert position.waits == waits


def test_a_worker_shows_its_own_work_and_one_that_waits_for_work_nothing() -> None:
    assert own_work(spied("loader-worker"))[-1].function == "read_slowly"
    assert own_work(spied("idle-worker")) == ()
    assert waits_for_worker(spied("loader"))
    assert not waits_for_worker(spied("dataset"))
    assert not waits_for_worker(spied("all-reduce"))


@pytest.mark.parametrize(
    ("stacks", "sentence"),
    [
        (WAITING, "all 16 ranks wait in all_reduce (train.py:29), 12 min"),
        (
            with_odd(LOADER),
            f"15 of 16 {WAIT}rank 11 on node-3 is in next (train.py:27), whose DataLoader worker "
            "is in "
            "read_slowly (train.py:20), 12 min",
        ),
        (
            with_odd(rank(5, "all-reduce", "T")),
            f"15 of 16 {WAIT}rank 5 on node-1 is stopped by a signal (state T) in all_reduce "
            "(train.py:29), 12 min",
        ),
        (
            with_odd(rank(5, "dataset", "D", waits_in="nfs_wait_bit_killable")),
            f"15 of 16 {WAIT}rank 5 on node-1 is in uninterruptible I/O (state D, in "
            "nfs_wait_bit_killable) in "
            "read_slowly (train.py:20), 12 min",
        ),
        (
            with_odd(rank(5, "", "R", busy=1.0), rank(6, "", "S", waits_in="futex_wait_queue")),
            f"14 of 16 {WAIT}rank 5 on node-1 is computing or polling (state R); rank 6 on node-1 "
            "is waiting (state S, in "
            "futex_wait_queue), 12 min",
        ),
        (
            [
                rank(number, "", waits_in="do_nanosleep" if number == 1 else "futex_do_wait")
                for number in range(4)
            ],
            "3 of 16 ranks are waiting (state S, in futex_do_wait); rank 1 on node-0 is waiting "
            "(state S, in do_nanosleep), 12 min",
        ),
        (
            [rank(0, "", "R", waits_in="0"), rank(1, "", "R")],
            "2 of 16 ranks are computing or polling (state R), 12 min",
        ),
        (
            with_odd(rank(5, "spin-3.13", "R", busy=0.97), rank(6, "dataset"), rank(7, "dataset")),
            f"13 of 16 {WAIT}rank 6 on node-1 and rank 7 on node-1 are in read_slowly "
            "(train.py:20); rank 5 on node-1 "
            "computes in spin (spin.py:10), 12 min",
        ),
        (
            [rank(0, "spin-3.10"), LOADER],
            "rank 0 on node-0 is in spin (spin.py:10); rank 11 on node-3 is in next",
        ),
        ([], ""),
    ],
)
def test_the_ranks_that_wait_and_the_odd_ones(stacks: list[RankStack], sentence: str) -> None:
    assert verdict(stacks, world=16, silent_s=720.0).startswith(sentence)


def test_the_line_of_code_is_shown_where_it_is_known() -> None:
    user = position_of(LOADER).user
    assert user is not None
    text = verdict(with_odd(LOADER), world=16, silent_s=None, code={user: "for batch in loader:"})
    assert "rank 11 on node-3 is in `for batch in loader:` (train.py:27), whose" in text
    assert verdict([LOADER], world=1, silent_s=None).startswith("the rank is in next (train.py:27)")


def test_the_odd_ranks_are_those_outside_of_the_collective() -> None:
    assert [each.rank for each in odd_ranks(with_odd(LOADER))] == [11]
    assert [each.rank for each in odd_ranks([rank(0, "all-reduce"), LOADER])] == [11]
    assert odd_ranks(WAITING) == []
    assert odd_ranks([rank(0, "spin-3.10"), LOADER]) == []


def test_ranks_that_compute_are_one_group_at_any_line_of_their_function() -> None:
    at = spied("spin-3.13")
    lines = [
        replace(rank(0, ""), frames=(*at[:-1], replace(at[-1], line=9 + number % 2)), busy=1.0)
        for number in (0, 1)
    ]
    assert len(grouped(lines)) == 1
    assert len(grouped([replace(each, busy=0.0) for each in lines])) == 2


def test_a_rank_that_uses_a_gpu_is_not_said_to_compute_since_waiting_keeps_it_as_busy() -> None:
    stack = rank(0, "spin-3.13", "R", busy=1.0)
    assert verdict([stack], world=1, silent_s=None) == "the rank computes in spin (spin.py:10)"
    assert (
        verdict([replace(stack, gpu=True)], world=1, silent_s=None)
        == "the rank is in spin (spin.py:10)"
    )
    no_stack = replace(stack, gpu=True, frames=())
    assert (
        verdict([no_stack], world=1, silent_s=None) == "the rank is computing or polling (state R)"
    )


@pytest.mark.parametrize(
    "text", ["", "[]x", '[{"frames": [{}], "thread_name": "MainThread"}]', "[1]", "[" * 9999]
)
def test_what_is_not_py_spys_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not the output of py-spy"):
        parse_py_spy(text)


def test_a_dump_without_frames_is_an_empty_stack() -> None:
    assert parse_py_spy("[]") == ()
    assert parse_faulthandler("") == ()
    assert (
        parse_faulthandler("Current thread 0x01 (most recent call first):\n  <no Python frame>\n")
        == ()
    )


def test_of_more_threads_than_faulthandler_writes_the_one_with_the_signal_counts() -> None:
    thread = '{} 0x0{} [worker] (most recent call first):\n  File "{}.py", line 1 in f\n\n'
    text = "".join(
        thread.format("Current thread" if number == 50 else "Thread", number, f"t{number}")
        for number in range(100)
    )
    assert parse_faulthandler(text)[0].file == "t99.py"
    assert parse_faulthandler(text + "...\n")[0].file == "t50.py"
