"""The details of status --verbose, and the recorded plan."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.runs.hardware_use import GpuResult, GpuRow
from hpcrun.actions.status.run_status import ElementStatus, RunStatus
from hpcrun.actions.status.status_details import Insight
from hpcrun.runs.record import LastStatus
from hpcrun.schedulers.away_nodes import ListedNode
from hpcrun.schedulers.job_steps import GpuReading
from hpcrun.schedulers.pending_and_usage import ACCOUNTS, Limit, Usage, Waiting
from hpcrun.views import details_text
from hpcrun.views.details_text import (
    detail_lines,
    insight_json,
    insight_rows,
    last_words,
    no_effect_rows,
    place_text,
    recorded_plan,
    verbose_lines,
)
from hpcrun.views.gpu_table import gpu_json
from tests.unit.builders import run, write

START = json.dumps({"job_id": "4711", "host": "n1", "started": 1000.0})
CODE = {"files": 3, "bytes": 2048, "root": "/src", "commit": "", "changes": ""}
PACKED = {"sweep": {"indices": "0-3", "first": 0, "pack": 2}}
READING = GpuReading(0, "GPU-1", "A100", 50.0, None, None, None, None, None)
GPUS = GpuResult("20260102-030405-train-0a1b", (GpuRow("n1", 0, READING),), {}, {})
USE = (
    '{"started": 1000.0, "cpus": 8, "memory_limit": null}\n'
    '{"time": 1100.0, "cpus": 2.0, "memory": 1048576, "network": 0.0, "rdma": null, "gpus": []}\n'
)
ROLES = [
    {"name": "server", "first_rank": 0, "ranks": 1, "first_node": 0, "nodes": 1, "on_exit": "end"}
]


def item_of(folder: Path, state: str = "RUNNING", **values: Any) -> RunStatus:
    return RunStatus(run(), folder, LastStatus(state, 1000.0, **values))


def with_attempt(item: RunStatus, files: Mapping[str, str] | None = None) -> Path:
    """Start an attempt of a run, or of its element, and write files into its folder."""
    folder = item.folder / f"elements/{item.element or 0}/attempts/0"
    write(folder / "start", START)
    for name, text in (files or {}).items():
        write(folder / name, text)
    return folder


class _Rows(Hooks):
    """The hooks of a feature that adds a row and a document to a run."""

    def __init__(self, feature: str) -> None:
        self.feature = feature

    def run_rows(self, item: RunStatus) -> list[tuple[str, str]]:
        return [(self.feature, item.run.run_id)]

    def run_json(self, item: RunStatus) -> list[dict[str, Any]]:
        return [{"feature": self.feature}]


@pytest.fixture
def with_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each feature adds a row to the details of a run."""
    monkeypatch.setattr(details_text, "hooks_of", _Rows)


@pytest.mark.usefixtures("with_rows")
def test_the_details_of_a_run_in_their_order(tmp_path: Path) -> None:
    item = item_of(tmp_path)
    assert detail_lines(item, 200, [("more", "text")]) == [
        item.run.run_id,
        "  more         text",
        f"  folder       {tmp_path}",
    ]
    related = run(
        "r1",
        after=[{"condition": "ok", "run_id": "r0"}],
        resubmitted_from="r2",
        checkpoints_of="r3",
        code=CODE,
        code_of="r4",
        plan={"notify": {}, **PACKED},
    )
    files = {"code": json.dumps({"folder": "/w", "script": "/w/a.py"})}
    with_attempt(item, {**files, "versions": '{"torch": "2.9.1", "python": "3.11.2"}'})
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "elements/0/checkpoints").symlink_to(other)
    details = [
        f"  folder       {tmp_path}",
        "  logs         elements/0/attempts/0/rank-N.out and rank-N.err",
        "  after ok     r0",
        "  again        of r2",
        f"  checkpoints  {other}",
        "  code         3 files, 2 kB of /src",
        "  code         the snapshot of r4",
        "  versions     python 3.11.2, torch 2.9.1",
        "  trackers     r1",
        "  script       /w/a.py",
    ]
    assert detail_lines(replace(item, run=related), 200) == ["r1", *details]
    notified = replace(related, plan={"notify": {"to": ["x"]}})
    assert detail_lines(replace(item, run=notified), 200) == ["r1", *details, "  notify       r1"]
    sweep = replace(item, run=notified, elements=(ElementStatus(0, "7_0", (), item.status),))
    assert details[1] not in detail_lines(sweep, 200)
    element = replace(item, run=related, element=2)
    assert detail_lines(element, 200) == ["r1/2", *details[:1], *details[2:7]]
    narrow = detail_lines(item, 1)
    assert narrow == detail_lines(item, 35)
    assert verbose_lines(item_of(tmp_path / "none"), Insight(), 60, 0.0) == [
        "",
        *detail_lines(item_of(tmp_path / "none"), 60),
    ]


def test_the_imports_of_a_run_from_elsewhere_come_first(tmp_path: Path) -> None:
    item = item_of(tmp_path)
    imports = {f"m{number}": f"/w/m{number}.py" for number in range(8)} | {"zoo": "/z/zoo.py"}
    folder = with_attempt(item, {"code": json.dumps({"folder": "/w", "imports": imports})})
    lines = [line.removeprefix("  import       ") for line in detail_lines(item, 200)[3:]]
    assert lines[0] == "zoo from /z/zoo.py"
    assert lines[1:8] == [f"m{number} from /w/m{number}.py" for number in range(7)]
    assert lines[8:] == ["and 1 more"]
    del imports["m7"]
    write(folder / "code", json.dumps({"folder": "/w", "imports": imports}))
    assert len(detail_lines(item, 200)) == 3 + 8


def test_a_recorded_plan_shows_what_another_version_has_written() -> None:
    assert list(recorded_plan(run(gpus_per_node=0, walltime_s=None))) == [
        ("size", "2 nodes, 4 ranks"),
        ("time limit", "no time limit requested"),
    ]
    odd = {
        "scheduler": "slurm",
        "setup": [],
        "shape": 1,
        "python": [],
        "cpus_per_node": "8",
        "memory_mb": "1G",
        "modules": "m",
    }
    assert [label for label, _ in recorded_plan(run(plan=odd))] == ["size", "time limit"]
    plan = {
        "shape": {"gpu_type": "a100", "launcher": "torchrun"},
        "scheduler": "slurm",
        "cpus_per_node": 8,
        "memory_mb": None,
        "directives": [["qos", "short"], ["exclusive", None]],
        "python": {"executable": "/p", "kind": "venv"},
        "container": {"image": "/i.sif"},
        "requeue": {"times": 2, "restarts": 1},
        "modules": ["cuda", "gcc"],
        "setup": ["ulimit -c 0"],
        "notes": ["a note"],
        "env": [["TOKEN", None], ["A", "x"]],
        "added": [["B", "y"]],
    }
    full = list(recorded_plan(run(plan=plan)))
    assert full == [
        ("size", "2 nodes × 2 a100 GPUs, 4 ranks by torchrun"),
        ("CPUs", "8 per node"),
        ("memory", "the site's default"),
        ("time limit", "1:00:00"),
        ("sbatch", "--qos=short --exclusive"),
        ("Python", "/p (venv)"),
        ("container", "/i.sif"),
        ("after a stop", "requeued up to 2 times, restarted in the allocation up to 1 time"),
        ("modules", "cuda\ngcc"),
        ("set-up", "ulimit -c 0"),
        ("notes", "a note"),
        ("variables", "TOKEN=***\nA=x\nB=y"),
    ]
    plan.update(
        scheduler="local",
        memory_mb=2048,
        python={"executable": "/p"},
        requeue={"times": 1, "restarts": 0},
    )
    rows = dict(recorded_plan(run(plan=plan)))
    assert rows["memory"] == "2G per node"
    assert rows["Python"] == "/p ()"
    assert rows["after a stop"] == "requeued up to 1 time"
    plan.update(memory_mb=None, requeue={"times": 0, "restarts": 0})
    rows = dict(recorded_plan(run(plan=plan)))
    assert not {"memory", "after a stop"} & set(rows)


def test_a_pending_job_has_its_reason_its_limits_its_place_and_its_start(tmp_path: Path) -> None:
    item = item_of(tmp_path, "PENDING", reason="QOSMaxGRESPerUser", total_elapsed_s=60, attempt=1)
    limits = {
        "short": [Limit("QOS short", "jobs", "2", "2")],
        ACCOUNTS: [Limit("account lab", "jobs", "3", "4", "all its users")],
    }
    insight = Insight(waiting={"4711": Waiting("gpu", None, 2, 5, "short")}, limits=limits)
    (elapsed, reason, advice, limit, queue, start) = insight_rows(item, insight, 0.0)
    assert elapsed == ("elapsed", "1:00, all 2 attempts together; the limit is for each")
    assert reason[0] == "reason"
    assert reason[1].endswith("(QOSMaxGRESPerUser)")
    assert advice[0] == "advice"
    assert limit == ("limit", "QOS short: 2 of 2 jobs in use by you")
    assert queue == ("queue", "2 of 5 pending in partition gpu")
    assert start == ("start", "Slurm gives no estimate")
    item = item_of(tmp_path, "PENDING", reason="AssocMaxJobsLimit")
    rows = dict(insight_rows(item, insight, 0.0))
    assert rows["limit"] == "account lab: 3 of 4 jobs in use by all its users"
    held = item_of(tmp_path, "PENDING", reason="JobHeldUser")
    assert insight_rows(held, Insight(), 0.0) == [
        ("reason", "held by you (JobHeldUser)"),
        ("advice", "`scontrol release 4711` lets it start."),
    ]
    assert insight_rows(item_of(tmp_path, "PENDING"), Insight(), 0.0) == []


def test_a_job_that_never_starts_has_no_expected_start(tmp_path: Path) -> None:
    insight = Insight(waiting={"4711": Waiting("gpu", 1000.0, 2, 5, "short")})
    item = item_of(tmp_path, "PENDING", reason="Priority")
    assert "start" in dict(insight_rows(item, insight, 0.0))
    item = item_of(tmp_path, "PENDING", reason="PartitionNodeLimit")
    assert item.never_starts
    rows = dict(insight_rows(item, insight, 0.0))
    assert {*rows} >= {"reason", "advice", "queue"}
    assert "start" not in rows


def test_a_job_that_waits_for_nodes_has_their_states_and_reasons(tmp_path: Path) -> None:
    node = ListedNode("h100-1", "gpu", "drained", "bad fan", (), 64, None)
    item = item_of(tmp_path, "PENDING", reason="ReqNodeNotAvail, UnavailableNodes:h100-1")
    rows = dict(insight_rows(item, Insight(awaited={"4711": [node]}), 0.0))
    assert rows["nodes"] == "h100-1 is drained (bad fan)"
    assert "--nodelist" not in rows["advice"]
    item.run.plan["directives"] = [["nodelist", "h100-1"]]
    rows = dict(insight_rows(item, Insight(), 0.0))
    assert rows["advice"] == "Leave out --nodelist h100-1, or name other nodes."


def test_the_place_and_the_start_of_a_pending_job() -> None:
    assert (
        place_text(Waiting("gpu", None, None, 5)) == "not in the queue of partition gpu (5 pending)"
    )


def test_a_running_job_has_its_time_hosts_gpus_use_last_line_and_metrics(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    item = replace(item_of(tmp_path, elapsed_s=1800, hosts="n1"), live=True)
    insight = Insight(gpus={item.run.run_id: GPUS})
    with_attempt(
        item,
        {
            "rank-0.out": "a\n\x1b[31mred\x1b[0m\x1b[2J\n",
            "rank-0.metrics": '{"step": 3, "loss": 0.123456, "time": 5.0, "note": "x"}\n',
            "idle-unknown": '{"node": "n2"}',
            "node-n1.use": USE,
        },
    )
    assert insight_rows(item, insight, 0.0) == [
        ("time", "██████████░░░░░░░░░░ 50%, 30:00 of 1:00:00"),
        ("hosts", "n1"),
        ("GPUs", "1 GPU 50 % busy"),
        ("idle limit", "no effect: no use of the GPUs is known from nvidia-smi on n2"),
        ("CPUs", "2.0 of 8 busy, 2.0 at most"),
        ("memory", "1 MB at most"),
        ("last line", "red"),
        ("metrics", "step=3 loss=0.1235 note=x"),
    ]
    assert last_words(item) == "step=3 loss=0.1235 note=x"
    sweep = replace(item, elements=(ElementStatus(0, "7_0", (), item.status),))
    assert [label for label, _ in insight_rows(sweep, insight, 0.0)] == ["time", "hosts", "GPUs"]
    assert no_effect_rows(sweep) == []
    for other in (
        replace(item, live=False),
        replace(item, status=replace(item.status, elapsed_s=None)),
        replace(item, run=replace(item.run, walltime_s=None)),
    ):
        with subtests.test(other=other):
            assert insight_rows(other, insight, 0.0)[0] == ("hosts", "n1")
    shorter = replace(item, status=replace(item.status, limit_s=1800))
    assert insight_rows(shorter, insight, 0.0)[0][1].endswith("100%, 30:00 of 30:00")
    silent = replace(GPUS, rows=())
    assert "GPUs" not in dict(insight_rows(item, Insight(gpus={item.run.run_id: silent}), 0.0))


def test_the_warning_of_idle_gpus_is_the_sentence_of_the_program_if_it_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = item_of(tmp_path)
    ends_s = 1_700_000_000.0
    idle = {"since": ends_s - 3600, "warned": ends_s - 600, "ends": ends_s}
    with_attempt(item, {"idle": json.dumps(idle)})
    at = time.strftime("%H:%M", time.localtime(ends_s))
    assert insight_rows(item, Insight(), 0.0) == [
        ("idle", f"all GPUs for 50:00: it ends at {at} if they stay idle")
    ]
    monkeypatch.setattr(details_text, "about_run", lambda item: ("a shell", "its own sentence"))
    assert insight_rows(item, Insight(), 0.0) == [("idle", "its own sentence")]


def test_the_details_of_an_element_are_of_its_own_folder(tmp_path: Path) -> None:
    whole = replace(item_of(tmp_path), run=run(plan={"roles": ROLES}))
    element = replace(whole, element=2)
    idle = json.dumps({"since": 0.0, "warned": 60.0, "ends": 120.0})
    files = {"idle": idle, "idle-unknown": '{"node": "n2"}', "node-n1.use": USE}
    with_attempt(element, files)
    labels = [label for label, _ in insight_rows(element, Insight(), 0.0)]
    assert labels == ["role", "idle", "idle limit", "CPUs", "memory"]
    assert insight_rows(whole, Insight(), 0.0) == []


def test_the_last_line_stands_for_metrics_that_are_missing(tmp_path: Path) -> None:
    item = item_of(tmp_path)
    assert last_words(item) == ""
    with_attempt(item, {"rank-0.out": "one\t \x1b[31mtwo\x1b[0m\n"})
    assert last_words(item) == "one two"


def test_an_ended_run_has_its_gpu_hours_its_use_and_advice(tmp_path: Path) -> None:
    item = item_of(tmp_path, "FAILED", final=True, total_elapsed_s=60)
    usage = Usage(60, 1, 8, 2, 5400, None, None, None)
    insight = Insight(usage={(item.run.run_id, "4711"): usage})
    rows = insight_rows(item, insight, 0.0)
    assert rows[1:] == [("GPU-hours", "1.50 (2 GPUs, all attempts together)")]
    once = replace(item, status=LastStatus("FAILED", 1000.0, final=True))
    assert insight_rows(once, insight, 0.0) == [("GPU-hours", "1.50 (2 GPUs)")]
    element = replace(once, element=1, run=run(plan=PACKED))
    assert insight_rows(element, insight, 0.0) == [
        ("GPU-hours", "1.50 (2 GPUs, of all elements of its task)")
    ]
    assert insight_rows(replace(element, element=None), insight, 0.0) == [
        ("GPU-hours", "1.50 (2 GPUs)")
    ]
    assert insight_rows(once, Insight(), 0.0) == []
    alone = replace(element, run=run(plan={"sweep": {"indices": "0-3", "first": 0}}))
    assert insight_rows(alone, insight, 0.0) == [("GPU-hours", "1.50 (2 GPUs)")]
    none = Insight(usage={(item.run.run_id, "4711"): replace(usage, gpus=0)})
    long = LastStatus("COMPLETED", 1000.0, final=True, elapsed_s=60, limit_s=7200)
    (advice,) = insight_rows(replace(once, status=long), none, 0.0)
    assert advice[0] == "advice"
    assert "--time" in advice[1]
    with_attempt(once, {"node-n1.use": USE, "idle-unknown": '{"node": "n2"}'})
    labels = [label for label, _ in insight_rows(once, none, 0.0)]
    assert labels == ["idle limit", "CPUs", "memory"]


def test_roles_have_a_row_each_unless_it_is_a_sweep(tmp_path: Path) -> None:
    item = replace(item_of(tmp_path), run=run(plan={"roles": ROLES}))
    with_attempt(item)
    assert insight_rows(item, Insight(), 0.0) == [("role", "server: starting")]
    sweep = replace(item, elements=(ElementStatus(0, "7_0", (), item.status),))
    assert insight_rows(sweep, Insight(), 0.0) == []


EMPTY: dict[str, Any] = {
    "waiting": None,
    "limits": [],
    "usage": None,
    "last_line": None,
    "metrics": {},
    "gpus": [],
    "use": None,
    "messages": [],
    "versions": {},
    "compiled": None,
}


@pytest.mark.usefixtures("with_rows")
def test_details_as_json(tmp_path: Path) -> None:
    item = item_of(tmp_path)
    assert insight_json(item, Insight()) == EMPTY
    waiting = Waiting("gpu", None, 2, 5)
    usage = Usage(60, 1, 8, 2, 120, 240.0, None, None)
    insight = Insight(
        waiting={"4711": waiting},
        usage={(item.run.run_id, "4711"): usage},
        gpus={item.run.run_id: GPUS},
    )
    with_attempt(item, {"rank-0.out": "a\n", "rank-0.metrics": '{"loss": 1}\n', "node-n1.use": USE})
    notified = replace(item, run=run(plan={"notify": {"to": ["x"]}}))
    document = insight_json(notified, insight)
    assert document.pop("use")["cpus"] == 2.0
    assert document == {
        "waiting": asdict(waiting),
        "limits": [],
        "usage": {**asdict(usage), "cpu_efficiency": 0.5},
        "last_line": "a",
        "metrics": {"loss": 1},
        "gpus": gpu_json(GPUS)["gpus"],
        "messages": [{"feature": "notify"}],
        "versions": {},
        "compiled": None,
    }
    for state, final in (("PENDING", False), ("COMPLETED", True)):
        over = replace(item, status=LastStatus(state, 1000.0, final=final))
        assert {**insight_json(over, Insight()), "use": None} == EMPTY


def test_gpus_that_the_accounting_does_not_list_are_unknown(tmp_path: Path) -> None:
    item: RunStatus = item_of(tmp_path)
    usage = Usage(60, 1, 8, 0, 0, None, None, None)
    of_job = {(item.run.run_id, "4711"): usage}
    document = insight_json(item, Insight(usage=of_job))
    assert document["usage"]["gpus"] is None
    assert document["usage"]["gpu_s"] is None
    without = replace(item, run=run(gpus_per_node=0))
    document = insight_json(without, Insight(usage={(without.run.run_id, "4711"): usage}))
    assert document["usage"]["gpus"] == 0


@pytest.mark.parametrize("changes", [{"cpu_s": None}, {"cpus": 0}, {"elapsed_s": 0}])
def test_cpu_time_that_was_not_measured_has_no_efficiency(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    item: RunStatus = item_of(tmp_path)
    usage = replace(Usage(60, 1, 8, 2, 120, 240.0, None, None), **changes)
    document = insight_json(item, Insight(usage={(item.run.run_id, "4711"): usage}))
    assert document["usage"]["cpu_efficiency"] is None
