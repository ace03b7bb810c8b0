"""What an editor is shown."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hpcrun.profiles.yaml_edit import REMARK, copy_text, new_text, unsaid, with_remarks, without_remarks
from hpcrun.profiles.yaml_file import Mistake, parse_yaml

FILE = Path("mine.yaml")


def test_a_mistake_stands_above_its_line_and_one_of_another_file_at_the_top() -> None:
    text = "a: b\nc: d\n"
    mistakes = [Mistake(FILE, 2, "wrong"), Mistake(Path("base.yaml"), 7, "bad"), Mistake(FILE, 99, "end")]
    shown = with_remarks(text, mistakes, FILE)
    assert shown == f"{REMARK}base.yaml:7: bad\na: b\n{REMARK}wrong\nc: d\n{REMARK}end\n"
    assert without_remarks(shown) == text


@given(text=st.text(alphabet="ab: #\n"), lines=st.lists(st.integers(1, 9), max_size=4))
def test_remarks_leave_nothing_behind(text: str, lines: list[int]) -> None:
    shown = with_remarks(text, [Mistake(FILE, line, "wrong\nindeed") for line in lines], FILE)
    assert without_remarks(shown) == (text if text.endswith("\n") or not text else text + "\n")


def test_the_values_of_a_copy_can_be_uncommented(tmp_path: Path) -> None:
    data = {"partition": "gpu", "gpu": {"type": "a100"}, "modules": ["a", "b c"], "env": {"A": "x: y"}}
    text = copy_text("a100", Path("/shipped/a100.yaml"), data)
    assert parse_yaml(text, FILE).data == {"extends": "a100"}
    below = text.split("extends: a100\n")[1]
    assert parse_yaml(below.replace("# ", "", 1).replace("\n# ", "\n"), FILE).data == data


def test_what_was_given_is_not_listed_as_unsaid() -> None:
    assert "account" not in unsaid([("account",)])
    assert "partition" in unsaid([("account",)])
    assert parse_yaml(new_text("x", None) + unsaid([]), FILE).data == {"scheduler": "slurm"}
