"""The table of status at several widths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.text import Text

from hpcrun.actions.status.run_status import (
    ElementStatus,
    RunStatus,
    StatusResult,
    Wait,
    combine,
    element_row,
)
from hpcrun.errors import SchedulerError, UsageError
from hpcrun.job.run_paths import RoleRanks
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.role_states import RoleState
from hpcrun.views.details_text import detail_lines
from hpcrun.views.status_table import (
    FIELDS,
    check_columns,
    command_text,
    lost_line,
    never_starts_lines,
    only_elements,
    status_csv,
    status_json,
    status_table,
    waiting_lines,
    why_text,
    with_arguments,
    with_element_rows,
)
from hpcrun.views.text import short_size
from tests.unit.builders import drawn, run

MEMORY = (
    "rank 1 on l40s-1 failed first: the GPU ran out of memory: 2.00 GiB more were asked for, 36.01 "
    "GiB were allocated "
    "and 6.52 GiB reserved but unused, of 44.39 GiB"
)
ROLE: dict[str, Any] = {
    "name": "server",
    "first_rank": 0,
    "ranks": 1,
    "first_node": 0,
    "nodes": 1,
    "on_exit": "end",
}


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


def test_the_size_of_a_job_without_gpus_is_its_nodes(subtests: pytest.Subtests) -> None:
    for nodes, gpus, size in ((2, 4, "2×4"), (2, 0, "2 nodes"), (1, 0, "1 node")):
        with subtests.test(nodes=nodes):
            assert short_size(run(nodes=nodes, gpus_per_node=gpus)) == size
    on_a_machine_without_gpus = run(
        nodes=1, gpus_per_node=2, plan={"scheduler": "local", "local_gpus": []}
    )
    assert short_size(on_a_machine_without_gpus) == "1 node"


def test_the_exception_comes_before_its_rank(subtests: pytest.Subtests) -> None:
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
        with subtests.test(cause=cause):
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


def test_columns_are_named_once_each_and_an_unknown_one_is_refused() -> None:
    assert check_columns([]) == ()
    assert check_columns(["name, why", "run_id,,name"]) == ("name", "why", "run_id")
    with pytest.raises(UsageError, match="--columns sate: no such column") as refused:
        check_columns(["name", "sate"])
    assert "state" in str(refused.value.hint)
    with pytest.raises(UsageError) as refused:
        check_columns(["x"])
    assert str(refused.value.hint).startswith(
        "name, job, profile, state, size, elapsed, limit, why, run_id, "
    )


def test_chosen_columns_have_the_fields_of_the_json_and_are_never_cut_or_dropped() -> None:
    item = item_of("RUNNING", elapsed_s=5, reason="a\nb", hosts="n1")
    lines = drawn(
        status_table(
            StatusResult((item,)), 0.0, 200, ("state", "run_id", "folder", "signal", "why")
        ),
        200,
    )
    assert lines == [
        "STATE    RUN_ID                      FOLDER    SIGNAL  NODES (REASON)",
        "RUNNING  20260102-030405-train-0a1b  /runs/it  -       a?b",
    ]
    cause = item_of("FAILED", final=True, cause=" ".join(["word"] * 40))
    assert len(drawn(status_table(StatusResult((cause,)), 0.0, 60, ("why",)), 60)) > 4


def test_states_have_colours_and_numbers_stand_on_the_right() -> None:
    items = [
        item_of("COMPLETED", final=True),
        item_of("RUNNING"),
        item_of("TIMEOUT", final=True),
        item_of("SUSPENDED"),
    ]
    columns = {
        str(column.header): column
        for column in status_table(StatusResult(tuple(items)), 0.0, 200).columns
    }
    assert list(columns) == [
        "NAME",
        "JOB",
        "PROFILE",
        "STATE",
        "SIZE",
        "ELAPSED",
        "LIMIT",
        "NODES (REASON)",
    ]
    assert [str(cast("Text", cell).style) for cell in columns["STATE"].cells] == [
        "green",
        "cyan",
        "red",
        "",
    ]
    assert {str(cast("Text", cell).style) for cell in columns["NAME"].cells} == {""}
    right = {heading for heading, column in columns.items() if column.justify == "right"}
    assert right == {"ELAPSED", "LIMIT"}
    assert [heading for heading, column in columns.items() if not column.no_wrap] == [
        "NODES (REASON)"
    ]


@pytest.mark.parametrize(
    ("width", "headings"),
    [
        (88, "NAME JOB PROFILE STATE ELAPSED LIMIT NODES (REASON)"),
        (79, "NAME JOB STATE ELAPSED LIMIT NODES (REASON)"),
        (70, "NAME JOB STATE ELAPSED NODES (REASON)"),
        (60, "NAME JOB STATE NODES (REASON)"),
        (46, "NAME JOB STATE NODES (REASON)"),
        (40, "NAME JOB STATE"),
        (20, "NAME STATE"),
    ],
)
def test_a_narrow_table_cuts_names_and_has_fewer_columns(width: int, headings: str) -> None:
    item = item_of("RUNNING", elapsed_s=90061, hosts="a100-[1-2]")
    item = replace(item, run=replace(item.run, name="a-name-of-twenty-six-chars"))
    lines = drawn(status_table(StatusResult((item,)), 0.0, width), width)
    assert " ".join(lines[0].split()) == headings
    assert max(map(len, lines)) <= width


def sweep_of(*states: str) -> RunStatus:
    """A sweep with elements 0, 1, and so on in these states."""
    elements = tuple(
        ElementStatus(index, f"7_{index}", (("lr", str(index)),), LastStatus(state, 1000.0))
        for index, state in enumerate(states)
    )
    return replace(item_of("RUNNING"), elements=elements)


def test_named_elements_are_kept_and_become_rows() -> None:
    sweep, alone = sweep_of("RUNNING", "PENDING", "RUNNING"), item_of("RUNNING")
    alone = replace(alone, run=run("r2"))
    result = StatusResult((sweep, alone))
    chosen = only_elements(result, {sweep.run.run_id: {0, 2}, "r2": None})
    assert [element.index for element in chosen.runs[0].elements] == [0, 2]
    assert chosen.runs[1] is alone
    assert only_elements(result, {}) == result
    rows = with_element_rows(chosen).runs
    assert [(row.run.name, row.run.job_id, row.about) for row in rows] == [
        ("train/0", "7_0", "lr=0"),
        ("train/2", "7_2", "lr=2"),
        ("r2", "4711", ""),
    ]
    assert with_element_rows(chosen, {"r2"}) == chosen
    assert len(with_element_rows(chosen, {sweep.run.run_id}).runs) == 3


PLACE = {"link": 2, "links": 4, "first": "r0"}
WAIT = Wait("r0", "prep", "7", "ok", "RUNNING", over=False)
NEXT = Wait("r1", "next", None, "any", "PENDING", over=False)


@pytest.mark.parametrize(
    ("status", "changes", "record", "text"),
    [
        (
            {"state": "FAILED", "exit_status": 3, "final": True, "hosts": "n1"},
            {},
            {},
            "exit status 3",
        ),
        ({"state": "TIMEOUT", "exit_status": 3, "final": True, "hosts": "n1"}, {}, {}, "n1"),
        ({"state": "FAILED", "exit_status": 0, "final": True, "hosts": "n1"}, {}, {}, "n1"),
        ({"state": "FAILED", "exit_status": 3, "cause": "it", "hosts": "n1"}, {}, {}, "it"),
        ({"state": "RUNNING"}, {"about": "lr=1"}, {}, "lr=1"),
        (
            {"state": "RUNNING"},
            {},
            {"plan": {"requeue": {"times": 1, "restarts": 2}}},
            "attempt 1/4",
        ),
        ({"state": "FAILED", "final": True}, {}, {"plan": {"requeue": {"times": 1}}}, ""),
        ({"state": "RUNNING"}, {}, {"plan": {"requeue": None}}, ""),
        (
            {"state": "RUNNING", "attempt": 2},
            {},
            {"plan": {"requeue": {"restarts": 1}}},
            "attempt 3",
        ),
        ({"state": "RUNNING"}, {}, {"chain": PLACE}, "link 2/4"),
        ({"state": "COMPLETED", "final": True}, {}, {"chain": PLACE}, ""),
        (
            {"state": "PENDING", "reason": "Dependency"},
            {"waits": (WAIT, NEXT)},
            {"chain": PLACE},
            "link 2/4, after next (None): PENDING",
        ),
        (
            {"state": "CANCELLED", "final": True, "reason": "cancelled before it started"},
            {"waits": (WAIT, NEXT)},
            {"chain": PLACE},
            "link 2/4, never started, after prep (7): RUNNING",
        ),
        (
            {"state": "PENDING", "reason": "Priority"},
            {"waits": (WAIT, NEXT)},
            {},
            "after prep (7): RUNNING, next (None): PENDING, other jobs have a higher priority "
            "(Priority)",
        ),
        ({"state": "PENDING", "hosts": "n1"}, {"waits": (WAIT,)}, {}, "after prep (7): RUNNING"),
        ({"state": "RUNNING", "reason": "Priority"}, {}, {}, "Priority"),
        ({"state": "PENDING", "reason": "Own"}, {}, {}, "Own"),
        ({"state": "FAILED", "reason": "NonZeroExitCode", "hosts": "n1"}, {}, {}, "n1"),
        (
            {"state": "FAILED", "reason": "NodeDown", "cause": "NodeDown: n1"},
            {},
            {},
            "NodeDown: n1",
        ),
        ({"state": "FAILED", "reason": "x", "cause": "y", "final": True}, {}, {}, "y, x"),
        (
            {"state": "FAILED", "reason": "x", "cause": "y", "final": True},
            {},
            {"plan": {"roles": [ROLE]}},
            "y",
        ),
        ({"state": "FAILED", "reason": "x", "cause": "y"}, {}, {"plan": {"roles": [ROLE]}}, "y, x"),
        ({"state": "FAILED", "reason": "x", "final": True}, {}, {"plan": {"roles": [ROLE]}}, "x"),
    ],
)
def test_the_text_beside_the_state_of_a_run(
    status: dict[str, Any], changes: dict[str, Any], record: dict[str, Any], text: str
) -> None:
    item = RunStatus(
        run(**record), Path("/runs/it"), LastStatus(asked_s=1000.0, **status), **changes
    )
    assert why_text(item, 1000.0) == text


def test_elements_are_no_attempts_and_have_no_exit_status_of_their_own() -> None:
    sweep = sweep_of("RUNNING")
    failed = replace(sweep, status=LastStatus("FAILED", 1000.0, exit_status=3, hosts="n1"))
    assert why_text(failed, 1000.0) == ""
    over = replace(sweep, status=LastStatus("FAILED", 1000.0, cause="y", reason="x", final=True))
    assert why_text(over, 1000.0) == "0 of 1 failed: y"
    ends = [LastStatus(state, 0.0, final=True) for state in ("FAILED", "TIMEOUT", "COMPLETED")]
    elements = tuple(ElementStatus(index, None, (), end) for index, end in enumerate(ends))
    assert why_text(replace(over, elements=elements), 1000.0) == "2 of 3 failed: y"


def test_a_run_of_a_feature_s_program_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpcrun.views.status_table.about_run", lambda item: ("a shell", ""))
    assert why_text(item_of("RUNNING", hosts="n1"), 0.0) == "a shell, n1"
    assert why_text(replace(item_of("RUNNING"), about="lr=1"), 0.0) == "lr=1"


def runs_of(*commands: str) -> StatusResult:
    """Completed runs of t.py with these arguments."""
    items = []
    for command in commands:
        item = item_of("COMPLETED", hosts="n1")
        request = {"script": "t.py", "args": command.split(" ")}
        items.append(replace(item, run=replace(item.run, request=request)))
    return StatusResult(tuple(items))


def test_a_run_has_the_arguments_that_set_it_apart_and_alone_all_of_them() -> None:
    several = runs_of("--lr 1 --seed 0", "--lr 1 --seed 0", "--lr 2 --seed 0")
    listed = with_arguments(several, alone=False)
    assert [why_text(item, 0.0) for item in listed.runs] == ["n1", "n1", "lr=2, n1"]
    named = with_arguments(runs_of("--a 1 --b 2 --c 3 --d 4 --e 5"), alone=True)
    assert why_text(named.runs[0], 0.0) == "a=1 b=2 c=3 d=4 e=5, n1"
    element = replace(several.runs[2], about="width=3")
    rows = with_arguments(StatusResult((*several.runs[:2], element)), alone=False).runs
    assert why_text(rows[2], 0.0) == "width=3, n1"


def test_a_command_is_whole_for_programs_and_short_for_a_person() -> None:
    result = runs_of("--lr a\x1b[2Jb " + "x" * 500)
    assert len(status_json(result)["runs"][0]["command"]) > 500
    [_, *lines] = drawn(status_table(result, 0.0, 600, ("command",)), 600)
    assert lines == [f"t.py --lr $'a\\x1b[2Jb' {'x' * 376}…"]
    assert len(lines[0]) == 400
    assert status_csv(result, 0.0, ("command",)).endswith(f" {'x' * 500}")


def test_the_command_of_an_element_has_its_parameters() -> None:
    item = sweep_of("RUNNING")
    request = {"script": "t.py", "args": ["--a", "{lr}"], "sweep": [[["lr", "1"], ["seed", "2"]]]}
    plan = {"sweep": {"indices": "0", "first": 0}}
    item = replace(item, run=replace(item.run, request=request, plan=plan))
    assert command_text(item) == "t.py --a 1 --seed 2"
    row = element_row(item, item.elements[0])
    assert status_csv(StatusResult((row,)), 0.0, ("command",)) == "command\nt.py --a 1 --seed 2"


def test_lost_runs_are_counted() -> None:
    assert lost_line(1) == (
        "1 run without a heartbeat for over a day, state unknown: hpcrun status --state unknown"
    )


def test_the_note_of_a_run_comes_first_and_is_a_column_and_a_field() -> None:
    item = item_of("FAILED", final=True, cause="KeyError: 'x'")
    item = replace(item, run=replace(item.run, note="#paper\x1b[31m"), about="lr=0.1")
    assert why_text(item, 1000.0) == "#paper\x1b[31m, lr=0.1, KeyError: 'x'"
    assert why_text(replace(item, element=3), 1000.0) == "lr=0.1, KeyError: 'x'"
    result = StatusResult((item,))
    (row,) = drawn(status_table(result, 0.0, 80, ("note",)), 80)[1:]
    assert row.startswith("#paper")
    assert "\x1b" not in row
    assert status_json(result)["runs"][0]["note"] == item.run.note


def test_csv_has_the_fields_of_the_json_or_the_named_columns() -> None:
    result = StatusResult((item_of("RUNNING", elapsed_s=7, exit_status=None),))
    names, values = status_csv(result, 1000.0).split("\n")
    assert tuple(names.split(",")) == FIELDS
    assert values == (
        "20260102-030405-train-0a1b,train,4711,RUNNING,0,,,,0,7,,,slurm,alpha,login1,big,2,2,4,"
        "3600,1000.0,1000.0,0,/runs/it,,,,,"
    )
    assert status_csv(result, 1000.0, ("name", "size")) == "name,size\ntrain,2×2"


def test_a_job_without_an_id_has_the_name_of_its_run() -> None:
    item = item_of("SUBMITTING", reason="Own")
    item = replace(item, run=replace(item.run, job_id=None))
    assert waiting_lines(item, 1000.0) == [f"hpcrun: job {item.run.run_id} is SUBMITTING: Own"]
    (line,) = waiting_lines(item_of(start_s=4600.0), 1000.0)
    assert line.startswith("hpcrun: job 4711 is PENDING: expected ")
    limited = replace(item, status=replace(item.status, limit_s=60))
    (cells,) = drawn(status_table(StatusResult((limited,)), 0.0, 80, ("job", "limit")), 80)[1:]
    assert cells.split() == ["-", "1:00"]
    never = replace(item, status=LastStatus("PENDING", 0.0, reason="PartitionNodeLimit"))
    assert f"job {item.run.run_id} is pending" in never_starts_lines(never)[0]


def test_the_json_has_elements_roles_relations_and_the_error_of_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def states(run: Run, folder: Path, element: int = 0) -> Iterator[RoleState]:
        asked.append(element)
        yield RoleState(RoleRanks(**ROLE), "ready", ("n1",), 5.0)

    monkeypatch.setattr("hpcrun.views.status_table.role_states", states)
    code = {"files": 1}
    after: list[dict[str, Any]] = [
        {"run_id": "r0", "job_id": "7", "condition": "ok"},
        {"run_id": "rx", "job_id": None, "condition": "any"},
    ]
    relations: dict[str, Any] = {
        "chain": PLACE,
        "resubmitted_from": "r9",
        "checkpoints_of": "r8",
        "code_of": "r7",
        "code": code,
    }
    item = RunStatus(
        run(after=after, **relations),
        Path("/runs/it"),
        LastStatus("RUNNING", 1000.0),
        waits=(WAIT,),
    )
    error = SchedulerError("Slurm does not respond", hint="wait")
    document = status_json(
        StatusResult((item,), error, ("damaged",)), lambda item: {"more": item.run.job_id}
    )
    (shown,) = document.pop("runs")
    assert document == {
        "kind": "status",
        "away": "Slurm does not respond",
        "damaged": ["damaged"],
        "error": {
            "message": "Slurm does not respond",
            "hint": "wait",
            "exit_code": error.exit_code,
        },
    }
    assert shown["more"] == "4711"
    assert shown["folder"] == "/runs/it"
    assert shown["stale"] is False
    assert shown["lost"] is False
    assert shown["silent_s"] is None
    assert shown["after"] == [{**after[0], "state": "RUNNING"}, {**after[1], "state": None}]
    assert {name: shown[name] for name in relations} == relations
    assert shown["roles"] == [
        {
            "name": "server",
            "first_rank": 0,
            "ranks": 1,
            "state": "ready",
            "since_s": 5.0,
            "exit_status": None,
            "nodes": ("n1",),
        }
    ]
    assert "elements" not in shown
    sweep = replace(sweep_of("RUNNING", "PENDING"), element=None)
    (shown,) = status_json(StatusResult((sweep,)))["runs"]
    assert shown["roles"] == []
    assert [element["element"] for element in shown["elements"]] == [0, 1]
    assert {
        name: shown["elements"][1][name] for name in ("job_id", "parameters", "state", "final")
    } == {
        "job_id": "7_1",
        "parameters": {"lr": "1"},
        "state": "PENDING",
        "final": False,
    }
    only = replace(sweep, elements=sweep.elements[1:])
    status_json(StatusResult((only, replace(item, element=4))))
    assert asked == [0, 1, 4]
