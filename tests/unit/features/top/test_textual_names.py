"""No screen of hpcrun top takes a private name of textual's: each version of textual has others."""

from __future__ import annotations

import ast
import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

import hpcrun.features.top

MODULES = [
    f"hpcrun.features.top.{module.name}"
    for module in pkgutil.iter_modules(hpcrun.features.top.__path__)
]


def own_names(tree: ast.ClassDef) -> set[str]:
    """The private names of a class: its methods, and what it sets on itself."""
    found = {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
        ):
            found |= {node.attr} if node.value.id == "self" else set()
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


@cache
def classes_of(module: str) -> dict[str, ast.ClassDef]:
    """The classes that a module defines, by name."""
    tree = ast.parse(Path(str(import_module(module).__file__)).read_text("utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def test_no_private_name_of_textual_is_taken() -> None:
    taken = {}
    for module in MODULES:
        for name, node in classes_of(module).items():
            bases = [
                base
                for base in getattr(import_module(module), name).__mro__
                if base.__module__[:8] == "textual."
            ]
            theirs = {
                each
                for base in bases
                for each in own_names(classes_of(base.__module__)[base.__name__])
            }
            if own_names(node) & theirs:
                taken[name] = own_names(node) & theirs
    assert taken == {}
