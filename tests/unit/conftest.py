"""Hypothesis for these tests: no deadlines, which a busy machine would miss."""

from __future__ import annotations

import pytest
from hypothesis import settings

from hpcrun.actions.status import wait
from hpcrun.cli import output

settings.register_profile("unit", deadline=None)
settings.load_profile("unit")

ANSWER = {name: value for name, value in vars(output._Answer).items() if name[0] != "_"}


@pytest.fixture(autouse=True)
def _answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command in this process was asked to print, such as --json, ends with its test."""
    for name, value in ANSWER.items():
        monkeypatch.setattr(output._Answer, name, value)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits between two looks at a run."""
    for name in ("ASK_FIRST_S", "LOOK_EVERY_S", "SETTLES_S"):
        monkeypatch.setattr(wait, name, 0.0)
