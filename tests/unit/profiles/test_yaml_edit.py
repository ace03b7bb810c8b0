"""Changing a value in a person's file, and the remarks that an editor shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcrun.errors import ProfileError
from hpcrun.profiles.yaml_edit import (
    REMARK,
    copy_text,
    new_text,
    set_value,
    unsaid,
    unset_value,
    with_remarks,
    without_remarks,
)
from hpcrun.profiles.yaml_file import Mistake, parse_yaml

FILE = Path("mine.yaml")
TEXT = """\
# head
extends: a100   # base
gpu:
  type: a100    # the type
  per_node: 4
# about CPUs
cpu: {per_node: 64, per_gpu: 16}  # flow
time:
    max: 2-00:00:00

# modules here
modules:   # mine
- a
- b
# after modules
setup:
env:
  A: 0042
  B: |
    one
    two

# tail
"""


def changed_lines(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and the lines that came."""
    old, new = before.splitlines(), after.splitlines()
    return [line for line in old if line not in new], [line for line in new if line not in old]


@pytest.mark.parametrize(
    ("key", "value", "went", "came"),
    [
        ("gpu.type", "h100", ["  type: a100    # the type"], ["  type: h100    # the type"]),
        ("gpu.directive", "gpus", [], ["  directive: gpus"]),
        ("time.default", "1:00:00", [], ["    default: 1:00:00"]),
        (
            "cpu.per_gpu",
            "8",
            ["cpu: {per_node: 64, per_gpu: 16}  # flow"],
            ["cpu: {per_node: 64, per_gpu: 8}  # flow"],
        ),
        ("modules", ["c"], ["modules:   # mine", "- a", "- b"], ["modules: [c]   # mine"]),
        ("setup", ["a: b"], ["setup:"], ['setup: ["a: b"]']),
        ("env.B", "x # y", ["  B: |", "    one", "    two"], ['  B: "x # y"']),
        ("memory.per_node", "4G", [], ["memory:", "  per_node: 4G"]),
        ("partition", None, [], ["partition: null"]),
        ("setup.x", "y", ["setup:"], ["setup: {x: y}"]),
    ],
)
def test_setting_changes_the_lines_of_that_key_alone(
    key: str, value: Any, went: list[str], came: list[str]
) -> None:
    after = set_value(TEXT, tuple(key.split(".")), value, FILE)
    assert changed_lines(TEXT, after) == (went, came)
    if key == "gpu.directive":  # a new key comes before the comment of the next section
        assert "  per_node: 4\n  directive: gpus\n# about CPUs\n" in after


@pytest.mark.parametrize(
    ("key", "went", "came"),
    [
        ("gpu.type", ["  type: a100    # the type"], []),
        (
            "cpu.per_gpu",
            ["cpu: {per_node: 64, per_gpu: 16}  # flow"],
            ["cpu: {per_node: 64}  # flow"],
        ),
        ("time.max", ["time:", "    max: 2-00:00:00"], []),
        ("modules", ["modules:   # mine", "- a", "- b"], []),
        ("env", ["env:", "  A: 0042", "  B: |", "    one", "    two"], []),
        ("setup", ["setup:"], []),
    ],
)
def test_removing_takes_the_lines_of_that_key_and_no_comment_of_another(
    key: str, went: list[str], came: list[str]
) -> None:
    assert changed_lines(TEXT, unset_value(TEXT, tuple(key.split(".")), FILE)) == (went, came)


def test_what_does_not_stand_there_cannot_be_removed() -> None:
    for key in ("gpu.nothing", "nothing", "extends.x", "gpu.type.x"):
        with pytest.raises(ProfileError, match="is not set here"):
            unset_value(TEXT, tuple(key.split(".")), FILE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "# nothing",
        "---\n",
        "{}",
        "{a: b}\n",
        "a: b",
        "a: b\r\nc: d\r\n",
        "---\na: b\n",
        "a: {}\n",
    ],
)
def test_any_form_of_file_takes_a_value_and_gives_it_back(text: str) -> None:
    after = set_value(text, ("new", "key"), "value", FILE)
    before = parse_yaml(text, FILE).data
    assert parse_yaml(after, FILE).data == {**before, "new": {"key": "value"}}
    again = unset_value(after, ("new", "key"), FILE)
    assert parse_yaml(again, FILE).data == before


def test_a_file_of_windows_stays_one() -> None:
    after = set_value("a: b\r\nc:\r\n  d: e\r\n", ("c", "f"), "g", FILE)
    assert after == "a: b\r\nc:\r\n  d: e\r\n  f: g\r\n"


def test_a_file_in_which_the_value_has_no_place_is_left_alone() -> None:
    for text, message in (
        ("a: b\na: c\n", r"mine\.yaml:2"),
        ("? a\n", "without changing other lines"),
    ):
        with pytest.raises(ProfileError, match=message):
            set_value(text, ("a",), "b", FILE)


TREES = st.recursive(
    st.text() | st.none() | st.just(True),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(value=TREES)
def test_every_value_is_read_as_it_was_meant(value: Any) -> None:
    after = set_value(TEXT, ("env", "A"), value, FILE)
    assert parse_yaml(after, FILE).data["env"]["A"] == value


def test_a_mistake_stands_above_its_line_and_one_of_another_file_at_the_top() -> None:
    text = "a: b\nc: d\n"
    mistakes = [
        Mistake(FILE, 2, "wrong"),
        Mistake(Path("base.yaml"), 7, "bad"),
        Mistake(FILE, 99, "end"),
    ]
    shown = with_remarks(text, mistakes, FILE)
    assert shown == f"{REMARK}base.yaml:7: bad\na: b\n{REMARK}wrong\nc: d\n{REMARK}end\n"
    assert without_remarks(shown) == text


@given(text=st.text(alphabet="ab: #\n"), lines=st.lists(st.integers(1, 9), max_size=4))
def test_remarks_leave_nothing_behind(text: str, lines: list[int]) -> None:
    shown = with_remarks(text, [Mistake(FILE, line, "wrong\nindeed") for line in lines], FILE)
    assert without_remarks(shown) == (text if text.endswith("\n") or not text else text + "\n")


def test_the_values_of_a_copy_can_be_uncommented(tmp_path: Path) -> None:
    data = {
        "partition": "gpu",
        "gpu": {"type": "a100"},
        "modules": ["a", "b c"],
        "env": {"A": "x: y"},
    }
    text = copy_text("a100", Path("/shipped/a100.yaml"), data)
    assert parse_yaml(text, FILE).data == {"extends": "a100"}
    below = text.split("extends: a100\n")[1]
    assert parse_yaml(below.replace("# ", "", 1).replace("\n# ", "\n"), FILE).data == data


def test_what_was_given_is_not_listed_as_unsaid() -> None:
    assert "account" not in unsaid([("account",)])
    assert "partition" in unsaid([("account",)])
    assert parse_yaml(new_text("x", None) + unsaid([]), FILE).data == {"scheduler": "slurm"}
