"""``launch check -- PROGRAM ...``: one node of a preflight. If no Python runs there, the script reports this itself."""

from __future__ import annotations

import os
from typing import NoReturn

from . import environment


def main(arguments: list[str]) -> NoReturn:
    """Replace this process by the program of the preflight."""
    environment.be_node()
    program = arguments[arguments.index("--") + 1 :]
    os.execvp(program[0], program)
