"""Runs that there is nothing to explain of."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.explain.ended import explain
from hpcrun.job.text.units import cut_at_word
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write


@pytest.mark.parametrize(
    ("state", "reason", "said", "next_command"),
    [
        (
            "PENDING",
            "QOSMaxGRESPerUser",
            "the job has not started: your running jobs have reached the QOS limit per user "
            "(QOSMaxGRESPerUser)",
            "hpcrun status -v 4711",
        ),
        (
            "PENDING",
            "SomethingNew",
            "the job has not started: PENDING (SomethingNew)",
            "hpcrun status -v 4711",
        ),
        ("PENDING", None, "the job has not started: PENDING", "hpcrun status -v 4711"),
        ("RUNNING", None, "the job is running: it has not ended", "hpcrun logs -f 4711"),
        ("COMPLETED", None, "the job completed with exit status 0", "hpcrun logs 4711"),
    ],
)
def test_a_run_that_is_not_over_says_what_it_does(
    state: str, reason: str | None, said: str, next_command: str
) -> None:
    found = explain(
        RunStatus(
            run(), Path("/runs/it"), LastStatus(state, 0.0, state == "COMPLETED", reason=reason)
        ),
        (),
    )
    assert found.summary == said
    assert found.next == next_command


def test_of_a_sweep_that_is_not_over_the_first_element_that_failed_is_explained(
    tmp_path: Path,
) -> None:
    states = ["COMPLETED", "CANCELLED", "FAILED", "PENDING"]
    elements = tuple(
        ElementStatus(index, f"7_{index}", (), LastStatus(word, 0.0, final=word != "PENDING"))
        for index, word in enumerate(states)
    )
    found = explain(RunStatus(run(), tmp_path, LastStatus("RUNNING", 0.0), elements=elements), ())
    assert found.item.element == 2
    assert found.summary == "the job ended as FAILED"


def test_a_job_that_ends_itself_before_its_ranks_names_no_rank(tmp_path: Path) -> None:
    message = "cannot copy the data of --stage: a100-1: Disk quota exceeded"
    write(
        tmp_path / "elements/0/attempts/0/start",
        '{"job_id": "4711", "host": "node01", "started": 1.0}',
    )
    record = f'{{"status": 1, "signal": "", "ended": 2.0, "message": "{message}"}}'
    write(tmp_path / "elements/0/attempts/0/exit", record)
    write(
        tmp_path / "batch.log",
        f"srun: error: a100-1: task 1: Exited with exit code 1\nhpcrun: {message}\n",
    )
    found = explain(RunStatus(run(), tmp_path, LastStatus("FAILED", 0.0, final=True)), ())
    assert found.summary == message
    assert found.rank is None


def test_a_long_message_is_cut_once_and_at_a_word() -> None:
    texts = ("one two", "one two three", "abcdefghijklmn")
    assert [cut_at_word(text, 9) for text in texts] == ["one two", "one two…", "abcdefgh…"]
