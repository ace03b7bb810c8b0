"""How often explain is right: on runs that really failed, on wordings that need GPUs, on healthy programs' words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.actions.explain import Explanation, explain
from hpcrun.actions.rules import load_rules
from hpcrun.actions.status import RunStatus
from hpcrun.diagnosis.rules import Rule
from hpcrun.runs.record import run_from_json, status_from_json
from tests.harness import REPO
from tests.unit.diagnosis.written import CASES, Written, write_run

CORPUS = REPO / "tests/data/explain"
RULES = load_rules([])
REAL = sorted(path.parent.name for path in CORPUS.glob("*/case.json"))
HEALTHY = sorted(CORPUS.glob("healthy/*.log"))


def explained(folder: Path, rules: tuple[Rule, ...] = RULES, *, quick: bool = False) -> Explanation:
    status = status_from_json((folder / "status.json").read_text())
    return explain(RunStatus(run_from_json((folder / "run.json").read_text()), folder, status), rules, quick=quick)


def verdicts(tmp_path: Path) -> Iterator[tuple[str, str | None, int | None, Explanation]]:
    """Case, the right rule, the rank to blame, what explain says."""
    for name in REAL:
        case = json.loads((CORPUS / name / "case.json").read_text())
        yield name, case["expect"], case["rank"], explained(CORPUS / name)
    for name, written in CASES.items():
        write_run(written, tmp_path / name)
        yield f"written {name}", written.expect, written.failed, explained(tmp_path / name)


def test_the_right_cause_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, count = [], 0
    for name, expect, rank, said in verdicts(tmp_path):
        count += 1
        blamed = rank is None or said.rank == rank or expect in ("xid-hardware", "xid-contained", "off-the-bus")
        if said.rule != expect or not blamed:
            wrong.append(f"{name}: {expect} of rank {rank}, not {said.rule} of rank {said.rank}: {said.summary}")
    with capsys.disabled():
        print(f"\nexplain: {count - len(wrong)} of {count} right", *wrong, sep="\n  ")
    assert len(REAL) >= 50
    assert (count - len(wrong)) / count >= 0.95, "\n".join(wrong)


def healthy_run(log: Path, folder: Path) -> Path:
    """A run that failed for a reason of its own, with a healthy program's words in its logs."""
    write_run(Written(None, others="", status=9), folder)
    attempt = folder / "elements/0/attempts/0"
    shutil.copy(log, attempt / "rank-5.err")
    shutil.copy(log, attempt / "rank-5.out")
    shutil.copy(log, attempt / "rank-0.err")
    with (folder / "batch.log").open("ab") as batch:
        batch.write(log.read_bytes())
    return folder


def test_no_cause_is_claimed_for_what_healthy_programs_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claimed = []
    for log in HEALTHY:
        said = explained(healthy_run(log, tmp_path / log.stem))
        assert "rank 5 on node02 failed first with exit status 9" in said.summary or said.rule, log.name
        if said.rule is not None:
            claimed.append(f"{log.name}: {said.rule}: {[line for item in said.evidence for line in item.lines]}")
    with capsys.disabled():
        print(f"\nexplain: {len(claimed)} claims for {len(HEALTHY)} healthy logs", *claimed, sep="\n  ")
    assert len(HEALTHY) >= 50
    assert not claimed
