"""The program: values as they are typed, and failures that are one message."""

from __future__ import annotations

import sys
from typing import Any, cast

import pytest

from hpcrun.cli.main import _AsTyped, _fail_for_a_bug, _has_json_option, _typed_names, fail
from hpcrun.errors import PlanError

CONTEXT = cast("Any", None)


class Adapter:
    """A parameter whose own adapter says that it was asked."""

    _runtime_param: object = None

    def get_runtime_param(self) -> Adapter:
        return self

    def coerce(self, value: object, **_: object) -> str:
        return f"adapter: {value!r}"


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (str, "a\udcff", "a\udcff"),
        (str | None, None, None),
        (list[str], ("a\udcff", "b"), ["a\udcff", "b"]),
        (list[str] | None, [], []),
        (int, "12", 12),
        (int | None, "1" * 399, int("1" * 399)),
        (int, 12, 12),
        (bool, True, True),
        (list[int], (), []),
    ],
    ids=str,
)
def test_text_and_numbers_are_taken_as_they_are_typed(
    annotation: Any, value: object, read: object
) -> None:
    assert _AsTyped(annotation, bounded=False).coerce(value, None, CONTEXT) == read


@pytest.mark.parametrize(
    ("annotation", "value", "bounded"),
    [
        (int, "12", True),
        (int, "-1", False),
        (int, "²", False),
        (int, "x", False),
        (int, "1" * 400, False),
        (float, "1.5", False),
        (list[int], ("1",), False),
    ],
)
def test_other_values_are_for_the_adapter_of_the_parameter(
    annotation: Any, value: object, bounded: bool
) -> None:
    read = _AsTyped(annotation, bounded=bounded).coerce(value, Adapter(), CONTEXT)
    assert read == f"adapter: {value!r}"


@pytest.mark.parametrize(
    ("words", "has"),
    [
        (["status", "--json"], True),
        (["status"], False),
        (["submit", "a.py", "--", "--json"], False),
        (["submit", "--json", "--", "x"], True),
    ],
)
def test_json_is_an_option_before_two_dashes(words: list[str], has: bool) -> None:
    assert _has_json_option(words) is has


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-v", "profile", "show", "a100"], ("profile", "profile show")),
        (["status"], ("status", "status")),
        ([], ("", "")),
    ],
)
def test_the_command_is_in_the_first_words(words: list[str], names: tuple[str, str]) -> None:
    assert _typed_names(words) == names


def test_a_failure_is_a_message_and_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fail(PlanError("too many GPUs", hint="ask for fewer"))
    assert ended.value.code == 4
    assert capsys.readouterr().err == "hpcrun: too many GPUs\nhint: ask for fewer\n"


def test_a_bug_is_one_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HPCRUN_DEBUG", raising=False)
    monkeypatch.setattr(sys, "argv", ["hpcrun", "status"])
    with pytest.raises(SystemExit) as ended:
        _fail_for_a_bug(ZeroDivisionError("division by zero"))
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "hpcrun: this is a bug in hpcrun: ZeroDivisionError: division by zero\n"
        "hint: run it again with HPCRUN_DEBUG=1, and report the traceback\n"
    )


def test_for_its_author_a_bug_is_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCRUN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        _fail_for_a_bug(ZeroDivisionError("division by zero"))
