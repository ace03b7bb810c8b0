"""Which of several failures is the cause, where the records of the ranks are incomplete."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.explain.test_corpus import explained
from tests.unit.explain.written import AGENT, CASES, OOM, PEER_CLOSED, Written, raised, write_run

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
    assert said.summary == "rank 5: KeyError: 'a' at train.py:63"


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


def test_requeues_that_are_used_up_are_not_advised_again(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(CASES["time-limit-new"], folder)
    assert explained(folder).fix == "use a longer --time, or --requeue with checkpoints"
    status = json.loads((folder / "status.json").read_text())
    reason = "time limit, not requeued: --requeue 2 is used up"
    (folder / "status.json").write_text(json.dumps({**status, "reason": reason}))
    assert explained(folder).fix == "use a longer --time, or more than --requeue 2 with checkpoints"


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


def record_end(folder: Path, rank: int, status: int, ended_s: float) -> None:
    end = {"rank": rank, "node": f"node0{1 + rank // 4}", "status": status, "ended": ended_s}
    (folder / ATTEMPT / f"rank-{rank}.exit").write_text(json.dumps(end))


def test_the_exception_of_the_first_rank_is_the_answer_and_the_agents_words_are_evidence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(CASES["rendezvous-lost-after-rank-0"], folder)
    said = explained(folder)
    assert said.summary == "rank 0 on node01 failed first: KeyError: 'lr' at train.py:63"
    assert (said.rule, said.rank, said.node) == (None, 0, "node01")
    assert "hpcrun preflight" not in said.next
    (agents,) = [item for item in said.evidence if "RendezvousConnectionError" in " ".join(item.lines)]
    assert agents.who == "batch script"
    assert said.evidence.index(agents) > 0


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'lmod_helper'",
        "[W1122 socket.cpp:558] [c10d] Error: port: 29500, EADDRINUSE, the server socket has failed to bind",
        "srun: error: Unable to allocate resources: Socket timed out on send/recv operation",
    ],
)
def test_a_line_in_the_batch_log_is_not_what_ended_a_rank(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, "", "", failed=None, batch=f"{line}\n"), folder)
    assert explained(folder).rule is not None  # where no rank failed it is what is known
    (folder / ATTEMPT / "rank-5.err").write_text(raised("KeyError: 'lr'"))
    record_end(folder, 5, 1, 1590.0)
    assert explained(folder).summary == "rank 5 on node02 failed first: KeyError: 'lr' at train.py:63"


def test_a_rank_that_raised_and_was_terminated_before_it_had_ended_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, raised("KeyError: 'lr'"), raised(PEER_CLOSED), status=143), folder)
    assert explained(folder).summary == "rank 5 on node02 failed first: KeyError: 'lr' at train.py:63"
    assert explained(folder, quick=True).rank == 5
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps({**status, "state": "CANCELLED"}))  # it had logged an error before
    assert explained(folder).rank is None


def test_a_rank_that_lost_the_store_long_before_the_first_was_gone_is_a_victim(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    frame = '  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in barrier\n'
    lost = raised(f"{frame}    work.wait()\ntorch.distributed.DistNetworkError: failed to recv, got 0 bytes")
    write_run(Written(None, raised("KeyError: 'lr'"), lost), folder)
    record_end(folder, 5, 1, 1610.0)
    assert explained(folder).summary == "rank 5 on node02 failed first: KeyError: 'lr' at train.py:63"


def test_the_words_of_libraries_at_the_end_of_a_rank_do_not_make_it_a_victim(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, raised("KeyError: 'lr'") + "terminate called without an active exception\n",
                      raised("ValueError: the shard is empty")), folder)  # fmt: skip
    record_end(folder, 0, 1, 1599.0)
    assert explained(folder).rank == 5


def test_a_rank_that_left_with_0_while_others_worked_on_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, "", raised(PEER_CLOSED), failed=None, batch=AGENT), folder)
    for ended_s in (1580.0, 1591.5):  # long before the others, or noted after they had noticed
        record_end(folder, 5, 0, ended_s)
        said = explained(folder)
        assert said.summary.startswith(
            "rank 5 on node02 ended first, with exit status 0, while 7 other ranks continued; "
            "rank 0 on node01 then failed: RuntimeError: Connection closed by peer"
        )
        assert (said.rule, said.rank) == (None, 5)
        assert said.evidence[0].where == f"{ATTEMPT}/rank-5.exit"
    record_end(folder, 3, 1, 1590.0)
    (folder / ATTEMPT / "rank-3.err").write_text(raised("KeyError: 'lr'"))
    record_end(folder, 5, 0, 1580.0)
    both = explained(folder)
    assert both.summary == "rank 3 on node01 failed first: KeyError: 'lr' at train.py:63"
    assert both.evidence[0].lines == ("exit status 0, 10.0 s before another rank failed or was terminated",)


@pytest.mark.parametrize(("state", "rule"), [("TIMEOUT", "time-limit"), ("CANCELLED", "cancelled")])
def test_a_rank_that_ended_before_the_job_was_signalled_is_named(tmp_path: Path, state: str, rule: str) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, "", "", state=state, failed=None), folder)
    end = {"status": 143, "signal": "TERM", "ended": 1590.5, "message": ""}
    (folder / ATTEMPT / "exit").write_text(json.dumps(end))
    record_end(folder, 5, 0, 1600.0)
    assert (explained(folder).rule, explained(folder).rank) == (rule, None)
    record_end(folder, 5, 0, 1520.0)
    hung = explained(folder)
    assert (hung.rule, hung.rank) == (rule, 5)
    assert hung.summary.startswith(
        "rank 5 on node02 ended first, with exit status 0, while 7 other ranks continued; the job"
    )
    (folder / ATTEMPT / "rank-5.err").write_text(raised("KeyError: 'lr'"))
    record_end(folder, 5, 1, 1520.0)
    assert explained(folder).summary == "rank 5 on node02 failed first: KeyError: 'lr' at train.py:63"
    (folder / ATTEMPT / "exit").write_text(json.dumps({**end, "signal": ""}))
    (folder / ATTEMPT / "stop").mkdir()
    (folder / ATTEMPT / "stop" / "time_limit").write_text("node01 1510.25\n")
    record_end(folder, 5, 1, 1520.0)
    assert explained(folder).rank is None


def test_a_quick_look_reads_on_where_the_first_ranks_only_speak_of_others(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, "", "", failed=None, batch=AGENT), folder)
    for rank in range(20):
        (folder / ATTEMPT / f"rank-{rank}.err").write_text(raised(PEER_CLOSED))
        record_end(folder, rank, 1, 1590.0 + rank / 100)
    (folder / ATTEMPT / "rank-17.err").write_text(raised("KeyError: 'lr'"))
    assert explained(folder, quick=True).summary == "rank 17 on node05 failed first: KeyError: 'lr' at train.py:63"


@pytest.mark.parametrize(
    "said",
    [
        "a100-2 cannot resolve a100-1, the host of rank 0; try --exclude=a100-2",
        "/tmp/hpcrun-uv-7 on a100-2 is not your folder; submit with HPCRUN_UV_DIR=/path, a folder",
    ],
)
def test_what_hpcrun_itself_says_of_a_node_is_the_answer(tmp_path: Path, said: str) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, others="", status=143), folder)
    for record in folder.glob(f"{ATTEMPT}/rank-*"):
        record.unlink()
    with (folder / "batch.log").open("a") as batch:
        batch.write(f"hpcrun: {said}\nsrun: error: a100-2: task 1: Exited with exit code 1\n")
    found = explained(folder)
    assert (found.rule, found.rank) == ("hpcrun-node", 1)
    what, _, fix = said.partition("; ")
    assert found.summary.endswith(what)
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(
    "said",
    [
        "a100-2 has no apptainer on its PATH; load its module (--load), or leave the node out (--exclude)",
        "a100-2 has no image /x/i.sif; put it where all nodes see it, or leave the node out (--exclude)",
        "cannot start apptainer: Permission denied",
    ],
)
def test_what_hpcrun_says_of_a_rank_that_it_could_not_start_is_the_answer(tmp_path: Path, said: str) -> None:
    folder = tmp_path / "run"
    write_run(Written(None, f"hpcrun: {said}\n", others="", status=127), folder)
    found = explained(folder)
    what, _, fix = said.partition("; ")
    assert found.summary == f"rank 5 on node02 failed first: {what}"
    assert fix in found.fix
