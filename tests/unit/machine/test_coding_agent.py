"""Which coding agent calls, by its variables."""

from __future__ import annotations

import pytest

from hpcrun.machine.coding_agent import agent_in


@pytest.mark.parametrize(
    ("env", "agent"),
    [
        ({}, None),
        ({"AGENT": ""}, None),
        ({"CLAUDECODE": "1"}, "claude-code"),
        ({"CODEX_THREAD_ID": "0199"}, "codex"),
        ({"AGENT": "goose"}, "goose"),
        ({"AI_AGENT": "one", "CLAUDECODE": "1"}, "one"),
        ({"HPCRUN_AGENT": "mine", "AI_AGENT": "one"}, "mine"),
        ({"AGENT": "1"}, "unknown"),
        ({"AGENT": "a\nb"}, "unknown"),
        ({"AGENT": "x" * 41}, "unknown"),
        ({"AGENT": "\u202eabc"}, "unknown"),
    ],
)
def test_the_name_of_an_agent(env: dict[str, str], agent: str | None) -> None:
    assert agent_in(env) == agent
