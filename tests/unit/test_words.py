"""What hpcrun prints is plain standard English, in the field's terms: what a machine can hold of that.

CONTRIBUTING.md has the glossary.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import hpcrun
from hpcrun.features.doctor import command as doctor
from hpcrun.features.preflight import command as preflight
from hpcrun.features.where import command as where
from hpcrun.preflight.checks import CHECKS, LABELS
from hpcrun.views import gpu
from hpcrun.views.status import TABLE

HOUSE = Path(hpcrun.__file__).parent
FOLDERS = sorted(path.name for path in HOUSE.iterdir() if any(path.glob("*.py")))
FORBIDDEN = {
    "no rule knows": "leave it out, and show the exception",
    "obeyed by": "active voice",
    "told to end": "terminated, cancelled",
    "started again": "requeued, restarted",
    "start again": "requeue, restart",
    "what is as": "name the noun",
    "nobody": "no user, no program, unknown",
    "whoever": "name the noun",
    "does not answer": "does not respond",
    "no answer": "no response",
    "gives no answer": "does not respond",
    "gave no answer": "did not respond",
    "got no answer": "did not respond",
    "in vain": "timed out",
    "takes that back": "undoes this",
    "comes back to it": "follows it again",
    "says nothing": "has no effect",
    "say nothing": "have no effect",
    "exclude each other": "cannot be combined",
    "is there already": "already exists",
    "by nobody": "name who",
    "hpcrun owns": "hpcrun sets --NAME itself",
    "% off": "fit error",
    "shared out": "split across GPUs",
    "of no use": "not usable",
    "is of use": "usable",
    "went otherwise": "failed",
    "asks for more": "requests more",
    "in line": "in the queue",
    "what was last known": "the last known state",
    "looked at": "checked",
    "looks at": "checks",
}
HEADERS = re.compile(r"[A-Z][A-Z0-9 ./()-]*|", re.DOTALL)
NO_NOUNS = {"WHY", "WHERE", "WITHIN", "ACROSS", "NAMES", "FROM", "BEGUN", "EACH", "BUSY", "MIND", "WRONG", "SAID"}


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a module that are not docstrings, f-strings with {} for their values."""
    tree = ast.parse(path.read_text("utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            yield node.lineno, text
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (parts | alone):
            yield node.lineno, node.value


def test_all_folders_are_read() -> None:
    assert {"cli", "features", "explain", "launch", "probe", "views", "actions"} <= set(FOLDERS)


@pytest.mark.parametrize("folder", [*FOLDERS, ""])
def test_no_riddles_in_what_is_printed(folder: str) -> None:
    found = [
        f"{path.relative_to(HOUSE)}:{number}: {phrase!r} in {text!r}: write {better}"
        for path in sorted((HOUSE / folder).rglob("*.py") if folder else HOUSE.glob("*.py"))
        for number, text in _texts(path)
        for phrase, better in FORBIDDEN.items()
        if re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", text)
    ]
    assert found == []


def test_no_riddles_in_the_rules_of_explain() -> None:
    rules = YAML(typ="safe").load((HOUSE / "explain/diagnosis/rules.yaml").read_text("utf-8"))
    found = [
        f"{name}: {phrase!r} in {text!r}"
        for name, rule in rules.items()
        for text in (rule["cause"], rule.get("fix", ""))
        for phrase in FORBIDDEN
        if phrase in text
    ]
    assert found == []


def test_levels_are_ok_warning_and_error() -> None:
    assert list(doctor._LABELS.values()) == ["ok", "warning", "error"]


def test_headers_are_nouns() -> None:
    headings = [*preflight._HEADINGS, *gpu._HEADINGS, *gpu._PORT_HEADINGS, *where._FOLDED]
    for path in sorted([*(HOUSE / "views").rglob("*.py"), *(HOUSE / "features").rglob("*display.py")]):
        headings += re.findall(r'add_column\("([^"]+)"', path.read_text("utf-8"))
    assert {heading for heading in headings if set(heading.split()) & NO_NOUNS} == set()
    assert all(HEADERS.fullmatch(heading.replace("\n", " ")) for heading in headings)
    assert "why" in TABLE  # the name of a column for --columns, whose heading is NODES (REASON)


def test_checks_of_a_preflight_have_names_that_stand_alone() -> None:
    assert set(LABELS) <= set(CHECKS)
    assert not {LABELS.get(check, check) for check in CHECKS} & {"names", "within", "across"}
