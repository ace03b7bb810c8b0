"""What explain says of a running job from NCCL's reports, and from the pace of its ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.stack_groups import RankStack
from hpcrun.explain.running import Running, explain_running, read_running
from hpcrun.explain.stacks import Answers, stacks_remark
from hpcrun.runs.record import LastStatus
from tests.harness import REPO
from tests.unit.builders import run
from tests.unit.explain.test_running import NOW_S, attempt, node, wrote

LAG = (REPO / "tests/data/ras/lag.txt").read_text()
STACKS = tuple(RankStack(rank, "n0", state="S", lacks="no py-spy") for rank in range(8))


def running(path: Path) -> Running:
    found = read_running(
        RunStatus(run(nodes=1), path, LastStatus("RUNNING", NOW_S), live=True), NOW_S, {}
    )
    assert found is not None
    return found


@pytest.mark.parametrize("quiet_s", [2.0, 900.0])
def test_what_nccl_reports_is_evidence_and_of_a_quiet_job_a_part_of_the_verdict(
    quiet_s: float, tmp_path: Path
) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 8)
    for rank in range(8):
        wrote(folder, rank, "step 1\n", quiet_s)
    answers = Answers(STACKS, frozenset({"n0"}), ras=(LAG, LAG), rank_of={1650386: 7})
    remark = stacks_remark(running(tmp_path), answers, ["n0"])
    (nccl,) = (evidence for evidence in remark.evidence if evidence.who == "NCCL")
    assert nccl.lines[1].startswith(
        "rank 7 has launched AllReduce 60 last, 7 other ranks AllReduce 64 (NCCL comm"
    )
    assert ("rank 7 has launched no Broadcast" in remark.sentence) == (quiet_s > 60)
    silent = Answers(STACKS, frozenset({"n0"}), ras=("", "no report"))
    assert "NCCL" not in {
        evidence.who for evidence in stacks_remark(running(tmp_path), silent, ["n0"]).evidence
    }


def test_of_a_job_that_makes_progress_the_slow_rank_is_named(tmp_path: Path) -> None:
    folder = attempt(tmp_path)
    node(folder, "n0", 0, 4)
    for rank in range(4):
        wrote(folder, rank, "loss 0.5\n", 2)
        row = {"time": 1.0, "step": 1, "step_time": 1.5 if rank == 2 else 1.0}
        (folder.path / f"rank-{rank}.metrics").write_text(f"{json.dumps(row)}\n" * 9)
    shown = explain_running(running(tmp_path))
    sentence = (
        "all 4 ranks wrote in the last 20 s: nothing looks stuck; rank 2 on n0 takes 1.5 s a step"
    )
    assert shown.summary.startswith(sentence)
    assert shown.rank == 2
    assert shown.node == "n0"
