"""``launch check -- PROGRAM ...``: one node of a preflight. If no Python runs there, the script reports this itself."""

from __future__ import annotations

from . import environment
from .processes import become


def main(arguments: list[str]) -> None:
    """Replace this process by the program of the preflight."""
    environment.be_node()
    become(arguments[arguments.index("--") + 1 :])
