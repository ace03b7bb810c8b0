"""The parameters of a sweep, and the command lines that come of them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given as cases
from hypothesis import strategies as st

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.plan.sweep import Sweep, decide_sweep, one_element, parts_of
from hpcrun.job.request.job_request import given_fields
from hpcrun.job.request.parameters import MOST, parse_assignments, parse_indices, side_by_side
from hpcrun.job.request.read_request import read_request
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.text.quoting import quote_bash
from hpcrun.job.text.units import index_ranges
from tests.unit import builders

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


def sweep(**asked: Any) -> Sweep:
    found = decide_sweep(
        builders.request(**{"sweep": ["lr=1e-3,1e-4", "model=small,large"], **asked})
    )
    assert found is not None
    return found


def test_the_last_parameter_varies_fastest() -> None:
    rows = [list(dict(row).values()) for row in parse_assignments(["lr=1,2", "m=a,b"])]
    assert rows == [["1", "a"], ["1", "b"], ["2", "a"], ["2", "b"]]


def test_a_parameter_is_appended_or_stands_where_its_name_does() -> None:
    found = sweep(
        args=["--epochs", "3", "--out=runs/{lr}-{element}", "{{lr}}", "${lr}", '{"a": 1}']
    )
    assert found.common == ("--epochs", "3")
    assert found.arguments[3] == (
        "--out=runs/1e-4-3",
        "{lr}",
        "${lr}",
        '{"a": 1}',
        "--model",
        "large",
    )
    assert sweep(args=["--x"]).arguments[0] == ("--lr", "1e-3", "--model", "small")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"sweep": ["lr"]}, "no '='"),
        ({"sweep": ["lr=1,,2"]}, "empty value"),
        (
            {"sweep": ["lr=1e-3:1e-1"]},
            "ranges are not supported; write every value, such as lr=1e-3,1e-1",
        ),
        (
            {"sweep": ["a=1", "seed=0..4"]},
            "ranges are not supported; write every value, such as seed=\\$\\(seq -s, 0 4\\)",
        ),
        (
            {"sweep": ["seed=0-4"]},
            "ranges are not supported; write every value, such as seed=\\$\\(seq -s, 0 4\\)",
        ),
        ({"sweep": ["lr=[1e-3,1e-1]"]}, "write the values without brackets: lr=1e-3,1e-1"),
        ({"sweep": ["lr=logspace(-3,-1,3)"]}, "is split at its commas"),
        ({"sweep": ["lr=1", "lr=2"]}, "given twice"),
        ({"sweep": ["lr=1e-3,1e-3"]}, "'1e-3' twice: both elements would be the same"),
        ({"sweep": ["a b=1"]}, "cannot be a parameter's name"),
        ({"sweep": ["element=1"]}, "is reserved"),
        (
            {"sweep": [f"{name}={','.join(map(str, range(110)))}" for name in "ab"]},
            f"12100 elements .* {MOST}",
        ),
        ({"args": ["{modle}"]}, "no such parameter"),
        ({"elements": "4"}, "no element 4"),
        ({"elements": "3-1"}, "end before its start"),
        ({"elements": "x"}, "not a list of numbers"),
        ({"sweep": [], "elements": "1"}, "without a sweep"),
        ({"sweep": [], "max_parallel": 2}, "without a sweep"),
        ({"max_parallel": 0}, "--max-parallel"),
    ],
)
def test_what_cannot_be_is_one_message(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        sweep(**asked)
    assert error.value.hint == "did you mean {model}?" or "modle" not in str(asked)


def test_the_array_is_a_directive_that_nobody_can_take_away() -> None:
    plan = builders.plan(sweep=["lr=1,2,3"], max_parallel=2, elements="0,2")
    assert plan.directive("array") == "0,2%2"
    with pytest.raises(UsageError, match="array"):
        builders.plan(sweep=["lr=1,2"], no_sbatch=["array"])
    with pytest.raises(UsageError, match="hpcrun sets --") as error:
        builders.plan(sbatch=["array=1-3"])
    assert "--sweep" in str(error.value.hint)


@cases(st.lists(TEXT, min_size=1, max_size=4))
def test_bash_hands_on_every_value_as_it_is(values: list[str]) -> None:
    request = replace(
        builders.request(args=["{x}"]), sweep=tuple((("x", value),) for value in values)
    )
    found = decide_sweep(request)
    assert found is not None
    assert [arguments[0] for arguments in found.arguments] == values
    words = " ".join(quote_bash(arguments[0]) for arguments in found.arguments)
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {words}"], capture_output=True, check=True
    )
    assert done.stdout.decode().split("\0")[:-1] == values


@cases(st.sets(st.integers(0, 300)).filter(bool))
def test_ranges_are_read_as_they_are_written(indices: set[int]) -> None:
    assert parse_indices(index_ranges(indices)) == tuple(sorted(indices))


def test_a_sweep_is_cut_where_an_array_ends() -> None:
    whole = sweep(sweep=["n=" + ",".join("abcdefgh")], elements="0-1,4-7", max_parallel=5)
    parts = parts_of(whole, 3)
    assert [part.chosen for part in parts] == [(0, 1), (4, 5, 6), (7,)]
    assert [part.array for part in parts] == ["0-1%2", "0-2%2", "0%1"]
    assert parts_of(whole, 8) == [whole]
    (late,) = parts_of(sweep(sweep=["n=" + ",".join("abcdefgh")], elements="5,7"), 4)
    assert late.chosen == (5, 7)
    assert late.first == 5
    assert late.array == "0,2"
    with pytest.raises(PlanError, match="3 arrays"):
        parts_of(sweep(sweep=["n=" + ",".join("abcdefgh")], max_parallel=2), 3)


def test_a_request_that_was_recorded_can_be_asked_again_for_some_elements() -> None:
    request = builders.request(sweep=["x=a,b"], max_parallel=1)
    recorded = json.loads(json.dumps(given_fields(request)))
    assert read_request(recorded) == request
    again = decide_sweep(read_request({**recorded, "elements": [1]}))
    assert again is not None
    assert again.array == "1%1"
    assert again.arguments[1] == ("--x", "b")


def test_side_by_side_needs_as_many_of_each() -> None:
    assert side_by_side({"a": ["1", "2"], "b": ["x", "y"]}) == (
        (("a", "1"), ("b", "x")),
        (("a", "2"), ("b", "y")),
    )
    with pytest.raises(ValueError, match="a has 2, b has 1"):
        side_by_side({"a": ["1", "2"], "b": ["x"]})


def test_elements_do_not_share_this_machine_s_gpus() -> None:
    machine = Machine(8, ("0", "1"))
    with pytest.raises(PlanError, match="share the GPUs"):
        builders.plan(builders.laptop(), machine=machine, gpus="1", sweep=["a=1,2"], max_parallel=2)
    assert builders.plan(builders.laptop(), machine=machine, gpus="1", sweep=["a=1,2"]).sweep


def array(text: str, **asked: Any) -> Sweep:
    found = decide_sweep(builders.request(**asked), text)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "chosen", "at_once"),
    [
        ("0-9:3%2", (0, 3, 6, 9), 2),
        ("7", (7,), None),
        ("5,1-2", (1, 2, 5), None),
        ("3000000-3000001", (3_000_000, 3_000_001), None),
    ],
)
def test_an_array_keeps_its_text_its_task_ids_and_the_arguments(
    text: str, chosen: tuple[int, ...], at_once: int | None
) -> None:
    typed = array(text, args=["{x}", "{{y}}"])
    assert (typed.array, typed.chosen, typed.max_parallel) == (text, chosen, at_once)
    assert (typed.common, typed.arguments[chosen[-1]]) == (("{x}", "{{y}}"), ())


def test_some_elements_of_an_array_keep_their_ids() -> None:
    assert array("0-9:3%2", elements="3,9").array == "3,9%2"
    assert array("0-3", max_parallel=1).array == "0-3%1"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"elements": "4"}, "there is no element 4"),
        ({"sweep": ["lr=1,2"]}, "--array 0-9:3 cannot be combined with --sweep"),
        ({"pack": 2}, "--array 0-9:3 cannot be combined with --pack"),
    ],
)
def test_what_an_array_of_task_ids_cannot_have(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        array("0-9:3", **asked)


@pytest.mark.parametrize("text", ["", "x", "3-1", "0-9:0", "0-9%", "0-9%x", "0..9", "0-9 %2 x"])
def test_what_is_no_list_of_task_ids_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"--array: .* is no list of task ids; write 0-9"):
        builders.request(array=text)


@pytest.mark.parametrize("rows", [[], [[], [], [], []]])
def test_an_element_of_an_array_is_an_array_of_its_task_id(rows: list[list[object]]) -> None:
    """Records of an older hpcrun have rows without parameters."""
    request = {"script": "a.sbatch", "args": ["{x}"], "sweep": rows, "max_parallel": 2}
    alone = {"script": "a.sbatch", "args": ("{x}",), "array": "3"}
    assert one_element(request, 3, ()) == alone
