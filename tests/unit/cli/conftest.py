"""A person who answers what a command asks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpcrun.cli import confirm, init, profile_edit


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The lines that a person types at a terminal, of which all are read."""
    lines: list[str] = []
    monkeypatch.setattr(confirm, "_answer", lambda _: lines.pop(0))
    for command in (init, profile_edit):
        monkeypatch.setattr(command, "can_ask", lambda: True)
    yield lines
    assert lines == []
