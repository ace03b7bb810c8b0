"""The quick reader of the shipped rules reads what a parser of YAML reads, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.explain.diagnosis.rules import SHIPPED
from hpcrun.explain.diagnosis.simple_yaml import parse_simple
from hpcrun.profiles.yaml_file import parse_yaml


def test_the_shipped_rules_are_simple_and_read_as_yaml() -> None:
    text = SHIPPED.read_text("utf-8")
    simple = parse_simple(text)
    assert simple == parse_yaml(text, SHIPPED).data
    assert list(simple or ()) == list(parse_yaml(text, SHIPPED).data)


@pytest.mark.parametrize(
    "value",
    [
        "true",
        "plain words; with no, and a#b # a comment",
        "'it''s: {x} [y] # no comment'",
        "\"double: 'quoted'\"",
        "[a, 'b, ''c''', \"d'\", e f]",
        "[--flag, 1]",
        "10",
        "007",
    ],
)
def test_a_simple_value_is_that_of_yaml(value: str) -> None:
    text = f"# a comment\n\nrule:\n  key: {value}\n"
    simple = parse_simple(text)
    assert simple is not None
    assert simple == parse_yaml(text, Path("x")).data


@pytest.mark.parametrize(
    "text",
    [
        "rule:\n  key: >\n    folded\n",
        "rule:\n  key: a: b\n",
        "rule:\n  key: null\n",
        "rule:\n  key: False\n",
        "rule:\n  key: [a, null]\n",
        "rule:\n  key: [[a]]\n",
        'rule:\n  key: "a\\n"\n',
        "rule:\n  key: &a b\n",
        "rule:\n  key: 'a' # b\n",
        "rule:\n  key: {a: b}\n",
        "rule:\n  key: a\n  key: b\n",
        "rule:\n  key: a\nrule:\n  key: b\n",
        "rule:\n    key: a\n",
        "  key: a\n",
        "rule: a\n",
    ],
)
def test_what_is_not_simple_is_left_to_a_parser(text: str) -> None:
    assert parse_simple(text) is None
