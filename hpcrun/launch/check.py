"""``launch check -- PROGRAM ...``: one node of a preflight, of which the script itself says so where no Python runs."""

from __future__ import annotations

import os
from typing import NoReturn

from . import environment


def main(arguments: list[str]) -> NoReturn:
    """Become the program of the preflight."""
    environment.be_node()
    program = arguments[arguments.index("--") + 1 :]
    os.execvp(program[0], program)
