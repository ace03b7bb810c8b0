"""The coding agent that calls hpcrun, by the variables that agents set; and from where."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # a command for another machine loads this module
    from collections.abc import Mapping

VARIABLE = "HPCRUN_AGENT"
AT_TERMINAL = "HPCRUN_AT_TERMINAL"
"""With ``--on HOST``, tells the host whether the person has a terminal: 1, if so."""
_AGENTS = {
    VARIABLE: "",
    "AI_AGENT": "",
    "AGENT": "",
    "CLAUDECODE": "claude-code",
    "CODEX_THREAD_ID": "codex",
}
"""Variable → the name of the agent; empty where the variable has the name."""


def agent_in(env: Mapping[str, str]) -> str | None:
    """Return the name of the coding agent; None without one, ``unknown`` for what is no name.

    The name is a hint: any program can set or remove the variables.
    """
    for variable, name in _AGENTS.items():
        value = env.get(variable, "")
        if not value:
            continue
        if name:
            return name
        return value if re.fullmatch(r"[A-Za-z][\w.+-]{0,39}", value, re.ASCII) else "unknown"
    return None
