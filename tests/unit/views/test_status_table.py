"""The table of status at several widths."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.status.run_status import ElementStatus, RunStatus, StatusResult, combine
from hpcrun.runs.record import LastStatus
from hpcrun.views.details_text import detail_lines
from hpcrun.views.status_table import (
    never_starts_lines,
    status_json,
    status_table,
    waiting_lines,
    why_text,
)
from hpcrun.views.text import short_size
from tests.unit.given import drawn, run

MEMORY = (
    "rank 1 on l40s-1 failed first: the GPU ran out of memory: 2.00 GiB more were asked for, 36.01 "
    "GiB were allocated "
    "and 6.52 GiB reserved but unused, of 44.39 GiB"
)


def item_of(state: str = "PENDING", asked_s: float = 1000.0, **said: Any) -> RunStatus:
    return RunStatus(run(), Path("/runs/it"), LastStatus(state, asked_s, **said))


def table(width: int, state: str, **said: Any) -> list[str]:
    return drawn(
        status_table(StatusResult((item_of(state, elapsed_s=20, **said),)), 1000.0, width), width
    )


def test_old_silent_and_requeued_runs_say_so() -> None:
    for missed_s, words in ((None, "as of 2 min ago"), (1000.0, "last seen running 2 min ago")):
        old = replace(item_of("RUNNING", 880.0, missed_s=missed_s), stale=True)
        assert why_text(old, 1000.0).endswith(words)
    result = StatusResult(
        (replace(item_of("RUNNING", elapsed_s=7200, hosts="a100-[1-2]"), silent_s=725.0),)
    )
    assert drawn(status_table(result, 1000.0, 100), 100)[1].endswith("silent 12 min, a100-[1-2]")
    assert status_json(result)["runs"][0]["silent_s"] == 725
    plan = {"requeue": {"times": 2, "restarts": 0}}
    status = LastStatus("RUNNING", 1000.0, attempt=2, before="time limit")
    item = RunStatus(run(plan=plan), Path("/runs/it"), status)
    assert why_text(item, 1000.0) == "attempt 3/3 (before: time limit)"
    assert why_text(replace(item, run=run()), 1000.0) == "attempt 3 (before: time limit)"
    over = replace(status, state="TIMEOUT", final=True, reason="time limit")
    assert why_text(replace(item, status=over), 1000.0) == "attempt 3/3, time limit"


@pytest.mark.parametrize("width", [44, 60, 80, 100])
def test_a_long_reason_takes_three_lines_at_most(width: int) -> None:
    lines = table(width, "FAILED", final=True, cause=MEMORY)
    assert len(lines) == 1 + 3
    assert lines[-1].endswith(" …")
    assert max(map(len, lines)) <= width
    assert table(400, "FAILED", final=True, cause=MEMORY)[-1].endswith(
        "of 44.39 GiB (rank 1, l40s-1)"
    )


def test_the_size_of_a_job_without_gpus_is_its_nodes() -> None:
    for nodes, gpus, size in ((2, 4, "2×4"), (2, 0, "2 nodes"), (1, 0, "1 node")):
        assert short_size(run(nodes=nodes, gpus_per_node=gpus)) == size
    on_a_machine_without_gpus = run(
        nodes=1, gpus_per_node=2, plan={"scheduler": "local", "local_gpus": []}
    )
    assert short_size(on_a_machine_without_gpus) == "1 node"


def test_the_exception_comes_before_its_rank() -> None:
    for cause, shown in (
        (
            "rank 0 on a100-1 failed first: KeyError: 'x' at t.py:9",
            "KeyError: 'x' at t.py:9 (rank 0, a100-1)",
        ),
        ("rank 3 failed: ValueError: x: y", "ValueError: x: y (rank 3)"),
        (
            "rank 3 on b failed first with exit status 9",
            "rank 3 on b failed first with exit status 9",
        ),
        ("the batch script was killed", "the batch script was killed"),
    ):
        assert why_text(item_of("FAILED", final=True, cause=cause), 1000.0) == shown


def test_a_failed_sweep_begins_with_the_number_of_failed_elements() -> None:
    ends = [
        LastStatus(state, 1000.0, final=True)
        for state in ("FAILED", "COMPLETED", "TIMEOUT", "CANCELLED")
    ]
    elements = tuple(ElementStatus(index, f"7_{index}", (), end) for index, end in enumerate(ends))
    status = replace(combine(ends, 60), cause="rank 0 on a100-1 failed: KeyError: 'x'")
    item = RunStatus(run(), Path("/runs/it"), status, elements=elements)
    assert why_text(item, 1000.0) == "2 of 4 failed: KeyError: 'x' (rank 0, a100-1)"
    runs = replace(status, state="RUNNING", final=False, reason="4 elements: 2 running, 2 failed")
    assert why_text(replace(item, status=runs), 1000.0).endswith(f"a100-1), {runs.reason}")


def test_reasons_are_readable_before_the_size_and_absent_where_they_do_not_apply() -> None:
    assert "SIZE" in table(100, "FAILED", cause=MEMORY)[0]
    narrow = table(80, "FAILED", cause=MEMORY)
    assert "SIZE" not in narrow[0]
    assert "the GPU ran out of memory" in narrow[1]
    waiting = table(100, "PENDING", reason="QOSMaxGRESPerUser")
    assert "your running jobs have reached the QOS limit" in " ".join(" ".join(waiting).split())
    assert "QOS" not in "".join(table(100, "CANCELLED", final=True, reason="QOSMaxGRESPerUser"))
    assert "NodeDown" in "".join(table(100, "NODE_FAIL", final=True, reason="NodeDown"))


def test_a_pending_job_is_told_with_its_reason_its_start_and_what_to_do_if_it_never_starts() -> (
    None
):
    item = item_of(reason="PartitionNodeLimit")
    assert why_text(item, 1000.0).startswith(
        "never starts: requests more nodes than the partition allows (Partition"
    )
    assert never_starts_lines(item) == [
        f"hpcrun: job {item.run.job_id} is pending: requests more nodes than the partition allows "
        "(PartitionNodeLimit). It will never start: use fewer --nodes, or another --partition "
        "(`scontrol show "
        "partition`).",
        f"hint: hpcrun cancel {item.run.job_id}",
    ]
    cancelled = item_of("CANCELLED", final=True, reason="PartitionNodeLimit")
    assert not any(map(never_starts_lines, (item_of(reason="Resources"), item_of(), cancelled)))
    sweep = item_of(reason="2 elements: 2 pending")
    stuck, free = (
        ElementStatus(
            index, f"4711_{index}", (), LastStatus("PENDING", 1000.0, reason=reason), live=True
        )
        for index, reason in enumerate(("PartitionNodeLimit", "Resources"))
    )
    assert replace(sweep, elements=(stuck, stuck)).never_starts
    assert not replace(sweep, elements=(stuck, free)).never_starts
    item = item_of(reason="Resources", start_s=4600.0)
    (line,) = waiting_lines(item, 1000.0)
    assert line.startswith(
        f"hpcrun: job {item.run.job_id} is PENDING: next in the queue, waiting for free resources"
    )
    assert "(Resources), expected 1970-01-01 " in line
    assert ", in 1:00:00, " in line
    assert waiting_lines(item_of(), 1000.0) == [f"hpcrun: job {item.run.job_id} is PENDING"]
    never = item_of(reason="PartitionNodeLimit")
    # the hint comes where the wait ends
    assert waiting_lines(never, 1000.0) == never_starts_lines(never)[:1]


def test_long_text_is_folded_between_words_below_its_own_column() -> None:
    item = RunStatus(
        run(), Path("/runs/a/folder/that/is/longer/than/the/terminal"), LastStatus("PENDING", 0.0)
    )
    more = [
        ("advice", "Wait for them, ask for fewer GPUs, CPUs or less memory, or use another --qos.")
    ]
    assert detail_lines(item, 44, more) == [
        "20260102-030405-train-0a1b",
        "  advice       Wait for them, ask for fewer",
        "               GPUs, CPUs or less memory, or",
        "               use another --qos.",
        "  folder       /runs/a/folder/that/is/longer/than/the/terminal",
    ]
