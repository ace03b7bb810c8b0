"""The Jinja environment of all templates: text is made, and nothing else can be reached.

Jinja's own sandbox keeps a template from Python's internals (``plan.__class__.__mro__`` ...) and from changing what it
is given. Beyond that a template calls only what makes text: the method of a path or a process cannot be called, should
such an object ever become part of a plan.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

_PLAIN = (str, int, float, bool, tuple, list, dict, frozenset, set)
_OURS = "hpcrun.job."
_GLOBALS = ("range", "dict", "namespace")


class Sandbox(ImmutableSandboxedEnvironment):
    """Renders templates that anybody may have written."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals = {name: self.globals[name] for name in _GLOBALS}

    def is_safe_callable(self, obj: Any) -> bool:
        """Whether a template may call this: methods of plain values and of the plan, and what Jinja itself brings."""
        if not super().is_safe_callable(obj):
            return False
        owner = getattr(obj, "__self__", None)
        if type(obj).__module__.startswith("jinja2.") or obj in self.globals.values():  # macros, loop, super
            return True
        return isinstance(owner, _PLAIN) or (is_dataclass(owner) and type(owner).__module__.startswith(_OURS))
