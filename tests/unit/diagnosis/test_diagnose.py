"""Which of several failures is the cause, where the records of the ranks are incomplete."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.unit.diagnosis.test_corpus import explained
from tests.unit.diagnosis.written import CASES, OOM, Written, raised, write_run

ATTEMPT = "elements/0/attempts/0"


def without_records(case: Written, folder: Path) -> Path:
    write_run(case, folder)
    for record in folder.glob(f"{ATTEMPT}/rank-*.exit"):
        record.unlink()
    return folder


def test_without_records_the_rank_that_fell_silent_first_is_to_blame(tmp_path: Path) -> None:
    folder = without_records(Written(None, raised("KeyError: 'a'"), "ValueError: b\n"), tmp_path / "run")
    for rank in range(8):
        for stream in ("err", "out"):
            os.utime(folder / f"{ATTEMPT}/rank-{rank}.{stream}", (2000, 1000 if rank == 5 else 2000))
    said = explained(folder)
    assert (said.rank, said.rule) == (5, None)
    assert said.summary.startswith("rank 5: KeyError: 'a'")


def test_without_records_torchruns_block_names_rank_and_host(tmp_path: Path) -> None:
    folder = without_records(Written(None, batch=""), tmp_path / "run")
    for log in folder.glob(f"{ATTEMPT}/rank-*"):
        log.unlink()
    block = "Root Cause (first observed failure):\n[0]:\n  time : 2026-11-21_10:00:02\n  host : n2\n  rank : 5\n"
    (folder / "batch.log").write_text(f"{block}  exitcode  : 1 (pid: 4)\n  traceback : ValueError: b\n{'=' * 40}\n")
    said = explained(folder)
    assert said.summary.startswith("rank 5 on n2 failed first with exit status 1")
    assert any("ValueError: b" in item.lines for item in said.evidence)


def test_what_the_batch_log_says_of_an_earlier_attempt_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, raised("KeyError: 'a'"), ""), folder)
    (folder / ATTEMPT).rename(folder / "elements/0/attempts/1")
    begins = "hpcrun: job 4711 on node01, rendezvous node01:24711\n"
    (folder / "batch.log").write_text(f"{begins}srun: error: node02: task 5: Out Of Memory\n{begins}")
    said = explained(folder)
    assert said.rule is None
    assert "KeyError" in said.summary


def test_the_words_of_the_script_itself_are_the_answer(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, "", "", failed=None), folder)
    end = {"status": 1, "signal": "", "ended": 1600.0, "message": "cannot load module cuda/12.8"}
    (folder / ATTEMPT / "exit").write_text(json.dumps(end))
    for record in folder.glob(f"{ATTEMPT}/rank-*"):
        record.unlink()
    assert explained(folder).summary == "cannot load module cuda/12.8"


def test_of_two_causes_that_of_the_rank_that_failed_first_counts(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(CASES["quota"], folder)
    (folder / ATTEMPT / "rank-2.err").write_text(raised(OOM))
    end = {"rank": 2, "node": "node01", "status": 1, "ended": 1580.0}
    (folder / ATTEMPT / "rank-2.exit").write_text(json.dumps(end))
    assert explained(folder).rank == 2
    (folder / ATTEMPT / "rank-2.exit").write_text(json.dumps({**end, "ended": 1599.0}))
    assert explained(folder).rank == 5
