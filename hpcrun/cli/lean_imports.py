"""Imports libraries without the modules that they import and that the command line never uses.

While such a library is imported, a nearly empty module takes the place of each of these. Later
imports get the real module. If a version of the library needs other names of it, the library is
imported completely, which takes longer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

StandIns = Mapping[str, Mapping[str, Any]]

# pydantic before 2.13 looks for its plugins in distributions()
_NO_PLUGINS = {"importlib.metadata": {"entry_points": lambda **_: (), "distributions": tuple}}
LEFT_OUT: dict[str, StandIns] = {
    # plugins, which it looks for in every installed distribution as models are built
    "pydantic.plugin._loader": _NO_PLUGINS,
    # plugins too, and asyncio for awaiting results, which only hpcrun.Executor hands out: half of
    # the time
    "submitit": {"asyncio": {"Future": object}, **_NO_PLUGINS},
}
"""A library → the modules that are left out while it is imported, each with the names that the
library takes of it.
"""


def import_lean() -> None:
    """Import the libraries in ``LEFT_OUT`` from now on in this way, whoever imports them."""
    sys.meta_path.insert(0, LeanFinder(LEFT_OUT))


class LeanFinder:
    """Finds these libraries as Python does, with other modules in place of some imports.

    The other modules stand in while the libraries are executed.
    """

    def __init__(self, left_out: Mapping[str, StandIns]) -> None:
        self._left_out = left_out

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, _target: object = None
    ) -> ModuleSpec | None:
        """Return how a module is imported; None for all but these libraries."""
        if name not in self._left_out:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        spec.loader = _LeanLoader(spec.loader, self._left_out[name])  # type: ignore[assignment]
        return spec


class _LeanLoader:
    def __init__(self, loader: Any, stand_ins: StandIns) -> None:
        self._loader = loader
        self._stand_ins = stand_ins

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)  # type: ignore[no-any-return]

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader  # type: ignore[union-attr]
        real = {name: sys.modules.get(name) for name in self._stand_ins}
        for name, attributes in self._stand_ins.items():
            stand_in = ModuleType(name)
            vars(stand_in).update(attributes)
            sys.modules[name] = stand_in
        try:
            self._loader.exec_module(module)
            return
        except (ImportError, AttributeError):
            pass  # another version: once more, with the real modules
        finally:
            for name, before in real.items():
                del sys.modules[name]
                if before is not None:
                    sys.modules[name] = before
        self._loader.exec_module(module)
