"""What hpcrun prints is plain standard English, in the field's terms: what a machine can hold of
that.

CONTRIBUTING.md has the glossary.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
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


RIDDLE = re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(phrase) for phrase in FORBIDDEN)})(?!\w)")


@dataclass(frozen=True)
class Words:
    """What a module of hpcrun says, each with its line."""

    texts: list[tuple[int, str]]
    unquoted: list[tuple[int, str]]
    headings: list[str]


@pytest.fixture(scope="module")
def house() -> dict[str, Words]:
    """The words of each module, by its path below hpcrun: a module is parsed once for all tests."""
    return {str(path.relative_to(HOUSE)): words_of(path) for path in sorted(HOUSE.rglob("*.py"))}


def words_of(path: Path) -> Words:
    """Return the words of a module."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    return Words(list(_texts(nodes)), list(_unquoted(nodes)), list(_headings(nodes)))


def _texts(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the string literals that are not docstrings, f-strings with {} for their values."""
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    left_out = parts | alone
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
            yield node.lineno, text
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in left_out
        ):
            yield node.lineno, node.value


def _unquoted(nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the values that follow a command in a text without being quoted."""
    for text in nodes:
        if not isinstance(text, ast.JoinedStr):
            continue
        for before, part in pairwise(text.values):
            if not isinstance(part, ast.FormattedValue) or not isinstance(before, ast.Constant):
                continue
            if PASTED.search(str(before.value)) and not _is_quoted(part.value, nodes):
                yield text.lineno, ast.unparse(part)


def _is_quoted(value: ast.expr, nodes: Sequence[ast.AST]) -> bool:
    """Whether a value, or a name that has the value, comes from a function that quotes."""
    if isinstance(value, ast.Name):
        assigned = [node for node in nodes if isinstance(node, ast.Assign)]
        return any(
            ast.unparse(node.targets[0]) == value.id and _is_quoted(node.value, nodes)
            for node in assigned
        )
    if not isinstance(value, ast.Call):
        return False
    return ast.unparse(value.func).rpartition(".")[2] in QUOTERS


def _headings(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the headings of tables that are written out where the table is made."""
    for node in nodes:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        if node.func.id == "text_table":
            for part in ast.walk(node.args[0]):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def test_a_path_in_a_command_to_paste_is_quoted(house: dict[str, Words]) -> None:
    bare = []
    for path, words in house.items():
        bare += [f"{path}:{line}: {value}" for line, value in words.unquoted]
    assert bare == []


def test_no_riddles_in_what_is_printed(house: dict[str, Words]) -> None:
    found = []
    for path, words in house.items():
        for line, text in words.texts:
            found += [f"{path}:{line}: {riddle!r} in {text!r}" for riddle in RIDDLE.findall(text)]
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


def test_headers_are_nouns(house: dict[str, Words]) -> None:
    written_out = [heading for words in house.values() for heading in words.headings]
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
