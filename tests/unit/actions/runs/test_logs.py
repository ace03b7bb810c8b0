"""Which logs are meant, and following them over the attempts of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.runs.logs import LogChoice, choose_logs, finished_logs, follow_logs, parse_ranks
from hpcrun.errors import HpcrunError, NotFoundError
from hpcrun.job.layout import RunFolder
from tests.unit.given import write


def begin(run: Path, number: int, text: str) -> Path:
    folder = RunFolder(run).element(0).attempt(number).path
    write(folder / "rank-0.out", text)
    write(folder / "start", json.dumps({"job_id": "1", "host": "a", "started": 5.0}))
    return folder / "rank-0.out"


@pytest.mark.parametrize(
    ("text", "expected"), [("0", (0,)), ("0-3,7", (0, 1, 2, 3, 7)), ("7, 1-2,2", (1, 2, 7)), ("7-7", (7,))]
)
def test_lists_of_ranks(text: str, expected: tuple[int, ...]) -> None:
    assert parse_ranks(text, 8) == expected


@pytest.mark.parametrize("text", ["", "a", "-1", "1-", "3-1", "1,,2", "0-99999999999", "8", "0-8", "²"])
def test_what_is_no_list_of_its_ranks_is_refused(text: str) -> None:
    with pytest.raises(HpcrunError):
        parse_ranks(text, 8)


def test_the_ranks_that_there_are_are_named() -> None:
    with pytest.raises(NotFoundError, match="the job has no rank 4") as refused:
        parse_ranks("0-4", 4)
    assert refused.value.hint == "its ranks are 0 to 3"


@pytest.mark.parametrize(
    ("choice", "several"),
    [
        (LogChoice(), False),
        (LogChoice(ranks=(3,)), False),
        (LogChoice(ranks=(0, 3)), True),
        (LogChoice(all_ranks=True), True),
        (LogChoice(node="node1"), True),
    ],
)
def test_whose_a_line_is_must_be_said_where_several_ranks_may_speak(choice: LogChoice, several: bool) -> None:
    assert choice.several == several


def test_a_job_that_failed_before_its_ranks_began_shows_the_batch_script_s_words(tmp_path: Path) -> None:
    write(tmp_path / LogChoice().batch_log, "no module cuda\n")
    assert [item.source for item in finished_logs(tmp_path, LogChoice())] == ["batch"]
    assert finished_logs(tmp_path, LogChoice(attempt=0)) == []
    log = begin(tmp_path, 0, "")
    assert finished_logs(tmp_path, LogChoice()) == []  # its rank had nothing to say
    log.write_text("hello\n")
    assert [item.source for item in finished_logs(tmp_path, LogChoice())] == ["rank 0"]


def test_one_that_comes_later_reads_the_last_attempt_and_then_every_one(tmp_path: Path) -> None:
    begin(tmp_path, 0, "zero\n")
    one = begin(tmp_path, 1, "one\n")
    rounds = 0

    def is_over() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 2:  # between two looks the attempt ends, and two more begin
            one.write_text("one\nits last words\n")
            begin(tmp_path, 2, "two\n")
            begin(tmp_path, 3, "three\n")
        return rounds == 3

    shown = [(log.attempt, text) for log, text in follow_logs(tmp_path, LogChoice(), lines=None, is_over=is_over)]
    assert shown == [(1, "one\n"), (1, "its last words\n"), (2, "two\n"), (3, "three\n")]


def test_one_that_waits_for_the_job_misses_no_attempt(tmp_path: Path) -> None:
    rounds = 0

    def is_over() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 2:
            begin(tmp_path, 0, "zero\n")
            begin(tmp_path, 1, "one\n")
        return rounds == 3

    shown = [text for _, text in follow_logs(tmp_path, LogChoice(), lines=None, is_over=is_over)]
    assert shown == ["zero\n", "one\n"]


def test_a_run_whose_folder_is_gone_has_no_logs(tmp_path: Path) -> None:
    assert choose_logs(tmp_path / "none", LogChoice(all_ranks=True)) == []
