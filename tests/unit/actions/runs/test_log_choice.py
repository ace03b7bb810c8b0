"""Which logs are meant, and following them over the attempts of a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.runs.follow_logs import follow_logs
from hpcrun.actions.runs.log_choice import LogChoice, choose_logs, finished_logs, parse_ranks
from hpcrun.errors import HpcrunError, NotFoundError
from hpcrun.job.run_paths import RunFolder
from tests.unit.builders import write


def begin(run: Path, number: int, text: str) -> Path:
    folder = RunFolder(run).element(0).attempt(number).path
    write(folder / "rank-0.out", text)
    write(folder / "start", json.dumps({"job_id": "1", "host": "a", "started": 5.0}))
    return folder / "rank-0.out"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", (0,)), ("0-3,7", (0, 1, 2, 3, 7)), ("7, 1-2,2", (1, 2, 7)), ("7-7", (7,))],
)
def test_lists_of_ranks(text: str, expected: tuple[int, ...]) -> None:
    assert parse_ranks(text, 8) == expected


def test_what_is_no_list_of_its_ranks_is_refused() -> None:
    for text in ("", "a", "-1", "1-", "3-1", "1,,2", "0-99999999999", "8", "0-8", "²"):
        with pytest.raises(HpcrunError):
            parse_ranks(text, 8)
    with pytest.raises(NotFoundError, match="the job has no rank 4") as refused:
        parse_ranks("0-4", 4)
    assert refused.value.hint == "its ranks are 0 to 3"
    assert parse_ranks("99", 0) == (99,)  # only the launch of a script decides how many it has


def test_whose_a_line_is_must_be_said_where_several_ranks_may_speak() -> None:
    assert not any(choice.several for choice in (LogChoice(), LogChoice(ranks=(3,))))
    assert all(
        choice.several
        for choice in (LogChoice(ranks=(0, 3)), LogChoice(all_ranks=True), LogChoice(node="n"))
    )


def test_a_job_that_failed_before_its_ranks_began_shows_the_batch_script_s_words(
    tmp_path: Path,
) -> None:
    write(tmp_path / LogChoice().batch_log, "no module cuda\n")
    assert [item.source for item in finished_logs(tmp_path, LogChoice())] == ["batch"]
    assert finished_logs(tmp_path, LogChoice(attempt=0)) == []
    log = begin(tmp_path, 0, "")
    assert finished_logs(tmp_path, LogChoice()) == []  # its rank had nothing to say
    log.write_text("hello\n")
    assert [item.source for item in finished_logs(tmp_path, LogChoice())] == ["rank 0"]


def test_the_output_of_a_script_is_shown_while_its_ranks_have_none(tmp_path: Path) -> None:
    choice = LogChoice(script="x.sbatch")
    write(tmp_path / choice.batch_log, "of the script\n")
    log = begin(tmp_path, 0, "")
    assert [item.source for item in finished_logs(tmp_path, choice)] == ["x.sbatch"]
    rounds = iter((False, True))

    def is_over() -> bool:
        ended = next(rounds)
        if ended:
            log.write_text("of the rank\n")
        return ended

    followed = follow_logs(tmp_path, choice, lines=None, is_over=is_over)
    shown = [(item.source, text) for item, text in followed]
    assert shown == [("x.sbatch", "of the script\n"), ("rank 0", "of the rank\n")]
    assert [item.source for item in finished_logs(tmp_path, choice)] == ["rank 0"]


@pytest.mark.parametrize(
    ("first", "shown"),
    [
        (
            ("zero\n", "one\n"),
            [(1, "one\n"), (1, "its last words\n"), (2, "two\n"), (3, "three\n")],
        ),
        ((), [(0, "two\n"), (1, "three\n")]),  # it waits for the job, and misses no attempt
    ],
)
def test_one_that_comes_later_reads_the_last_attempt_and_then_every_one(
    first: tuple[str, ...], shown: list[tuple[int, str]], tmp_path: Path
) -> None:
    rounds = 0
    logs = [begin(tmp_path, number, text) for number, text in enumerate(first)]

    def is_over() -> bool:
        nonlocal rounds
        rounds += 1
        if rounds == 2:  # between two looks the attempt ends, and two more begin
            for log in logs[1:]:
                log.write_text("one\nits last words\n")
            begin(tmp_path, len(logs), "two\n")
            begin(tmp_path, len(logs) + 1, "three\n")
        return rounds == 3

    followed = follow_logs(tmp_path, LogChoice(), lines=None, is_over=is_over)
    assert [(log.attempt, text) for log, text in followed] == shown


def test_a_run_whose_folder_is_gone_has_no_logs(tmp_path: Path) -> None:
    assert choose_logs(tmp_path / "none", LogChoice(all_ranks=True)) == []
