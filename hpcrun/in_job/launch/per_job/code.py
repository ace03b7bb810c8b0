"""``launch code FOLDER SCRIPT PATH...``: records which code a job with a copy of the code runs.

The record contains where Python finds the packages of the copy in the job's own environment,
without importing them. Python is started with -E: PYTHONPATH leads to the copy, whose modules would
replace those that this program imports.
"""

from __future__ import annotations

import os
import sys

from .. import records

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of this program, where Python finds nothing that the job imports."""


def main(arguments: list[str]) -> int:
    """Write the record ``code``; return 0."""
    code = arguments[0]
    script = arguments[1]
    own_path = sys.path[:]
    from_environment = os.environ.get("PYTHONPATH")
    before = [os.path.dirname(script) or os.getcwd()]
    if from_environment:
        before += from_environment.split(":")
    sys.path[:] = before + [path for path in own_path if os.path.abspath(path) != _OWN]
    files: dict[str, str] = {}
    for path in arguments[2:]:
        folder = os.path.join(code, path)
        for name in records.names_in(folder):
            _look_up(folder, name, files)
    sys.path[:] = own_path
    for package, origin in files.items():
        if not origin.startswith(code + os.sep):
            records.say(f"{package} is imported from {origin}, not from the copy of the code")
    records.write("code", {"folder": code, "script": script, "imports": files})
    return 0


def _look_up(folder: str, name: str, files: dict[str, str]) -> None:
    """Add where Python finds the package or module of this name, if it is one."""
    package = name[:-3] if name.endswith(".py") else name
    if name == "setup.py" or not package.isidentifier() or package in files:
        return
    if package == name and not os.path.exists(os.path.join(folder, name, "__init__.py")):
        return
    try:
        # also of what this program has imported
        specs = (finder.find_spec(package, None) for finder in sys.meta_path)
        spec = next(filter(None, specs), None)
    except (AttributeError, ImportError, TypeError, ValueError):
        return
    if spec is not None and spec.origin:
        files[package] = os.path.realpath(spec.origin)
