"""Regular expressions of people: Python's syntax, found in linear time."""

from __future__ import annotations

import re
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hpcrun.job.text.patterns import PatternError, any_of, compile_pattern

PLAIN = [
    "loss",
    r"loss=(?P<value>[\d.]+)",
    r"^a",
    r"b$",
    r"a{0,2}b",
    r"(?i)LOSS",
    r"\Aa",
    "é",
    r"[éx]",
    r"(a)|(b)",
    r"(?P<x>a+)?b",
    r"a.b",
    r"[^a]b",
    r"\w+",
    r"(?:ab)*?c",
    r"\bab\b",
    r"(?i:LOSS)",
    r"[\]é]+",
]
LINES = st.text(st.sampled_from("ab lossLOSS=1.5é\udcffx"), max_size=20)


def pythons(text: str) -> re.Pattern[str]:
    r"""Python's own expression; its \b and \w know ASCII, as RE2's do: "abé" has no \bab\b for it
    otherwise.
    """
    return re.compile(text, re.ASCII)


@given(st.sampled_from(PLAIN), LINES)
def test_a_pattern_finds_what_pythons_finds(text: str, line: str) -> None:
    pattern, python = compile_pattern(text), pythons(text)
    ours, theirs = pattern.search(f"{line}\n"), python.search(line)
    assert (ours is None) == (theirs is None)
    assert pattern.is_in(line) == (theirs is not None)
    if ours is not None and theirs is not None:
        assert ours.groups == theirs.groups()
        assert dict(ours.named) == theirs.groupdict()


@given(st.sampled_from(PLAIN), st.lists(LINES, max_size=8))
@example(r"\bab\b", ["abé"])
def test_many_lines_at_once_are_the_same_as_one_by_one(text: str, lines: list[str]) -> None:
    python = pythons(text)
    found = compile_pattern(text).filter((line, f"{line}\n") for line in lines)
    assert list(found) == [line for line in lines if python.search(line)]


@pytest.mark.parametrize(
    "text", ["(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*)*x", "(.*a){20}", r"(\w+\s?)*$!"]
)
def test_no_pattern_takes_more_than_linear_time(text: str) -> None:
    begun = time.process_time()
    pattern = compile_pattern(text)
    for _ in range(20):
        pattern.search("a" * 4000 + "!")
    assert time.process_time() - begun < 2  # Python's re takes longer than the sun has left


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(
            (text, "RE2 refuses it: (invalid|bad)")
            for text in (
                "(?=a)",
                "(?!a)b",
                "(?<=a)b",
                "(?<!a)b",
                r"(a)\1",
                "(?P<n>a)(?P=n)",
                "a++",
                "(?>a)",
                "(a)?(?(1)b|c)",
                "(?x) a",
                "(?#why)a",
                r"b\Z",
                "\\u00e9",
                "(?a)b",
            )
        ),
        ("(", "missing"),
        ("a{,2}", "write {0,N}"),
        ("a{2000}", "repetition"),
        ("a" * 30_000, "too long"),
        ("(" * 15_000, r"missing|nesting"),
        ("((((a{100}){100}){100}){100})", "repetition"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(PatternError, match=words):
        compile_pattern(text)


def test_what_looks_like_it_and_is_text_is_not_refused() -> None:
    assert compile_pattern(r"\(?=a\)").is_in("=a)")
    assert compile_pattern(r"[(?=]a").is_in("?a")
    assert compile_pattern(r"[]\]]+\+\+").is_in("]]++")


def test_the_library_is_imported_only_with_a_pattern() -> None:
    code = (
        "import sys, hpcrun.cli.status, hpcrun.cli.submit, hpcrun.actions.status.status_query; "
        "sys.exit('re2' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_of_no_texts_none_is_found() -> None:
    assert any_of([]).search(b"a log\nof two lines\n") is None
    assert any_of([b"two", b"three"]).search(b"a log\nof two lines\n").start() == 9
