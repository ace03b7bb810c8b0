"""What a note of a run may be."""

from __future__ import annotations

import pytest

from hpcrun.job.text.run_note import MOST, read_note


@pytest.mark.parametrize("text", ["#paper baseline", "größer, 模型", "a" * MOST, "lr 0.1 | $(id)"])
def test_a_line_is_a_note(text: str) -> None:
    assert read_note(f" {text} ") == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("two\nlines", "one line"),
        ("a\x1b[31mred", "one line"),
        ("a\u202eb", "one line"),
        ("\udcff", "one line"),
        ("a" * (MOST + 1), "has 201 characters"),
        ("ghp_" + "a1B2" * 9, "secret"),
        ("password=hunter22hunter", "secret"),
    ],
)
def test_anything_else_is_refused_and_no_secret_is_repeated(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refused:
        read_note(text)
    assert not text.strip() or text.strip() not in str(refused.value)
