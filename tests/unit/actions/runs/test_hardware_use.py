"""What a run has used, and what it should ask for next time: numbers, and nothing without enough
evidence.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.hardware_use import (
    GpuResult,
    had_little_memory_left,
    read_gpus,
    record_instead,
    recorded_uses,
    run_use,
    use_advice,
    use_rows,
)
from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.actions.status.status_details import Insight
from hpcrun.errors import PlanError, SchedulerError
from hpcrun.explain.ended import explain
from hpcrun.in_job.launch.sampler import line
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.record import LastStatus
from hpcrun.runs.use_samples import UseSummary
from hpcrun.views.details_text import insight_json, insight_rows
from hpcrun.views.gpu_table import recorded_json, recorded_tables
from tests.unit.builders import run, write

GB = 1 << 30
BUSY = UseSummary(
    seconds=600,
    nodes=1,
    cpus=6.0,
    cpus_peak=7.5,
    cpus_asked=8,
    memory_peak=40 * GB,
    memory_asked=64 * GB,
    gpus=2,
    gpu_busy=0.9,
    gpu_idle=0.05,
    gpu_memory=0.5,
    idle_cpus=4.0,
    watts=300.0,
)


@pytest.mark.parametrize(
    ("changes", "completed", "advice"),
    [
        ({}, True, None),
        (
            {"memory_peak": 18 * GB},
            True,
            "memory: at most 18.0 of 64 GB per node in use: --mem 24G is enough, and smaller "
            "requests start sooner",
        ),
        ({"memory_peak": 18 * GB}, False, None),  # it may have failed before its peak
        ({"memory_peak": 18 * GB, "seconds": 100}, True, None),
        ({"memory_peak": 1 * GB, "memory_asked": 4 * GB}, True, None),  # not worth it
        ({"memory_peak": 1 * GB, "memory_asked": None}, True, None),
        (
            {"memory_peak": 62 * GB},
            False,
            "memory: at most 62.0 of 64 GB per node in use: ask for --mem 81G",
        ),
        (
            {"gpu_idle": 0.4, "idle_cpus": 7.8},
            True,
            "the GPUs were idle for 40% of the time while 7.8 of 8 CPUs per node were busy, most "
            "likely in the "
            "data loader: ask for --cpus-per-gpu 8, and use as many workers",
        ),
        (
            {"gpu_idle": 0.4, "idle_cpus": 2.0, "cpus_peak": 3.0},
            True,
            "the GPUs were idle for 40% of the time while 2.0 of 8 CPUs per node were busy, most "
            "likely in the "
            "data loader: use more of its workers (num_workers=3)",
        ),
        (
            {"gpu_idle": 0.4, "idle_cpus": 0.2, "cpus_peak": 3.0},
            True,
            "the GPUs were idle for 40% of the time while 0.2 of 8 CPUs per node were busy: the "
            "CPUs were not the "
            "limit: they waited, for example for the storage or the network",
        ),
        (
            {"gpu_idle": 0.5, "gpus_unused": 1},
            True,
            "1 of 2 GPUs was idle throughout: ask for --gpus 1, or give each rank a GPU of its own",
        ),
        (
            {"gpus": 8, "gpu_idle": 0.125, "gpus_unused": 1},
            True,
            "1 of 8 GPUs was idle throughout: ask for --gpus 7, or give each rank a GPU of its own",
        ),
        (
            {"gpu_idle": 1.0, "gpus_unused": 2},
            True,
            "both GPUs were idle throughout: does the script use CUDA? "
            "If it needs no GPU: --gpus 0",
        ),
        (
            {"gpu_idle": 0.3, "idle_cpus": None},
            True,
            "the GPUs were idle for 30% of the time, but never all of a node at once: compare the "
            "ranks' shares of "
            "the work",
        ),
        (
            {"cpus_peak": 2.4},
            True,
            "CPUs: at most 2.4 of 8 per node busy: --cpus-per-gpu 2 is enough",
        ),
        ({"cpus_peak": 2.4}, False, None),
        (
            {"cpus_peak": 2.4, "gpus": 0, "gpu_idle": None, "gpu_busy": None, "idle_cpus": None},
            True,
            "CPUs: at most 2.4 of 8 per node busy: --cpus 4 is enough",
        ),
        ({"cpus_peak": 1.0, "cpus_asked": 4}, True, None),
    ],
)
def test_advice(changes: dict[str, Any], completed: bool, advice: str | None) -> None:
    assert use_advice(replace(BUSY, **changes), completed=completed) == ([advice] if advice else [])


def test_the_use_in_short_words() -> None:
    assert use_rows(BUSY) == [
        ("GPUs", "2 GPUs, 90% busy, idle 5% of the time, memory 50% full at most, 300 W"),
        ("CPUs", "6.0 of 8 busy, 7.5 at most"),
        ("memory", "40.0 GB of 64.0 GB (62%) at most"),
    ]
    lean = UseSummary(10, 2, 0.5, 0.5, None, 5 << 20, None, network=2.5e6, rdma=3e9)
    assert use_rows(lean) == [
        ("CPUs", "0.5 busy per node, 0.5 at most"),
        ("memory", "5 MB per node at most"),
        ("network", "2.50 MB/s, RDMA 3.00 GB/s per node"),
    ]


def ended(
    folder: Path, state: str = "COMPLETED", *, message: str = "", reason: str = ""
) -> RunStatus:
    """A run of two attempts on two nodes, whose second GPU is mostly idle."""
    gpus = [(0, 0.8, 4 * GB, 8 * GB, 200.0), (1, 0.0, GB, 8 * GB, None)]
    for attempt in (0, 1):
        place = folder / f"elements/0/attempts/{attempt}"
        began = 1000.0 * (attempt + 1)
        write(place / "start", json.dumps({"job_id": "7", "host": "a", "started": began}))
        write(place / "hosts", "b\na\n")
        samples = "".join(line(began + at, 2, 2 * GB, 1000, None, gpus) for at in (100, 200, 300))
        head = json.dumps({"started": began, "cpus": 8, "memory_limit": 32 * GB})
        for node in ("a", "b"):
            write(place / f"node-{node}.use", f"{head}\n{samples}")
    exit_ = {"status": 143, "signal": "", "ended": 2400.0, "message": message, "reason": reason}
    write(folder / "elements/0/attempts/1/exit", json.dumps(exit_))
    return RunStatus(run(job_id="7"), folder, LastStatus(state, 3000.0, final=True, elapsed_s=1400))


def test_all_attempts_of_a_run_count(tmp_path: Path) -> None:
    ended(tmp_path)
    found = run_use(tmp_path)
    assert found is not None
    assert found.seconds == 600
    assert found.nodes == 2
    assert found.gpus == 4
    assert found.gpu_idle == 0.5
    assert run_use(tmp_path / "other") is None


def requeued(folder: Path, *busy_of_attempts: tuple[str, list[float]]) -> UseSummary:
    """The use of a run whose attempts each had one node, with these busy shares of its GPUs."""
    for number, (node, shares) in enumerate(busy_of_attempts):
        attempt = folder / f"elements/0/attempts/{number}"
        began = 1000.0 * (number + 1)
        gpus = [(index, busy, GB, 8 * GB, None) for index, busy in enumerate(shares)]
        write(attempt / "start", json.dumps({"job_id": "7", "host": node, "started": began}))
        write(attempt / "hosts", f"{node}\n")
        head = json.dumps({"started": began, "cpus": 8, "memory_limit": 32 * GB})
        sample = line(began + 200, 2, 2 * GB, 1000, None, gpus)
        write(attempt / f"node-{node}.use", f"{head}\n{sample}")
    use = run_use(folder)
    assert use is not None
    return use


def test_a_run_requeued_on_another_node_has_the_gpus_and_nodes_of_one_attempt(
    tmp_path: Path,
) -> None:
    use = requeued(tmp_path, ("a", [0.8, 0.9]), ("b", [0.8, 0.9]))
    assert use.gpus == 2
    assert use.nodes == 1
    assert use.gpus_unused == 0


def test_a_gpu_that_only_a_failed_attempt_left_idle_was_used(tmp_path: Path) -> None:
    use = requeued(tmp_path, ("a", [0.0, 0.0]), ("b", [0.8, 0.9]))
    assert use.gpus == 2
    assert use.gpus_unused == 0


def test_a_gpu_that_was_idle_in_every_attempt_was_not_used(tmp_path: Path) -> None:
    use = requeued(tmp_path, ("a", [0.8, 0.0]), ("b", [0.0, 0.9]))
    assert use.gpus == 2
    assert use.gpus_unused == 1


def test_status_verbose_shows_the_use_and_the_advice(tmp_path: Path) -> None:
    item = ended(tmp_path)
    rows = insight_rows(item, Insight(), 3000.0)
    assert [label for label, _ in rows] == ["GPUs", "CPUs", "memory", "network", "advice", "advice"]
    assert (
        dict(rows[:1])["GPUs"]
        == "4 GPUs, 40% busy, idle 50% of the time, memory 50% full at most, 200 W"
    )
    assert insight_json(item, Insight())["use"]["gpu_idle"] == 0.5
    assert insight_rows(replace(item, folder=tmp_path / "none"), Insight(), 3000.0) == []


def test_the_details_of_a_named_element_are_its_own(tmp_path: Path) -> None:
    item = replace(ended(tmp_path), status=LastStatus("RUNNING", 3000.0))
    for index in (0, 2):
        attempt = RunFolder(tmp_path).element(index).attempt(0)
        write(attempt.rank_log(0, "out"), f"element {index}\n")
        write(attempt.start, '{"job_id": "4711", "host": "a", "started": 1000}')
    element = ElementStatus(2, "4711_2", (), LastStatus("RUNNING", 3000.0))
    assert insight_json(replace(item, elements=(element,)), Insight())["last_line"] == "element 2"


def test_status_verbose_shows_the_warning_of_idle_gpus(tmp_path: Path) -> None:
    item = replace(ended(tmp_path), status=LastStatus("RUNNING", 3000.0, elapsed_s=1400))
    idle = tmp_path / "elements/0/attempts/1/idle"
    write(idle, json.dumps({"since": 1000.0, "warned": 2500.0, "ends": 2800.0}))
    assert dict(insight_rows(item, Insight(), 3000.0))["idle"].startswith(
        "all GPUs for 25:00: it ends at "
    )
    write(idle, '{"since": 1}')
    assert "idle" not in dict(insight_rows(item, Insight(), 3000.0))


def test_gpu_shows_what_a_run_that_has_ended_recorded(tmp_path: Path) -> None:
    (use,) = recorded_uses(ended(tmp_path))
    assert list(use.nodes) == ["b", "a"]
    assert [(key, one.gpu_busy, one.gpu_idle) for key, one in use.gpus.items()] == [
        (("a", 0), 0.8, 0),
        (("a", 1), 0, 1),
        (("b", 0), 0.8, 0),
        (("b", 1), 0, 1),
    ]
    assert [table.row_count for table in recorded_tables([use])] == [4, 2]
    document = json.loads(json.dumps(recorded_json([use])))
    assert document["gpus"][1] == {
        "element": None,
        "node": "a",
        "index": 1,
        "busy": 0,
        "idle": 1,
        "memory": 0.125,
        "power_w": None,
    }
    assert document["nodes"][0]["memory_peak"] == 2 * GB


def test_gpu_of_a_run_without_samples_says_so(tmp_path: Path) -> None:
    with pytest.raises(
        PlanError, match="is FAILED: its allocation has ended, and it recorded no use"
    ):
        next(recorded_uses(RunStatus(run(), tmp_path, LastStatus("FAILED", 1.0, final=True))))


def test_gpu_shows_each_element_of_a_sweep_that_has_ended(tmp_path: Path) -> None:
    item = ended(tmp_path)
    (tmp_path / "elements/2").mkdir()
    (tmp_path / "elements/0/attempts").rename(tmp_path / "elements/2/attempts")
    ended(tmp_path)
    elements = tuple(ElementStatus(index, f"7_{index}", (), item.status) for index in range(4))
    uses = list(recorded_uses(replace(item, elements=elements)))
    assert [use.element for use in uses] == [0, 2]  # the others recorded nothing
    first = recorded_tables(uses)[-1].columns[0]
    assert str(first.header) == "ELEMENT"
    assert [str(cell) for cell in first.cells] == ["0", "0", "2", "2"]
    assert {row["element"] for row in recorded_json(uses)["gpus"]} == {0, 2}


def test_gpu_of_a_running_job_without_nvidia_smi_on_its_nodes_shows_the_record(
    tmp_path: Path,
) -> None:
    item = replace(ended(tmp_path), status=LastStatus("RUNNING", 3000.0))
    result = GpuResult("it", (), {"a": "no nvidia-smi there"}, {})
    use = record_instead(item, result)
    assert use is not None
    assert list(use.gpus) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert record_instead(replace(item, folder=tmp_path / "none"), result) is None


def test_explain_shows_the_use_of_a_run_that_completed_and_that_gpus_were_idle(
    tmp_path: Path,
) -> None:
    found = explain(ended(tmp_path), ())
    assert found.summary == "the job completed with exit status 0"
    assert [one.who for one in found.evidence] == ["attempts", "use", "advice"]
    advice = found.evidence[-1].lines[0]
    assert advice.startswith("2 of 4 GPUs were idle throughout: ask for --gpus 2")
    assert found.fix == ""
    message = "cancelled: its GPUs were idle for 30 min"
    found = explain(ended(tmp_path, "CANCELLED", message=message, reason="idle"), ())
    assert found.summary == message
    assert found.next == "hpcrun logs --all-ranks 7"
    assert "--cancel-idle" in found.fix


@pytest.mark.parametrize(
    ("changes", "advice"),
    [
        ({"seconds": 180, "gpus": 1, "gpus_unused": 1}, "the GPU was idle throughout"),
        ({"gpus": 4, "gpus_unused": 4}, "all 4 GPUs were idle throughout"),
        ({"gpus": 8, "gpus_unused": 3}, "3 of 8 GPUs were idle throughout: ask for --gpus 5"),
        ({"gpu_idle": 0.25}, "the GPUs were idle for 25% of the time"),
        ({"memory_peak": 60 * GB}, "memory: at most 60.0 of 64 GB per node in use: ask for"),
        ({"memory_peak": 3 * GB, "memory_asked": 8 * GB}, "--mem 4G is enough"),
        ({"cpus_peak": 2.4, "cpus_asked": 5, "gpus": 0}, "--cpus 4 is enough"),
    ],
)
def test_advice_begins_at_its_limit(changes: dict[str, Any], advice: str) -> None:
    [text] = use_advice(replace(BUSY, **changes), completed=True)
    assert advice in text


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": 179, "gpus_unused": 2},
        {"gpu_idle": 0.24},
        {"memory_peak": 32 * GB},
        {"memory_peak": 58 * GB},
        {"memory_peak": 3 * GB, "memory_asked": 7 * GB},
        {"cpus_peak": 2.0, "cpus_asked": 4, "gpus": 0},
        {"cpus_peak": 4.0},
        {"cpus_peak": 3.9, "gpus": 8},
    ],
    ids=str,
)
def test_below_its_limit_there_is_no_advice(changes: dict[str, Any]) -> None:
    assert use_advice(replace(BUSY, **changes), completed=True) == []


@pytest.mark.parametrize(
    ("peak", "asked", "little"), [(81, 100, True), (80, 100, False), (81, None, False)]
)
def test_more_than_80_percent_of_the_memory_is_much(
    peak: int, asked: int | None, little: bool
) -> None:
    assert had_little_memory_left(replace(BUSY, memory_peak=peak, memory_asked=asked)) is little


GPU_LINE = "{}, GPU-1, NVIDIA A100, 97, 71234, 81920, 402.35, 400.00, 61"


def running(folder: Path, answer: str, **said: Any) -> tuple[RunStatus, dict[str, str]]:
    """A job of two nodes with two ranks each, and srun with this answer."""
    attempt = folder / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "7", "host": "a", "started": 5.0}))
    write(attempt / "hosts", "a\nb\n")
    for node, first in (("a", 0), ("b", 2)):
        start = {"node": node, "first_rank": first, "ranks": 2}
        write(attempt / f"node-{node}.start", json.dumps(start))
    write(folder / "bin/srun", f"#!/bin/sh\n{answer}\n").chmod(0o755)
    item = RunStatus(run(job_id="7", **said), folder, LastStatus("RUNNING", 5.0), live=True)
    return item, {"PATH": f"{folder}/bin:/usr/bin:/bin"}


def test_the_gpus_of_all_nodes_have_the_ranks_that_use_them(tmp_path: Path) -> None:
    lines = [f"b\tgpu\t{GPU_LINE.format(index)}" for index in (0, 1)]
    lines += [f"a\tgpu\t{GPU_LINE.format(index)}" for index in (0, 1)]
    answer = write(tmp_path / "answer", "\n".join(lines))
    result = read_gpus(*running(tmp_path, f"cat {answer}"))
    shown = [(row.node, row.rank, row.gpu.index) for row in result.rows]
    assert shown == [("a", 0, 0), ("a", 1, 1), ("b", 2, 0), ("b", 3, 1)]
    assert result.without == {}


def test_gpus_that_are_not_as_many_as_the_ranks_are_of_no_rank(tmp_path: Path) -> None:
    answer = write(tmp_path / "answer", f"a\tgpu\t{GPU_LINE.format(0)}\nb\tnone\tno GPU\n")
    result = read_gpus(*running(tmp_path, f"cat {answer}"))
    assert [(row.node, row.rank) for row in result.rows] == [("a", None)]
    assert result.without == {"b": "no GPU"}


def test_a_node_that_does_not_answer_is_named(tmp_path: Path) -> None:
    answer = write(tmp_path / "answer", f"a\tgpu\t{GPU_LINE.format(0)}\n")
    assert read_gpus(*running(tmp_path, f"cat {answer}")).without == {"b": "no response"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("echo no step >&2; echo no step >&2; exit 1", "cannot query the nodes: no step"),
        ("exit 3", "cannot query the nodes: srun ended with 3"),
        ("exit 124", "no node answered within "),
    ],
    ids=["words", "status", "late"],
)
def test_why_no_node_has_answered(tmp_path: Path, answer: str, problem: str) -> None:
    with pytest.raises(SchedulerError, match=problem):
        read_gpus(*running(tmp_path, answer))
