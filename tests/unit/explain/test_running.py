"""What explain says of a job that runs, from the files of its attempt."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.explain.ended import RUN_ON, Explanation
from hpcrun.explain.running import Remark, explain_running, most_silent, read_running, shown_ranks
from hpcrun.job.run_paths import AttemptFolder, RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.silence import last_writes
from hpcrun.views.explanation_text import explanation_text
from tests.unit.builders import run, write

NOW_S = 1_800_000_000.0


def attempt(path: Path, *, started_s: float = NOW_S - 7200, element: int = 0) -> AttemptFolder:
    folder = RunFolder(path).element(element).attempt(0)
    folder.path.mkdir(parents=True)
    write(folder.start, json.dumps({"job_id": "4711", "host": "n0", "started": started_s}))
    write(folder.heartbeat, f"{int(NOW_S) - 5}\n")
    return folder


def node(folder: AttemptFolder, name: str, first: int, ranks: int, beat_s: float = 5.0) -> None:
    path = write(
        folder.node_file(name), json.dumps({"node": name, "first_rank": first, "ranks": ranks})
    )
    os.utime(path, (NOW_S - beat_s,) * 2)


def wrote(folder: AttemptFolder, rank: int, text: str, ago_s: float, stream: str = "out") -> None:
    path = write(folder.rank_log(rank, stream), text)
    os.utime(path, (NOW_S - ago_s,) * 2)


def explained(path: Path, stacks: Remark | None = None, **record: Any) -> Explanation:
    item = RunStatus(run(**record), path, LastStatus("RUNNING", NOW_S), live=True)
    running = read_running(item, NOW_S, {"loss": r"loss (?P<value>[\d.]+)", "step": r"step (\d+)"})
    assert running is not None
    return explain_running(running, stacks)


def test_nothing_has_started(tmp_path: Path) -> None:
    assert read_running(RunStatus(run(), tmp_path, LastStatus("RUNNING", NOW_S)), NOW_S, {}) is None


def test_a_job_that_writes_is_not_stuck(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 2)
    wrote(folder, 0, "step 3 loss 0.5\nstep 4 loss 0.25\n", 2)
    wrote(folder, 1, "", 7000)
    wrote(folder, 1, "a warning\n", 4, "err")
    found = explained(tmp_path)
    assert found.summary == "all 2 ranks wrote in the last 20 s: nothing looks stuck"
    assert found.next == "hpcrun logs -f 4711"
    heartbeat, ranks = sorted(found.evidence, key=lambda each: each.who)
    assert heartbeat.lines == ("job on n0: 5 s ago",)
    assert ranks.lines == (
        "rank 0 on n0: 2 s ago, step 4, loss 0.25: step 4 loss 0.25",
        "rank 1 on n0: 4 s ago: a warning",
    )


def test_a_complaint_that_is_repeated_without_a_step_is_what_the_job_waits_for(
    tmp_path: Path,
) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 2)
    wrote(folder, 0, "step 3 loss 0.5\n", 7000)
    complaint = "2027-01-15 07:{}:00 waiting for a lock of the data set\n"
    wrote(folder, 0, "".join(map(complaint.format, range(50, 59))), 4, "err")
    found = explained(tmp_path)
    said = "it waited since 07:50:00, and wrote 9 times: 2027-01-15 07:50:00 waiting for a lock of"
    assert found.summary.startswith(said)
    assert found.fix == "a longer --time does not help: give the job what it waits for"
    wrote(folder, 0, "step 3 loss 0.5\nstep 4 loss 0.4\n", 2)
    assert "nothing looks stuck" in explained(tmp_path).summary


def test_the_rank_that_stopped_first_and_the_metrics_that_it_noted(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 8)
    node(folder, "n1", 8, 8)
    for rank in range(16):
        ago_s = 720 if rank == 11 else 660
        wrote(folder, rank, f"2027-01-15 07:{48 if rank == 11 else 49}:00 step\n" * 2, ago_s)
    noted = write(folder.rank_metrics(11), '{"time": 1, "step": 7, "loss": 0.5}\n{"time": 2, "st')
    os.utime(noted, (NOW_S - 720,) * 2)
    found = explained(tmp_path)
    assert found.summary == "rank 11 on n1 last wrote 12 min ago; the other 15 wrote 11 min ago"
    assert found.next == "hpcrun explain 4711 --stacks"
    ranks = next(each for each in found.evidence if each.who == "ranks")
    assert ranks.note == "6 of 16"
    assert [
        line
        for line in ranks.lines
        if line.startswith("rank 11 on n1: 12 min ago, step 7, loss 0.5: 2027-")
    ]


def test_a_rank_that_has_ended_and_a_node_without_a_heartbeat_come_first(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 1)
    node(folder, "n1", 1, 1, beat_s=300)
    wrote(folder, 0, "step 1\n", 200)
    wrote(folder, 1, "step 1\n", 210)
    end = {"rank": 1, "node": "n1", "status": 0, "ended": NOW_S - 200, "told": ""}
    write(folder.rank_exit(1), json.dumps(end))
    found = explained(tmp_path, plan={"requeue": {"times": 1}})
    first, second, _ = found.summary.split("; ")
    assert first == "no heartbeat from n1 for 5 min"
    assert second == "rank 1 on n1 ended 3 min ago with exit status 0, while 1 other rank runs"
    assert found.rank == 1
    assert found.node == "n1"


def failed(folder: AttemptFolder, rank: int, ago_s: float, status: int = 1) -> None:
    end = {"rank": rank, "node": "n1", "status": status, "ended": NOW_S - ago_s, "told": ""}
    write(folder.rank_exit(rank), json.dumps(end))


def test_seconds_after_a_rank_has_failed_its_end_is_the_answer(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "step 1\n", 2)
    wrote(folder, 1, "KeyError: 'x'\n", 2, "err")
    failed(folder, 1, 1)
    summary = explained(tmp_path).summary
    assert summary == "rank 1 ended 1 s ago with exit status 1, while 1 other rank runs"


def test_a_run_that_is_being_cancelled_is_not_stuck(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "step 1\n", 200)
    wrote(folder, 1, "step 1\n", 200)
    failed(folder, 1, 30, status=143)
    write(RunFolder(tmp_path).cancelled, "")
    shown = explained(tmp_path)
    assert shown.summary == "the job is being cancelled"
    assert "--stacks" not in shown.next


def test_where_all_ranks_have_ended_none_is_silent(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "done\n", 200)
    write(
        folder.rank_exit(0),
        json.dumps({"rank": 0, "node": "n0", "status": 0, "ended": NOW_S - 3, "told": ""}),
    )
    assert explained(tmp_path).summary == "each rank has ended, and the job is about to end"


def test_the_stacks_have_the_time_and_of_a_job_that_writes_they_come_second(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "step 1\n", 700)
    found = explained(
        tmp_path, Remark("rank 3 is stopped, 11 min", rank=3, next="hpcrun logs 4711 --rank 3")
    )
    assert found.summary == "rank 3 is stopped, 11 min"
    assert found.rank == 3
    assert found.next == "hpcrun logs 4711 --rank 3"
    wrote(folder, 0, "step 1\n", 3)
    found = explained(tmp_path, Remark("the rank is in f (t.py:1)", stuck=False))
    assert found.summary == "the job wrote 3 s ago: nothing looks stuck; the rank is in f (t.py:1)"


def test_of_many_ranks_few_logs_are_read() -> None:
    silent: dict[int, float | None] = {rank: 600.0 - rank for rank in range(512)}
    silent[300], silent[400] = 720.0, None
    assert shown_ranks(silent) == [0, 1, 2, 300, 510, 511]


def test_an_empty_log_and_a_link_are_no_sign_of_a_rank(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "", 5)
    folder.rank_log(1, "out").symlink_to("/etc/passwd")
    assert last_writes(folder).ranks == {0: None, 1: None}


def test_lines_of_logs_are_quoted_without_their_colours(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "\x1b[32mINFO\x1b[0m step 4\x1b]0;title\x07\n", 2)
    assert "rank 0: 2 s ago: INFO step 4\n" in explanation_text(explained(tmp_path), 80).plain


def test_of_a_sweep_the_element_that_has_been_silent_for_the_longest_time(tmp_path: Path) -> None:
    elements = tuple(
        ElementStatus(index, f"4711_{index}", (), LastStatus(state, NOW_S), live=True, stale=False)
        for index, state in enumerate(("RUNNING", "RUNNING", "COMPLETED", "PENDING"))
    )
    item = RunStatus(run(), tmp_path, LastStatus("RUNNING", NOW_S), elements=elements)
    assert most_silent(item, NOW_S) is None
    for index, ago_s in enumerate((60, 700, 7000)):
        wrote(attempt(tmp_path, element=index), 0, "step\n", ago_s)
    assert most_silent(item, NOW_S) == 1


def test_the_srun_of_a_script_lets_the_other_tasks_run_on(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "step 1\n", 2)
    failed(folder, 1, 200)
    for plan, is_said in (
        ({"batch": {"by_srun": True}}, True),
        ({"batch": {"by_srun": True}, "requeue": {"restarts": 1, "on_failure": False}}, False),
        ({"batch": {"by_srun": False}}, False),
        ({"batch": {"name": "of an older version"}}, False),
        ({}, False),
    ):
        lines = [
            line for evidence in explained(tmp_path, plan=plan).evidence for line in evidence.lines
        ]
        assert (RUN_ON in lines) == is_said, plan


LOADER = (
    "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max "
    "number of worker in current system is 2, which is smaller\n"
)


def test_ranks_that_never_met_and_a_loader_with_too_few_cpus_are_said(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 2)
    wrote(folder, 0, "step 3\n", 2)
    wrote(folder, 0, LOADER, 3, "err")
    write(folder.path / "rank-0.alone", "{}")
    loader = "a DataLoader has 16 workers, and torch advises at most 2 with these CPUs"
    assert explained(tmp_path).summary.endswith(f"nothing looks stuck; {loader}")
    write(folder.path / "rank-1.alone", "{}")
    alone = "none of the 2 ranks was seen connected to another: each seems to work alone"
    assert explained(tmp_path).summary.endswith(f"nothing looks stuck; {alone}; {loader}")
    wrote(folder, 0, "step 3\n", 7000)
    wrote(folder, 0, "", 7000, "err")
    assert explained(tmp_path).summary.startswith(f"{alone}; ")


def test_ranks_that_compile_are_not_stuck(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 1)
    wrote(folder, 0, "starting\n", 7000)
    write(folder.warm, "{}")
    record = {"files": 212, "first": NOW_S - 300, "last": NOW_S - 4}
    write(folder.node_file("n0", "compiled"), json.dumps(record))
    found = explained(tmp_path)
    assert found.summary == "the ranks compile (212 new files, the last 4 s ago)"


def test_ranks_that_have_compiled_can_be_stuck(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 1)
    wrote(folder, 0, "starting\n", 7000)
    write(folder.warm, "{}")
    record = {"files": 212, "first": NOW_S - 900, "last": NOW_S - 600}
    write(folder.node_file("n0", "compiled"), json.dumps(record))
    assert "compile" not in explained(tmp_path).summary


@pytest.mark.parametrize(("ago_s", "is_told"), [(4, False), (5, True)])
def test_a_rank_that_completed_is_told_after_five_seconds(
    tmp_path: Path, ago_s: float, *, is_told: bool
) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "step 1\n", 2)
    wrote(folder, 1, "step 1\n", 6)
    failed(folder, 1, ago_s, status=0)
    sentence = "rank 1 ended 5 s ago with exit status 0, while 1 other rank runs"
    assert (sentence in explained(tmp_path).summary) == is_told


@pytest.mark.parametrize(("beat_s", "is_late"), [(65, False), (66, True)])
def test_a_heartbeat_is_late_a_minute_after_the_youngest(
    tmp_path: Path, beat_s: float, *, is_late: bool
) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 1, beat_s=5)
    node(folder, "n1", 1, 1, beat_s=beat_s)
    wrote(folder, 0, "step 1\n", 2)
    wrote(folder, 1, "step 1\n", 2)
    found = explained(tmp_path, plan={"requeue": {"times": 1}})
    assert ("no heartbeat from n1" in found.summary) == is_late
    heartbeat = next(each for each in found.evidence if each.who == "heartbeat")
    assert heartbeat.lines[1] == f"nodes (2): 5 s to {beat_s} s ago"


def test_eight_ranks_are_all_shown_and_of_nine_the_odd_ones() -> None:
    silent: dict[int, float | None] = {rank: 100.0 - rank for rank in range(9)}
    assert shown_ranks(silent) == [0, 1, 2, 3, 7, 8]
    del silent[8]
    assert shown_ranks(silent) == list(range(8))


def test_the_last_line_of_a_rank_has_a_readable_length(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    wrote(folder, 0, "x" * 130, 2)
    ranks = next(each for each in explained(tmp_path).evidence if each.who == "ranks")
    assert ranks.lines == (f"rank 0: 2 s ago: {'x' * 120}",)
