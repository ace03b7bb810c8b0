"""How often explain is right: on runs that really failed, on wordings that need GPUs, on healthy programs' words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.explain.diagnosis.rules import Rule, load_rules
from hpcrun.explain.ended import Explanation, explain
from hpcrun.explain.first_line import ending, with_first_lines
from hpcrun.runs.record import run_from_json, status_from_json
from hpcrun.runs.store import RunStore
from tests.harness import REPO
from tests.unit.explain.written import CASES, NCCL_GONE, OOM, Written, raised, write_run

CORPUS = REPO / "tests/data/explain"
RULES = load_rules([])
REAL = sorted(path.parent.name for path in CORPUS.glob("*/case.yaml"))
HEALTHY = sorted(CORPUS.glob("healthy/*.log"))


def explained(folder: Path, rules: tuple[Rule, ...] = RULES, *, quick: bool = False) -> Explanation:
    status = status_from_json((folder / "status.json").read_text())
    return explain(RunStatus(run_from_json((folder / "run.json").read_text()), folder, status), rules, quick=quick)


def verdicts(tmp_path: Path) -> Iterator[tuple[str, str | None, int | None, Explanation]]:
    """Case, the right rule, the rank to blame, what explain says."""
    for name in REAL:
        case = YAML(typ="safe").load((CORPUS / name / "case.yaml").read_text("utf-8"))
        yield name, case["expect"], case["rank"], explained(CORPUS / name)
    for name, written in CASES.items():
        write_run(written, tmp_path / name)
        yield f"written {name}", written.expect, written.failed, explained(tmp_path / name)


def test_the_right_cause_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, count = [], 0
    for name, expect, rank, said in verdicts(tmp_path):
        count += 1
        blamed = rank is None or said.rank == rank or (expect or "").startswith("xid-")
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


# --- how much of it is shown ----------------------------------------------------------------------------------


def failed(folder: Path, case: Written) -> RunStatus:
    write_run(case, folder)
    status = status_from_json((folder / "status.json").read_text())
    return RunStatus(run_from_json((folder / "run.json").read_text()), folder, status)


def test_of_what_the_other_ranks_say_of_it_three_are_shown(tmp_path: Path) -> None:
    case = Written(None, raised(OOM))
    item = failed(tmp_path / "run", case)
    for rank in (1, 2, 3, 4):
        (item.folder / f"elements/0/attempts/0/rank-{rank}.err").write_text(NCCL_GONE)
    others = [part.who for part in explain(item, RULES).evidence if part.note == "another rank had already ended"]
    assert others == ["rank 0 on node01", "rank 1 on node01", "rank 2 on node01"]


def test_a_line_of_evidence_has_three_hundred_characters(tmp_path: Path) -> None:
    words = " ".join(["word"] * 59)  # 294 characters
    for number, (line, shown) in enumerate([(f"{words} 45678", f"{words} 45678"), (f"{words} 456789", f"{words}…")]):
        item = failed(tmp_path / str(number), Written(None, f"{line}\n", others=""))
        lines = [line for part in explain(item, RULES).evidence for line in part.lines]
        assert shown in lines


def test_a_run_that_left_no_logs_shows_how_its_rank_ended(tmp_path: Path) -> None:
    item = failed(tmp_path / "run", Written(None, others=""))
    (item.folder / "batch.log").unlink()
    for log in (item.folder / "elements/0/attempts/0").glob("rank-*.*"):
        if log.suffix != ".exit":
            log.unlink()
    said = explain(item, RULES)
    assert "rank 5 on node02 failed first with exit status 1" in said.summary
    assert [part.lines for part in said.evidence] == [("FAILED, exit status 143, on node[01-02]",)]


def test_who_waited_for_a_run_sees_the_last_twenty_lines_of_the_rank_that_failed(tmp_path: Path) -> None:
    said = "".join(f"line {number}\n" for number in range(100))
    item = failed(tmp_path / "run", Written(None, said, others="", status=9))
    end = ending(item, lambda: RULES)
    assert (end.rank, end.exit_status) == (5, 9)
    assert end.last_lines.splitlines() == [f"line {number}" for number in range(80, 100)]


def test_quickly_the_logs_of_few_ranks_are_read_and_otherwise_those_of_all(tmp_path: Path) -> None:
    item = failed(tmp_path / "run", Written(None, others=""))
    attempt = item.folder / "elements/0/attempts/0"
    for rank in range(8, 100):
        end = {"rank": rank, "node": "node03", "status": 1, "ended": 1700.0 + rank}
        (attempt / f"rank-{rank}.exit").write_text(json.dumps(end))
    (attempt / "rank-99.err").mkdir()
    said = [explain(item, RULES, quick=quick).unread for quick in (False, True)]
    assert said == [("elements/0/attempts/0/rank-99.err: is not a regular file",), ()]


@pytest.mark.parametrize(
    ("state", "said", "explained_before"),
    [
        ("FAILED", {}, False),
        ("OUT_OF_MEMORY", {}, False),
        ("FAILED", {"cause": "it was explained before"}, True),
        ("COMPLETED", {}, True),
        ("CANCELLED", {}, True),
        ("RUNNING", {"final": False}, True),
        ("FAILED", {"final": False}, True),
    ],
)
def test_status_explains_a_run_that_failed_once(
    tmp_path: Path, state: str, said: dict[str, Any], explained_before: bool
) -> None:
    store = RunStore(tmp_path)
    item = failed(tmp_path / "20260102-030405-train-0a1b", Written(None, raised(OOM)))
    item = replace(item, status=replace(item.status, state=state, **said))
    (shown,) = with_first_lines(StatusResult((item,)), store, lambda: RULES).runs
    if explained_before:
        assert shown == item
        return
    assert (shown.status.cause or "").startswith("rank 5 on node02 failed first: the GPU ran out of memory")
    last = store.last_status(item.run.run_id)
    assert last is not None
    assert last.cause == shown.status.cause
