"""An explanation as text and as JSON."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.flight_calls import CollectiveCall, Kind, ProcessGroup
from hpcrun.explain.diagnosis.flight_meetings import Flight, Meeting, Stand, Trouble
from hpcrun.explain.diagnosis.traceback import Frame
from hpcrun.explain.ended import Explanation
from hpcrun.explain.evidence import Evidence
from hpcrun.job.run_paths import RoleRanks
from hpcrun.runs.record import LastStatus
from hpcrun.views.explanation_text import explanation_json, explanation_text
from tests.unit.builders import run

ITEM = RunStatus(run("r1"), Path("/runs/r1"), LastStatus("FAILED", 1.0, final=True, exit_status=1))
PLAIN = Explanation(ITEM, "rank 1 failed first: KeyError: 'x'")
LINE = "one two three four five six seven"
IN_FILE = Evidence("rank 1 on n1", "elements/0/rank-1.err:12", (LINE, "\x1b[31mred\x1b[0m\x1b[2J "))


def styles_of(text: Text) -> list[tuple[str, str]]:
    """The parts of a text that have a style."""
    return [(text.plain[span.start : span.end], str(span.style)) for span in text.spans]


def test_an_answer_alone_is_one_bold_line() -> None:
    text = explanation_text(PLAIN, 80)
    assert text.plain == "rank 1 failed first: KeyError: 'x'"
    assert styles_of(text) == [("rank 1 failed first: KeyError: 'x'", "bold")]


def test_the_answer_then_evidence_then_what_to_do() -> None:
    explanation = replace(
        PLAIN,
        evidence=(
            IN_FILE,
            Evidence("Slurm", None, (" it was\tcancelled ",)),
            Evidence("batch script", None, ("a", "b"), note="2 lines"),
        ),
        unread=("rank-2.err\n",),
        fix="Check the key before the loop begins in every script.",
        next="hpcrun logs --rank 1 4711",
    )
    text = explanation_text(explanation, 40)
    assert text.plain.split("\n") == [
        "rank 1 failed first: KeyError: 'x'",
        "",
        "rank 1 on n1  elements/0/rank-1.err:12",
        "    one two three four five six seven",
        "    red",
        "Slurm  it was?cancelled",
        "batch script (2 lines)",
        "    a",
        "    b",
        "not read: rank-2.err?",
        "",
        "fix   Check the key before the loop",
        "      begins in every script.",
        "next  hpcrun logs --rank 1 4711",
    ]
    assert styles_of(text) == [
        ("rank 1 failed first: KeyError: 'x'\n", "bold"),
        ("rank 1 on n1  elements/0/rank-1.err:12\n", "dim"),
        ("rank 1 on n1", "cyan"),
        ("Slurm", "cyan"),
        ("batch script", "cyan"),
        ("fix   ", "bold"),
        ("      ", "bold"),
        ("next  ", "bold"),
    ]
    only_unread = explanation_text(replace(PLAIN, unread=("a", "b")), 40)
    assert only_unread.plain.split("\n")[1:] == ["", "not read: a", "not read: b"]


def test_a_long_head_and_a_long_line_are_folded_and_cut() -> None:
    where = "a " * 20 + "b" * 40
    long = Evidence("rank 1", where, (" ".join(["word"] * 60), "x" * 200))
    expected = [
        "rank 1  a a a a a a a a a a",
        "  a a a a a a a a a a",
        f"  {'b' * 40}",
        "    word word word word word",
        "      word word word word word",
        "      word word word word…",
        f"    {'x' * 26}",
        f"      {'x' * 24}",
        f"      {'x' * 23}…",
    ]
    explanation = replace(PLAIN, evidence=(long,))
    for width in (1, 30):
        lines = explanation_text(explanation, width).plain.split("\n")
        assert lines[:3] == ["rank 1 failed first: KeyError:", "'x'", ""]
        assert lines[3:] == expected


def test_a_place_stands_above_its_only_line_and_words_with_hyphens_stay_whole() -> None:
    placed = Evidence("rank 1", "log:1", ("some words and a word-with-many-hyphens",))
    summary = "an-answer-of-one-long-word-in-hyphens and-another"
    explanation = replace(PLAIN, summary=summary, evidence=(placed,))
    assert explanation_text(explanation, 34).plain.split("\n") == [
        "an-answer-of-one-long-word-in-hyphens",
        "and-another",
        "",
        "rank 1  log:1",
        "    some words and a",
        "      word-with-many-hyphens",
    ]
    assert explanation_text(replace(PLAIN, summary="", fix="it"), 34).plain == "\n\nfix   it"


@pytest.mark.parametrize(("lines", "rows"), [(5, 3), (6, 3), (7, 2), (9, 2), (10, 1), (30, 1)])
def test_lines_of_evidence_are_cut_where_they_fill_more_than_a_screen(
    lines: int, rows: int
) -> None:
    evidence = Evidence("rank 1", "log:1", (" ".join(["word"] * 60),) * lines)
    text = explanation_text(replace(PLAIN, evidence=(evidence,)), 80).plain.split("\n")[3:]
    assert len(text) == lines * rows
    assert text[rows - 1].endswith("…")


def test_an_explanation_as_json() -> None:
    assert explanation_json(PLAIN) == {
        "kind": "explain",
        "run_id": "r1",
        "job_id": "4711",
        "folder": Path("/runs/r1"),
        "state": "FAILED",
        "exit_status": 1,
        "summary": "rank 1 failed first: KeyError: 'x'",
        "rule": None,
        "level": None,
        "source": "",
        "rank": None,
        "node": None,
        "role": None,
        "evidence": [],
        "fix": "",
        "next": "",
        "unread": (),
        "flight": None,
        "never_starts": False,
        "advice": None,
        "limit": None,
    }
    unknown = replace(PLAIN, item=replace(ITEM, run=run("")))
    document = explanation_json(
        replace(unknown, role=RoleRanks("server", 0, 1, 0, 1, "end"), evidence=(IN_FILE,))
    )
    assert document["run_id"] is None
    assert document["folder"] is None
    assert document["role"] == "server"
    assert document["evidence"] == [
        {"who": IN_FILE.who, "where": IN_FILE.where, "lines": IN_FILE.lines, "note": ""}
    ]


GROUP = ProcessGroup("0", "mesh_tp", (0, 1))


def test_where_the_ranks_stood_as_json() -> None:
    call = CollectiveCall(7, Kind("all_reduce", "[1024] Float"), Frame("/w/train.py", 12, "step"))
    waiting = Stand((0,), call, GROUP)
    meeting = Meeting(
        Trouble.MISSING, GROUP, "all_reduce", 7, (waiting,), (Stand((1,), None, None),), (2,)
    )
    flight = Flight((meeting,) * 21, in_circle=True, dumps=(0, 1), unknown=(2,))
    document = explanation_json(replace(PLAIN, flight=flight))["flight"]
    collectives = document.pop("collectives")
    assert document == {"dumps": [0, 1], "no_dump": [2], "in_circle": True}
    stand: dict[str, Any] = {
        "ranks": [0],
        "collective": "all_reduce",
        "number": 7,
        "group": "group mesh_tp (ranks 0-1)",
        "tensors": "[1024] Float",
        "at": "/w/train.py:12",
    }
    assert len(collectives) == 20
    assert collectives[0] == {
        "finding": "missing",
        "collective": "all_reduce",
        "number": 7,
        "group": "group mesh_tp (ranks 0-1)",
        "came": [stand],
        "absent": [{**dict.fromkeys(stand), "ranks": [1]}],
        "no_dump": [2],
    }
    nowhere = replace(waiting, call=CollectiveCall(0, Kind("barrier"), None), group=None)
    only = replace(flight, meetings=(replace(meeting, came=(nowhere,)),))
    (collective,) = explanation_json(replace(PLAIN, flight=only))["flight"]["collectives"]
    assert collective["came"] == [
        {
            "ranks": [0],
            "collective": "barrier",
            "number": None,
            "group": None,
            "tensors": "",
            "at": None,
        }
    ]
