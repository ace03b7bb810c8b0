"""Imports libraries without the modules that they import and that hpcrun never uses.

While a library is imported, an empty module takes the place of each such module. Later imports get the real module. If
a version of the library needs other names of it, the library is imported completely, which takes longer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def import_help() -> None:
    """Import typer's help without rich's Markdown and tracebacks, half of its time: no help of hpcrun's has one."""
    _import_with(
        "typer.rich_utils",
        {name: {name.rpartition(".")[2].title(): type(name, (), {})} for name in ("rich.markdown", "rich.traceback")},
    )


def import_pydantic() -> None:
    """Import pydantic without plugins, which it looks for in every installed distribution as models are built."""
    import pydantic  # noqa: F401 - its package alone, which imports no more than the loader needs

    _import_with("pydantic.plugin._loader", {"importlib.metadata": {"entry_points": lambda **_: ()}})


def import_submitit() -> None:
    """Import submitit without asyncio, for awaiting results, and without its search for plugins: half of its time.

    For the command line, which hands out no results; hpcrun.Executor does, and imports it whole.
    """
    no_entry_points = {"entry_points": lambda **_: ()}
    _import_with("submitit", {"asyncio": {"Future": object}, "importlib.metadata": no_entry_points})


def _import_with(module: str, stand_ins: Mapping[str, Mapping[str, Any]]) -> None:
    real = {name: sys.modules.get(name) for name in stand_ins}
    for name, its_names in stand_ins.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(its_names)
    try:
        import_module(module)
    except (ImportError, AttributeError):
        return
    finally:
        for name, before in real.items():
            del sys.modules[name]
            if before is not None:
                sys.modules[name] = before
