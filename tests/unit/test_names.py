"""The size of the house's parts: one name, one thing; no file that nobody reads to its end."""

from __future__ import annotations

import ast
from collections import Counter

from tests.harness import REPO


def test_no_two_classes_have_the_same_name() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in (REPO / "hpcrun").rglob("*.py")]
    names = Counter(
        node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_no_file_has_over_600_lines() -> None:
    lengths = {
        path: len(path.read_text("utf-8").splitlines()) for path in (REPO / "hpcrun").rglob("*.py")
    }
    assert {
        str(path.relative_to(REPO)): length for path, length in lengths.items() if length > 600
    } == {}
