"""Searching logs: which lines are found, with which numbers, in logs of every kind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from hpcrun.explain.diagnosis.rules import (
    Rule,
    RuleMistake,
    fill,
    load_rules,
    merge_rules,
    parse_rules,
)
from hpcrun.explain.diagnosis.scan import LogScan, Scanner, line_counter

RULES = parse_rules(
    {
        "oom": {
            "contains": ["OutOfMemoryError"],
            "pattern": r"OutOfMemoryError: (?P<what>\w+)",
            "cause": "memory",
        },
        "mine": {"contains": "flux capacitor", "cause": "the flux capacitor is empty"},
        "late": {"contains": "nan", "at_end": True, "cause": "nan at the end"},
    }
)


def scan(tmp_path: Path, data: bytes, *, quick: bool = False) -> LogScan:
    log = tmp_path / "log"
    log.write_bytes(data)

    def opened() -> BinaryIO:
        return log.open("rb")

    with opened() as file:
        return Scanner.of(RULES).scan(file, line_counter(opened), quick=quick)


def found(scan: LogScan) -> list[tuple[str, int | None]]:
    return [(hit.rule.name, scan.line_in_file(hit.number)) for hit in scan.hits]


def test_lines_are_found_with_their_numbers_wherever_a_block_ends(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    step = b"step 1 loss 0.5 and some more words to fill the line\n"
    for before in (0, 1, 20000, 100001):
        with subtests.test(before=before):
            said = scan(
                tmp_path,
                step * before + b"torch.OutOfMemoryError: CUDA out of memory\n" + step * 30000,
            )
            assert found(said) == [("oom", before + 1)]
            assert said.hits[0].values == {"what": "CUDA"}


def test_the_lines_of_a_long_log_that_is_gone_have_no_numbers(tmp_path: Path) -> None:
    said = scan(tmp_path, b"step\n" * 20000 + b"OutOfMemoryError: CUDA\n")
    (tmp_path / "log").unlink()
    assert found(said) == [("oom", None)]
    assert said.position(said.hits[0].number) == len(said.tail) - 1


BAR = b"1% error=0.1 " + b"x" * 9000


@pytest.mark.parametrize(
    ("log", "hits"),
    [
        (b"a\nthe flux capacitor smokes", [("mine", 2)]),  # without a mark in its line
        # of a long line the words far behind are found where a carriage return begins them
        (BAR + b" OutOfMemoryError: no\n" + b"step\n" * 50, []),
        (BAR + b"\rtorch.OutOfMemoryError: CUDA\nnext\n", [("oom", 1)]),
        # a rule for the end knows nothing of the middle
        (b"loss nan\n" + b"loss 1\n" * 100, []),
        (b"loss 1\n" * 100 + b"loss nan\n", [("late", 101)]),
        # of a line that is repeated the first and the last are kept
        (b"OutOfMemoryError: x\n" * 1000, [("oom", 1), ("oom", 2), ("oom", 999), ("oom", 1000)]),
    ],
)
def test_which_lines_are_found(tmp_path: Path, log: bytes, hits: list[tuple[str, int]]) -> None:
    assert found(scan(tmp_path, log)) == hits
    assert scan(tmp_path, b"") == LogScan((), (), 1)


def test_what_a_terminal_would_show_is_searched(tmp_path: Path) -> None:
    said = scan(tmp_path, b"\r 10%\r 20%\r[rank3]: torch.OutOfMemoryError: CUDA\r\n\xff\xfe\x00\n")
    assert said.hits[0].line == "torch.OutOfMemoryError: CUDA"
    assert said.tail[-1] == "��\x00"


@pytest.mark.parametrize(
    "line",
    [
        b"step 7 error 0.1 failed 0\n",
        b"OutOfMemoryError: CUDA\n",
        b"x" * 4096,
        b"\rerror 1",
        bytes(range(256)),
    ],
)
def test_an_awkward_log_takes_no_longer(tmp_path: Path, line: bytes) -> None:
    data = line * (15_000_000 // len(line)) + b"\nOutOfMemoryError: the last\n"
    began = time.process_time()
    said = scan(tmp_path, data)
    assert time.process_time() - began < 4
    assert said.hits[-1].line == "OutOfMemoryError: the last"


def test_a_quick_look_sees_the_end_of_a_large_log_and_says_so(tmp_path: Path) -> None:
    said = scan(tmp_path, b"step\n" * 2_000_000 + b"OutOfMemoryError: CUDA\n", quick=True)
    assert [hit.rule.name for hit in said.hits] == ["oom"]
    assert not said.whole
    assert said.first_tail_line is None


# --- rules ---------------------------------------------------------------------------------------


def test_what_a_line_did_not_say_falls_out_of_the_sentence() -> None:
    sentence = "out of memory[: {asked} asked for][, {free} free]"
    assert fill(sentence, {"asked": "2 GiB", "free": None}) == "out of memory: 2 GiB asked for"
    assert fill("no {name}", {"name": "torch"}) == "no torch"


def test_the_first_of_two_rules_of_a_name_counts() -> None:
    mine = Rule("oom", (b"x",), cause="mine")
    assert merge_rules([[mine], RULES])[0] is mine


def test_no_shipped_rule_takes_long_over_a_line() -> None:
    """One expression, Python's own, took 0.64 s for a line of 4,000 characters."""
    rules = [rule for rule in load_rules([]) if rule.pattern]
    assert len(rules) > 50
    begun = time.process_time()
    for rule in rules:
        for word in rule.contains:
            for filler in (word.decode() + " ", "Error: ", "a", " ", "1.", "sm_90 "):
                line = (word.decode() + filler * 4000)[:4000]
                rule.match(line.encode(), line)
    assert time.process_time() - begun < 5  # more than a thousand lines


@pytest.mark.parametrize(
    ("rule", "key", "text"),
    [
        ("no mapping", None, "is a mapping"),
        ({"cause": "x"}, None, "needs contains, frames, state or exit"),
        ({"contains": "x"}, "cause", "in a sentence"),
        ({"contains": "x", "cause": "y", "patern": "z"}, "patern", "unknown key"),
        ({"contains": "x", "cause": "y", "pattern": "("}, "pattern", "not a regular expression"),
        ({"contains": "x", "cause": "y", "level": "bad"}, "level", "level is one of"),
        ({"contains": ["x", {}], "cause": "y"}, "contains", "text or a list of texts"),
        ({"exit": ["one"], "cause": "y"}, "exit", "exit statuses"),
    ],
)
def test_a_rule_that_means_nothing_is_refused(rule: Any, key: str | None, text: str) -> None:
    with pytest.raises(RuleMistake, match=text) as refused:
        parse_rules({"mine": rule})
    assert refused.value.rule == "mine"
    assert refused.value.key == key
