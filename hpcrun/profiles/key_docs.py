"""What each key of a file means: the docstrings of the attributes that hold the keys' values.

Python drops these strings while it compiles a module, so no command loads them. They are read from
the source where a schema or a page needs them.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache


def attribute_docs(cls: type) -> dict[str, str]:
    """Return attribute of a class → its docstring on one line.

    An attribute without a docstring is left out.
    """
    return _docs_by_class(cls.__module__).get(cls.__name__, {})


@cache
def _docs_by_class(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name: _docs_in(node) for node in classes}


def _docs_in(definition: ast.ClassDef) -> dict[str, str]:
    docs = {}
    name = ""
    for statement in definition.body:
        text = _text_of(statement)
        if name and text:
            docs[name] = text
        name = ""
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
    return docs


def _text_of(statement: ast.stmt) -> str:
    """Return the text of a docstring on one line; nothing of another statement."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
        return ""
    return " ".join(str(statement.value.value).split())
