"""The sections of a run's page: as text, and when they are read."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.features.top.ranks import MOST_LINES, RankRow, RankState
from hpcrun.features.top.run_page_text import (
    RankColumns,
    attempt_lines,
    metric_lines,
    plan_lines,
    rank_heading,
    sparkline,
    title_text,
    use_lines,
)
from hpcrun.features.top.sections import (
    SHARE_OF_TIME,
    AttemptsSection,
    ExplainSection,
    MetricsSection,
    PlanSection,
    RanksSection,
    ScriptSection,
    Section,
    UseSection,
)
from hpcrun.job.run_paths import AttemptFolder, RunFolder
from hpcrun.runs.attempt import RESTART, Attempt, ExitRecord
from hpcrun.runs.metric_files import MetricsRow
from hpcrun.runs.record import LastStatus
from hpcrun.runs.use_samples import GpuUse, NodeUse, UseSample
from tests.unit.builders import run, write
from tests.unit.explain.test_running import attempt, wrote
from tests.unit.features.top.test_rows import item
from tests.unit.features.top.test_run_page import _Desk

BEGAN_S = time.mktime((2026, 11, 20, 10, 0, 0, 0, 0, -1))


def _attempt(
    number: int, started_s: float, exit_: ExitRecord | None = None, alive_s: float = 0.0
) -> Attempt:
    return Attempt(
        AttemptFolder(Path(f"/r/attempts/{number}")), number, "1", "n0", started_s, exit_, alive_s
    )


def _item(status: LastStatus, folder: Path = Path("/runs/r"), **record: Any) -> RunStatus:
    return RunStatus(run(**record), folder, status)


def test_the_head_says_state_size_and_the_time_that_goes_on() -> None:
    item = _item(
        LastStatus("RUNNING", 1000.0, elapsed_s=60, limit_s=3600),
        nodes=2,
        gpus_per_node=4,
        world_size=8,
    )
    text = title_text(item, 1030.0).plain
    assert text.startswith("RUNNING  ")
    assert text.endswith("2 nodes × 4 GPUs, 8 ranks  1:30 of 1:00:00")


def test_attempts_are_bars_over_real_time_with_the_reason_in_words() -> None:
    attempts = [
        _attempt(
            0,
            BEGAN_S + 600,
            ExitRecord(143, "TERM", BEGAN_S + 1200, reason="time_limit", again=True),
        ),
        _attempt(
            1,
            BEGAN_S + 1800,
            ExitRecord(
                1, "", BEGAN_S + 2100, reason="node_failure", again=True, how=RESTART, nodes=("n1",)
            ),
        ),
        _attempt(2, BEGAN_S + 2100),
    ]
    lines = [
        line.plain for line in attempt_lines(attempts, BEGAN_S, BEGAN_S + 2400, 80, is_over=False)
    ]
    assert lines == [
        "    10:00:00                        10:40:00",
        "    ├──────────────────────────────────────┤",
        "  1 ··········██████████                      10:00, time limit, requeued",
        "  2                     ··········█████       5:00, a node failed (n1),",
        "                                              restarted in the allocation",
        "  3                                    █████  5:00, runs",
        "",
        "█ running  · waiting     3 attempts: ran 20:00, waited 20:00",
    ]


def test_an_attempt_that_left_no_word_ends_with_its_last_heartbeat() -> None:
    attempts = [_attempt(0, BEGAN_S, alive_s=BEGAN_S + 60)]
    lines = [
        line.plain for line in attempt_lines(attempts, BEGAN_S, BEGAN_S + 9999, 120, is_over=True)
    ]
    assert lines[2].endswith("█  1:00, no record of its")
    assert lines[3].endswith("end, cause unknown")
    known = attempt_lines(attempts, BEGAN_S, BEGAN_S, 120, is_over=True, ending="ended as FAILED")
    assert known[2].plain.endswith("1:00, ended as FAILED")
    ended = [_attempt(0, BEGAN_S, ExitRecord(0, "", BEGAN_S + 60))]
    known = attempt_lines(ended, BEGAN_S, BEGAN_S, 80, is_over=True, ending="ended as COMPLETED")
    assert "1:00, completed" in known[2].plain
    assert attempt_lines([], BEGAN_S, BEGAN_S + 90, 80, is_over=False)[0].plain == (
        "No attempt has started; submitted 90 s ago."
    )


def test_an_end_before_the_start_by_another_clock_is_no_negative_time() -> None:
    attempts = [_attempt(0, BEGAN_S, ExitRecord(0, "", BEGAN_S - 60)), _attempt(1, BEGAN_S + 30)]
    lines = attempt_lines(attempts, BEGAN_S, BEGAN_S + 60, 80, is_over=False)
    assert lines[-1].plain.endswith("2 attempts: ran 0:30, waited 0:30")


def test_instead_of_ranks_that_never_started_there_is_a_sentence() -> None:
    section = RanksSection(_Desk(item("a")).reader)
    section.item = item("a", "FAILED")
    section.data = (_attempt(0, 40.0), [RankRow(0, RankState.NOT_STARTED)])
    (line,) = section.lines()
    assert line.plain.startswith("The job ended before it started a rank")


def test_ranks_fit_their_columns_and_control_nothing() -> None:
    rows = [
        RankRow(
            11, RankState.FAILED, "n\x1b[2J0", 90.0, 1, 95.0, "Key\x1b]0;x\x07Error: [bold]'a'"
        ),
        RankRow(3, RankState.NOT_STARTED),
    ]
    columns = RankColumns(rows, run())
    assert columns.heading() == "RANK  STATE        NODE         OUTPUT  LAST LINE"
    assert (
        columns.line(rows[0], 100.0).plain
        == "  11  failed (1)   n\\x1b[2J0      10 s  KeyError: [bold]'a'"
    )
    assert columns.line(rows[1], 100.0).plain == "   3  not started  -                 -  "
    sizes = {"first_node": 0, "nodes": 1, "on_exit": "end"}
    roles = [
        {"name": "server", "first_rank": 3, "ranks": 1, **sizes},
        {"name": "web", "first_rank": 4, "ranks": 9, **sizes},
    ]
    columns = RankColumns(rows, run(plan={"roles": roles}))
    assert [columns.line(row, 100.0).plain.split("  ")[0] for row in rows] == [" web 7", "server"]
    head = rank_heading(_attempt(1, 40.0), rows, 1, 100.0)
    assert head == "attempt 2 began 60 s ago; 1 of 2 ranks shown; 1 failed, 1 not started"


def test_one_metric_is_a_curve_and_all_have_their_last_value() -> None:
    values = [{"loss": 100.0 - step, "acc": step / 100} for step in range(100)]
    rows = (
        MetricsRow(0, int(step > 50), float(step), None, each) for step, each in enumerate(values)
    )
    lines = [line.plain for line in metric_lines(Metrics(("loss", "acc"), tuple(rows)), 3, 80, 19)]
    assert lines[0] == "acc by step (2 of 2: m next, M before); attempt 2 from step 51"
    assert max(map(len, lines)) <= 80
    assert lines[-2].startswith("  loss  ██")
    assert lines[-2].endswith("last 1, least 1, most 100")
    assert lines[-1].startswith("> acc   ▁")
    assert len(lines) <= 19
    assert metric_lines(Metrics((), ()), 0, 80, 19) == []
    nan = Metrics(("loss",), (MetricsRow(0, 0, 1.0, None, {"loss": float("nan")}),))
    lines = [line.plain for line in metric_lines(nan, 0, 80, 19)]
    assert lines == ["loss by step", "no values that are finite numbers", "", "last nan"]


def test_of_many_attempts_the_heading_of_a_metric_names_the_last_three() -> None:
    rows = [MetricsRow(0, number, 10.0 * number, None, {"loss": 1.0}) for number in range(5)]
    heading = metric_lines(Metrics(("loss",), tuple(rows)), 0, 80, 19)[0].plain
    assert heading.startswith("loss by step; attempt 3 from step 20, attempt 4")


def test_a_sparkline_is_the_mean_of_what_falls_into_a_column() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([0, 0, 1, 1], 2, 0.0, 1.0) == "▁█"
    assert sparkline([0.5, float("nan"), 0.5], 10, 0.0, 1.0) == "▅▅"
    assert sparkline([2, 2], 10) == "▁▁"
    assert sparkline([], 10) == sparkline([1], 0) == ""
    assert sparkline([5, 1e300, -1e300], 10, 0.0, 1.0)


def test_the_use_of_a_node_has_a_row_for_each_kind() -> None:
    samples = tuple(
        UseSample(
            BEGAN_S + 10 * n,
            n / 2,
            2**30 * n,
            1e6 * n,
            None,
            (GpuUse(0, n / 10, 2**33, 2**36, 250.0),),
        )
        for n in range(1, 9)
    )
    lines = [
        line.plain
        for line in use_lines([NodeUse("n0", 8, 2**34, samples), NodeUse("n1", None, None, ())], 80)
    ]
    assert lines[0] == "n0: 1:10 until 10:01:20"
    assert [line.split()[0] for line in lines[1:]] == ["GPU", "CPUs", "memory", "network"]
    assert lines[1].endswith("80% busy (mean 45%), 8.0 GB of 64.0 GB, 250 W")
    assert lines[2].endswith("4.0 of 8 busy (mean 2.2)")
    assert lines[3].endswith("8.0 GB of 16.0 GB (most 8.0 GB)")
    assert max(map(len, lines)) <= 80


def test_the_plan_shows_the_command_and_the_resources_without_secrets(
    subtests: pytest.Subtests,
) -> None:
    plan = {
        "scheduler": "slurm",
        "cpus_per_node": 8,
        "memory_mb": 65536,
        "directives": [["partition", "gpu"], ["exclusive", None]],
        "env": [["A", "1"], ["TOKEN", None]],
        "python": {"variable": "PATH", "executable": "/opt/python", "kind": "conda"},
        "modules": ["cuda"],
        "notes": ["a note\x1b[2J"],
    }
    item = _item(LastStatus("PENDING", 1.0), plan=plan, nodes=2, gpus_per_node=4, world_size=8)
    text = "\n".join(
        line.plain for line in plan_lines(item, "hpcrun submit\n  --gpus 8\n  train.py\n", 80)
    )
    assert "hpcrun submit\n  --gpus 8\n  train.py" in text
    for row in (
        "size         2 nodes × 4 GPUs, 8 ranks",
        "memory       64G per node",
        "time limit   1:00:00",
        "sbatch       --partition=gpu --exclusive",
        "variables    A=1\n               TOKEN=***",
        "notes        a note?[2J",
    ):
        with subtests.test(row=row):
            assert f"  {row}" in text
    assert plan_lines(_item(LastStatus("PENDING", 1.0), plan={}), "", 80)
    item = _item(
        LastStatus("PENDING", 1.0), plan={"scheduler": "slurm", "memory_mb": None}, walltime_s=None
    )
    lines = [line.plain for line in plan_lines(item, "", 80)]
    assert "  memory       the site's default" in lines
    assert "  time limit   no time limit requested" in lines
    here = _item(LastStatus("PENDING", 1.0), plan={"scheduler": "local", "memory_mb": None})
    assert not [line for line in plan_lines(here, "", 80) if "memory" in line.plain]


def test_a_script_is_shown_as_it_is(tmp_path: Path) -> None:
    write(RunFolder(tmp_path).script, "#!/bin/bash\n\techo [red]\x1b[2J\n")
    lines = ScriptSection(cast(Any, None)).read(_item(LastStatus("PENDING", 1.0), tmp_path))
    assert [line.plain for line in lines] == ["#!/bin/bash", "        echo [red]\\x1b[2J"]


def test_a_section_is_read_again_when_due_or_its_run_changed_and_later_where_it_takes_long() -> (
    None
):
    running = item("a")
    section = AttemptsSection(_Desk(running).reader)
    assert section.is_due(running, 100.0)
    section.end(running, 100.0, 100.5, data=())
    assert [section.is_due(running, now_s) for now_s in (110.4, 110.6)] == [False, True]
    assert section.is_due(replace(running, status=replace(running.status, attempt=1)), 101.0)
    ended = item("a", "FAILED")
    section.end(ended, 120.0, 120.5, data=())
    assert not section.is_due(ended, 10_000.0)
    section.end(ended, 200.0, 200.5, error="the file system does not respond")
    assert [section.is_due(ended, now_s) for now_s in (210.4, 210.6)] == [False, True]
    section.end(running, 100.0, 104.0, error="slow")
    due_s = 104.0 + SHARE_OF_TIME * 4.0
    assert [section.is_due(running, now_s) for now_s in (due_s - 0.1, due_s)] == [False, True]


def test_ranks_are_read_again_at_once_only_for_more_last_lines(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    for rank in range(MOST_LINES + 1):
        wrote(folder, rank, "a line\n", 60)
    status = LastStatus("RUNNING", 1000.0)
    running = _item(status, tmp_path, world_size=MOST_LINES + 1)
    section = RanksSection(_Desk(running).reader)
    section.end(running, 100.0, 100.0, section.read(running))
    assert section.is_due(running, 100.0)
    section.end(running, 100.0, 100.0, error="the file system does not respond")
    assert not section.is_due(running, 100.0)
    section.end(running, 100.0, 100.0, section.read(running))
    assert not section.is_due(running, 100.0)


@pytest.mark.parametrize(("ranks", "every_s"), [(32, 3.0), (33, 10.0)])
def test_few_ranks_are_read_more_often(tmp_path: Path, ranks: int, every_s: float) -> None:
    running = _item(LastStatus("RUNNING", 1000.0), tmp_path, world_size=ranks)
    section = RanksSection(_Desk(running).reader)
    section.end(running, 100.0, 100.0, section.read(running))
    assert not section.is_due(running, 99.9 + every_s)
    assert section.is_due(running, 100.0 + every_s)


@pytest.mark.parametrize(
    ("kind", "age_s", "is_due"),
    [
        (AttemptsSection, 9.9, False),
        (AttemptsSection, 10.0, True),
        (MetricsSection, 10.0, True),
        (UseSection, 10.0, True),
        (ExplainSection, 29.9, False),
        (ExplainSection, 30.0, True),
        (ScriptSection, 9999.0, False),
        (PlanSection, 9999.0, False),
    ],
)
def test_each_section_of_a_run_has_its_time_between_readings(
    kind: type[Section], age_s: float, *, is_due: bool
) -> None:
    running = item("a")
    section = kind(_Desk(running).reader)
    section.end(running, 100.0, 100.0, data=())
    assert section.is_due(running, 100.0 + age_s) == is_due
