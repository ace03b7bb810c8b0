"""Other software on this machine with the name hpcrun.

That is HPCToolkit's program, the package index's hpcrun, or a second installation of this one.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass

_PROGRAM = "hpcrun"
_OTHER_PACKAGE = re.compile(r"hpcrun-(?P<version>[^-]+)\.(?:dist|egg)-info")
_SCRIPT_BYTES = 2000
"""A script that pip writes is shorter: a line with its Python, and an import of the entry point."""


@dataclass(frozen=True, slots=True)
class Namesake:
    """What else has the name, and how to start this hpcrun all the same."""

    seen: str
    fix: str


def namesakes(search_path: str) -> list[Namesake]:
    """Return the software that takes the name of this hpcrun.

    Args:
        search_path: the folders of programs, as in PATH.
    """
    return [*_other_program(search_path), *_other_package()]


def _other_program(search_path: str) -> list[Namesake]:
    program = shutil.which(_PROGRAM, path=search_path)
    if program is None or _starts_this_python(program):
        return []
    folder = os.path.dirname(sys.executable)
    return [
        Namesake(
            f"the name hpcrun starts {program}, which is not this installation",
            f"{sys.executable} -m hpcrun, or {folder} as the first folder of PATH",
        )
    ]


def _starts_this_python(program: str) -> bool:
    """Return whether a program is a script that starts hpcrun with the Python that runs this.

    The script names this Python, or the two share a folder: uvx writes scripts without a path.
    """
    try:
        with open(program, "rb") as file:
            text = file.read(_SCRIPT_BYTES)
    except OSError:
        return False
    if b"hpcrun.__main__" not in text:
        return False
    folder = os.path.dirname(sys.executable)
    if os.fsencode(os.path.join(folder, "python")) in text:
        return True
    return os.path.dirname(os.path.realpath(program)) == os.path.realpath(folder)


def _other_package() -> list[Namesake]:
    """Return the package ``hpcrun`` if it has its files in the folder of this package."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in sorted(os.listdir(os.path.dirname(package))):
        match = _OTHER_PACKAGE.fullmatch(name)
        if match:
            return [
                Namesake(
                    f"the package hpcrun {match['version']}, which is somebody else's, "
                    f"writes into {package} too",
                    "pip uninstall hpcrun, then pip install --force-reinstall --no-deps "
                    "hpcrun-slurm",
                )
            ]
    return []
