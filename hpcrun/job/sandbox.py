"""The Jinja environment of all templates: a template can make text, and reach nothing else.

Jinja's own sandbox prevents access to Python's internals (``plan.__class__.__mro__`` ...) and changes to the values of
a template. In addition, this sandbox allows only calls that make text: if a path or a process ever became part of a
plan, its methods could not be called.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

_PLAIN = (str, int, float, bool, tuple, list, dict, frozenset, set)
_OURS = "hpcrun.job."
_GLOBALS = ("range", "dict", "namespace")


class Sandbox(ImmutableSandboxedEnvironment):
    """Renders templates from unknown authors."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals = {name: self.globals[name] for name in _GLOBALS}

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call this: methods of plain values and of the plan, and Jinja's own functions."""
        if not super().is_safe_callable(obj):
            return False
        owner = getattr(obj, "__self__", None)
        if type(obj).__module__.startswith("jinja2.") or obj in self.globals.values():  # macros, loop, super
            return True
        return isinstance(owner, _PLAIN) or (is_dataclass(owner) and type(owner).__module__.startswith(_OURS))
