"""What hpcrun prints is plain standard English, in the field's terms: what a machine can hold of
that.

CONTRIBUTING.md has the glossary.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from ruamel.yaml import YAML

import hpcrun
from hpcrun.features.doctor import command as doctor
from hpcrun.features.preflight import command as preflight
from hpcrun.features.where import command as where
from hpcrun.in_job.preflight.grade_checks import CHECKS, LABELS
from hpcrun.views import gpu_table
from hpcrun.views.status_table import TABLE

HOUSE = Path(hpcrun.__file__).parent
FORBIDDEN = re.split(
    r";\s+",
    """\
no rule knows; obeyed by; told to end; started again; start again; what is as; nobody; whoever;
does not answer; no answer; gives no answer; gave no answer; got no answer; in vain;
takes that back; comes back to it; says nothing; say nothing; exclude each other;
is there already; by nobody; hpcrun owns; % off; shared out; of no use; is of use;
went otherwise; asks for more; in line; what was last known; looked at; looks at""",
)
"""Riddles and other words than the field's: CONTRIBUTING.md has better ones."""
HEADERS = re.compile(r"[A-Z][A-Z0-9 ./()-]*|", re.DOTALL)
NO_NOUNS = {
    "WHY",
    "WHERE",
    "WITHIN",
    "ACROSS",
    "NAMES",
    "FROM",
    "BEGUN",
    "EACH",
    "BUSY",
    "MIND",
    "WRONG",
    "SAID",
}


PASTED = re.compile(
    r"(?:^|[\s`(])(?:bash|cat|cd|chmod \S+|cp|df -h|git add -f|less|sbatch|profile trust|"
    r"hpcrun submit \.\.\.) $"
)
"""The end of a text that a value follows as a word of a command."""
QUOTERS = {"quote", "join", "quote_bash", "bash_line"}


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the string literals of a module that are not docstrings, f-strings with {} for their
    values.
    """
    tree = ast.parse(path.read_text("utf-8"))
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
            yield node.lineno, text
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and not {id(node)} & (parts | alone)
        ):
            yield node.lineno, node.value


def _is_quoted(value: ast.expr, tree: ast.AST) -> bool:
    """Whether a value, or a name that has the value, comes from a function that quotes."""
    if isinstance(value, ast.Name):
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        return any(
            ast.unparse(node.targets[0]) == value.id and _is_quoted(node.value, tree)
            for node in assigned
        )
    if not isinstance(value, ast.Call):
        return False
    return ast.unparse(value.func).rpartition(".")[2] in QUOTERS


def test_a_path_in_a_command_to_paste_is_quoted() -> None:
    bare = []
    for path in sorted(HOUSE.rglob("*.py")):
        tree = ast.parse(path.read_text("utf-8"))
        for text in (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)):
            for before, part in pairwise(text.values):
                if not isinstance(part, ast.FormattedValue) or not isinstance(before, ast.Constant):
                    continue
                if PASTED.search(str(before.value)) and not _is_quoted(part.value, tree):
                    bare.append(f"{path.relative_to(HOUSE)}:{text.lineno}: {ast.unparse(part)}")
    assert bare == []


def test_no_riddles_in_what_is_printed() -> None:
    found = [
        f"{path.relative_to(HOUSE)}:{number}: {phrase!r} in {text!r}"
        for path in sorted(HOUSE.rglob("*.py"))
        for number, text in _texts(path)
        for phrase in FORBIDDEN
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


def _headings(path: Path) -> Iterator[str]:
    """Yield the headings of tables that are written out where the table is made."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id == "text_table":
            for part in ast.walk(node.args[0]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_headers_are_nouns() -> None:
    written_out = [heading for path in HOUSE.rglob("*.py") for heading in _headings(path)]
    assert len(written_out) > 15
    headings = [
        *written_out,
        *preflight._HEADINGS,
        *gpu_table._HEADINGS,
        *gpu_table._PORT_HEADINGS,
        *where._FOLDED,
    ]
    assert {heading for heading in headings if set(heading.split()) & NO_NOUNS} == set()
    assert all(HEADERS.fullmatch(heading.replace("\n", " ")) for heading in headings)
    assert "why" in TABLE  # the name of a column for --columns, whose heading is NODES (REASON)


def test_checks_of_a_preflight_have_names_that_stand_alone() -> None:
    assert set(LABELS) <= set(CHECKS)
    assert not {LABELS.get(check, check) for check in CHECKS} & {"names", "within", "across"}
