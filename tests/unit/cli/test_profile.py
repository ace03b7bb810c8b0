"""profile: the lines of validate and of the question about trust."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.jobs.trust import FileToTrust
from hpcrun.actions.profiles.list_profiles import Verdict
from hpcrun.cli.output import TextPart
from hpcrun.cli.profile import _verdicts_text
from hpcrun.cli.profile_edit import _power
from hpcrun.profiles.yaml_file import Mistake


def mistake(text: str) -> Mistake:
    """Return a mistake in the first line of a file."""
    return Mistake(Path("base.yaml"), 1, text)


def lines_of(parts: list[TextPart], kind: str) -> list[str]:
    """Return the lines for a stream."""
    return [line for part in parts if part.kind == kind for line in part.lines]


def test_a_mistake_in_a_base_that_two_profiles_extend_is_printed_once() -> None:
    wrong = (mistake("nodes: is not a number"),)
    verdicts = [
        Verdict("a100", Path("a100.yaml"), wrong, "hint of both"),
        Verdict("good", Path("good.yaml"), hint="not shown", remarks=(mistake("time is long"),)),
        Verdict("h100", Path("h100.yaml"), wrong, "hint of both"),
    ]
    parts = list(_verdicts_text(verdicts))
    assert lines_of(parts, "stdout") == ["error  a100", "ok     good", "error  h100"]
    assert lines_of(parts, "stderr") == [
        str(mistake("nodes: is not a number")),
        f"warning: {mistake('time is long')}",
        "hint: hint of both",
    ]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((), "runs code"),
        (("setup",), "runs code: setup"),
        (tuple("abcdefgh"), "runs code: a, b, c, d, e, f, g, h"),
        (tuple("abcdefghi"), "runs code: a, b, c, d, e, f, g, h, ..."),
    ],
    ids=["no key", "one key", "eight keys", "nine keys"],
)
def test_at_most_eight_keys_of_a_file_are_named(keys: tuple[str, ...], text: str) -> None:
    assert _power(FileToTrust("profiles/a.yaml", "new", 10, keys, "runs code")) == text
