"""How often explain is right: on runs that really failed, on wordings that need GPUs, on healthy
programs' words.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from hpcrun.actions.status.run_status import StatusResult
from hpcrun.explain.ended import Explanation
from hpcrun.explain.first_line import ending, with_first_lines
from hpcrun.in_job.launch import sampler
from hpcrun.runs.store import RunStore
from hpcrun.views.explanation_text import explanation_text
from tests.harness import REPO
from tests.unit.builders import drawn, write
from tests.unit.explain.written import (
    ATTEMPT,
    CASES,
    NCCL_GONE,
    OOM,
    RULES,
    Written,
    explained,
    raised,
    record_end,
    status_of,
    write_run,
)

CORPUS = REPO / "tests/data/explain"
REAL = sorted(path.parent.name for path in CORPUS.glob("*/case.yaml"))
ORDERED = sorted(path.parent.name for path in CORPUS.glob("order/*/case.yaml"))
HEALTHY = sorted(CORPUS.glob("healthy/*.log"))


def case_of(folder: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe").load((folder / "case.yaml").read_text("utf-8")))


def verdicts(tmp_path: Path) -> Iterator[tuple[str, str | None, int | None, Explanation]]:
    """Case, the right rule, the rank to blame, what explain says."""
    for name in REAL:
        case = case_of(CORPUS / name)
        yield name, case["expect"], case["rank"], explained(CORPUS / name)
    for name, written in CASES.items():
        yield (
            f"written {name}",
            written.expect,
            written.failed,
            explained(write_run(written, tmp_path / name)),
        )


def test_the_right_cause_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, count = [], 0
    for name, expect, rank, shown in verdicts(tmp_path):
        count += 1
        blamed = rank is None or shown.rank == rank or (expect or "").startswith("xid-")
        if shown.rule != expect or not blamed:
            wrong.append(
                f"{name}: {expect} of rank {rank}, not {shown.rule} of rank {shown.rank}: "
                f"{shown.summary}"
            )
    with capsys.disabled():
        print(f"\nexplain: {count - len(wrong)} of {count} right", *wrong, sep="\n  ")
    assert len(REAL) >= 50
    assert (count - len(wrong)) / count >= 0.95, "\n".join(wrong)


@pytest.mark.parametrize("name", ORDERED)
def test_the_first_failure_is_the_answer_of_real_runs_whose_ranks_ended_in_another_order(
    name: str, tmp_path: Path
) -> None:
    folder, case = tmp_path / name, case_of(CORPUS / "order" / name)
    shutil.copytree(CORPUS / "order" / name, folder)
    for path, written_s in json.loads((folder / "written.json").read_text()).items():
        os.utime(folder / path, (written_s, written_s))
    shown = explained(folder)
    assert (case["expect"] in shown.summary, shown.rank) == (True, case["rank"]), shown.summary
    earlier = any(
        "no later one came further" in line for part in shown.evidence for line in part.lines
    )
    assert earlier == name.startswith("restart-")


def test_no_cause_is_claimed_for_what_healthy_programs_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each in the logs of a run that failed for a reason of its own."""
    claimed = []
    for log in HEALTHY:
        folder = write_run(Written(None, others="", status=9), tmp_path / log.stem)
        for name in ("rank-5.err", "rank-5.out", "rank-0.err"):
            shutil.copy(log, folder / ATTEMPT / name)
        with (folder / "batch.log").open("ab") as batch:
            batch.write(log.read_bytes())
        shown = explained(folder)
        assert "rank 5 on node02 failed first with exit status 9" in shown.summary or shown.rule, (
            log.name
        )
        if shown.rule is not None:
            claimed.append(
                f"{log.name}: {shown.rule}: "
                f"{[line for item in shown.evidence for line in item.lines]}"
            )
    with capsys.disabled():
        print(
            f"\nexplain: {len(claimed)} claims for {len(HEALTHY)} healthy logs",
            *claimed,
            sep="\n  ",
        )
    assert len(HEALTHY) >= 50
    assert not claimed


# --- how much of it is shown ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("others", "line"), [(NCCL_GONE, "another rank had already ended"), (raised(OOM), "the same")]
)
def test_other_ranks_with_one_message_are_one_line(tmp_path: Path, others: str, line: str) -> None:
    folder = write_run(Written(None, raised(OOM), others), tmp_path / "run")
    for rank in (1, 2, 3, 4):
        (folder / ATTEMPT / f"rank-{rank}.err").write_text(others)
    assert re.search(
        rf"\nranks [-0-5, ]+  {line}\nSlurm  FAILED", explanation_text(explained(folder), 80).plain
    )


def test_an_explanation_fits_a_screen_and_its_headings_are_indented(tmp_path: Path) -> None:
    shown = {name: drawn(explanation_text(said, 80), 80) for name, _, _, said in verdicts(tmp_path)}
    agents = "".join(
        f"E1126 17:38:03.060000 torch/distributed/elastic/multiprocessing/api.py:{n}] failed\n"
        for n in range(9)
    )
    agents += "srun: error: node01: task 0: Exited with exit code 1\n"
    requeued = write_run(
        Written("time-limit", "", "", "TIMEOUT", None, 143, agents), tmp_path / "requeued"
    )
    use = sampler.line(110, 2.5, 1 << 30, 10**6, None, [(0, 0.5, 1 << 30, 80 << 30, 300)])
    for number in range(1, 9):
        attempt = requeued / f"elements/0/attempts/{number}"
        shutil.copytree(requeued / ATTEMPT, attempt)
        write(
            attempt / "node-a.use",
            f'{{"started": 100.0, "cpus": 8, "memory_limit": 17179869184}}\n{use}',
        )
    shown["requeued"] = drawn(explanation_text(explained(requeued), 80), 80)
    assert [(name, len(lines)) for name, lines in shown.items() if len(lines) > 22] == []
    assert (
        "  that the loss does not use)  elements/0/attempts/0/rank-0.err:18"
        in shown["unused-parameters"]
    )


def test_a_line_of_evidence_has_three_hundred_characters(tmp_path: Path) -> None:
    words = " ".join(["word"] * 59)  # 294 characters
    for line, shown in ((f"{words} 45678", f"{words} 45678"), (f"{words} 456789", f"{words}…")):
        folder = write_run(Written(None, f"{line}\n", others=""), tmp_path / str(len(line)))
        assert shown in [text for part in explained(folder).evidence for text in part.lines]


def test_a_run_that_left_no_logs_shows_how_its_rank_ended(tmp_path: Path) -> None:
    folder = write_run(Written(None, others=""), tmp_path / "run")
    for log in (folder / "batch.log", *(folder / ATTEMPT).glob("rank-*.[eo][ru][rt]")):
        log.unlink()
    shown = explained(folder)
    assert "rank 5 on node02 failed first with exit status 1" in shown.summary
    assert [part.lines for part in shown.evidence] == [("FAILED, exit status 143, on node[01-02]",)]


def test_who_waited_for_a_run_sees_the_last_twenty_lines_of_the_rank_that_failed(
    tmp_path: Path,
) -> None:
    log = "".join(f"line {number}\n" for number in range(100))
    end = ending(
        status_of(write_run(Written(None, log, others="", status=9), tmp_path / "run")),
        lambda: RULES,
    )
    assert (end.rank, end.exit_status) == (5, 9)
    assert end.last_lines.splitlines() == [f"line {number}" for number in range(80, 100)]


def test_quickly_the_logs_of_few_ranks_are_read_and_otherwise_those_of_all(tmp_path: Path) -> None:
    folder = write_run(Written(None, others=""), tmp_path / "run")
    for rank in range(8, 100):
        record_end(folder, rank, 1, 1700.0 + rank)
    (folder / ATTEMPT / "rank-99.err").mkdir()
    unread = (f"{ATTEMPT}/rank-99.err: is not a regular file",)
    assert [explained(folder, quick=quick).unread for quick in (False, True)] == [unread, ()]


@pytest.mark.parametrize(
    ("state", "fields", "is_explained"),
    [
        ("FAILED", {}, True),
        ("OUT_OF_MEMORY", {}, True),
        ("FAILED", {"cause": "it was explained before"}, False),
        ("COMPLETED", {}, False),
        ("CANCELLED", {}, False),
        ("RUNNING", {"final": False}, False),
        ("FAILED", {"final": False}, False),
    ],
)
def test_status_explains_a_run_that_failed_once(
    tmp_path: Path, state: str, fields: dict[str, Any], is_explained: bool
) -> None:
    store = RunStore(tmp_path)
    item = status_of(write_run(Written(None, raised(OOM)), tmp_path / "20260102-030405-train-0a1b"))
    item = replace(item, status=replace(item.status, state=state, **fields))
    (shown,) = with_first_lines(StatusResult((item,)), store, lambda: RULES).runs
    assert is_explained or shown == item
    if is_explained:
        assert (shown.status.cause or "").startswith(
            "rank 5 on node02 failed first: the GPU ran out of memory"
        )
        last = store.last_status(item.run.run_id)
        assert last is not None
        assert last.cause == shown.status.cause
