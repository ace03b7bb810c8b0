"""Runs that there is nothing to explain of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.explain.ended import RUN_ON, explain
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.units import cut_at_word
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write
from tests.unit.explain.written import explained, of_log, write_job


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


@pytest.mark.parametrize(("after_s", "is_said"), [(600.0, True), (2.0, False)])
def test_tasks_that_ran_on_after_one_had_failed_are_explained(
    tmp_path: Path, after_s: float, is_said: bool
) -> None:
    folder = write_job(tmp_path / "job", {1: "KeyError: 'x'\n"}, {1: (1, 0.0), 0: (0, after_s)})
    record = json.loads((folder / "run.json").read_text())
    record["plan"] = {"batch": {"by_srun": True}}
    (folder / "run.json").write_text(json.dumps(record))
    lines = [line for evidence in explained(folder).evidence for line in evidence.lines]
    assert (RUN_ON in lines) == is_said


@pytest.mark.parametrize("state", ["COMPLETED", "TIMEOUT"])
def test_ranks_that_never_met_are_said_where_nothing_failed(tmp_path: Path, state: str) -> None:
    folder = RunFolder(tmp_path).element(0).attempt(0)
    started = {"job_id": "7", "host": "n0", "started": 1.0}
    write(folder.start, json.dumps(started))
    end = {"status": 0, "signal": "", "ended": 9.0, "alone": 4, "workers": [16, 2]}
    write(folder.exit, json.dumps(end))
    found = explain(RunStatus(run(), tmp_path, LastStatus(state, 9.0, final=True)), ())
    alone = "none of the 4 ranks was seen connected to another: each seems to work alone"
    assert any(alone in evidence.lines for evidence in found.evidence)
    if state == "COMPLETED":
        loader = "a DataLoader has 16 workers, and torch advises at most 2 with these CPUs"
        assert found.summary == f"the job completed with exit status 0; {alone}; {loader}"
        assert found.fix == ""


MISSING = (
    "Traceback (most recent call last):\n"
    '  File "/home/me/train.py", line 3, in <module>\n    import apex\n'
    "ModuleNotFoundError: No module named 'apex'\n"
)


@pytest.mark.parametrize(
    ("others", "is_said"), [("loading data\n", True), (MISSING, False), ("", False)]
)
def test_software_that_one_node_lacks_is_said_with_the_other_node(
    tmp_path: Path, others: str, is_said: bool
) -> None:
    ends = {0: (143, 1.0), 7: (1, 0.0)}
    folder = write_job(tmp_path / "job", {7: MISSING, 0: others}, ends)
    for path in folder.glob("elements/0/attempts/0/rank-*.out"):
        path.write_text("")
    fix = explained(folder).fix
    lacking = fix.partition("`hpcrun doctor` shows the job's Python")[2]
    if is_said:
        assert lacking == "; node02 reported this, and no rank on node01 did: compare them"
    else:
        assert lacking == ""


AGENT = (
    '  File "/opt/torch/distributed/run.py", line 9, in run\nRendezvousConnectionError: it failed\n'
)


@pytest.mark.parametrize(
    ("tasks", "is_said"),
    [
        ("n1: tasks 0,2-3: Exited with exit code 1", True),
        ("n1: task 0: Exited with exit code 1\nsrun: error: n2: task 1: Exited with", False),
    ],
)
def test_several_torchruns_on_one_node_are_told_from_those_of_several(
    tasks: str, is_said: bool
) -> None:
    closed = AGENT.replace("ConnectionError: the connection has failed", "ClosedError")
    for agent in (AGENT, closed):
        log = f"Traceback (most recent call last):\n{agent}srun: error: {tasks}\n"
        shown = of_log(log)
        assert ("several times on n1 (tasks 0,2-3 failed)" in shown.summary) == is_said
        assert ("--ntasks 1 " in shown.fix) == is_said
