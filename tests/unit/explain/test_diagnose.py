"""Which of several failures is the cause: by the records of the ranks, and where they are
incomplete.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.explain.ended import explain
from tests.unit.builders import write
from tests.unit.explain.written import (
    AGENT,
    ATTEMPT,
    CASES,
    NCCL_GONE,
    OOM,
    PEER_CLOSED,
    RULES,
    TRACE,
    Written,
    explained,
    raised,
    record_end,
    status_of,
    write_run,
)

KEY = raised("KeyError: 'lr'")
FIRST = "rank 5 on node02 failed first"
FIRST_KEY = f"{FIRST}: KeyError: 'lr' at train.py:63"
VALUE = f"{TRACE}ValueError: image 4711 is truncated\n"
IS_TRUNCATED = f"{FIRST}: ValueError: image 4711 is truncated at train.py:63"
THREAD = f"Exception in thread Thread-1 (loader):\n{TRACE}OSError: stale file handle\n"
FRAME = (
    '  File "/v/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3, in '
    "barrier\n    wait()\n"
)
TERMINATED = "terminate called without an active exception"
LIMIT = (
    "slurmstepd: error: *** JOB 4711 ON node01 CANCELLED AT 2026-11-22T10:00:00 DUE TO TIME "
    "LIMIT ***\n"
)


def remove(folder: Path, glob: str) -> None:
    for path in (folder / ATTEMPT).glob(glob):
        path.unlink()


def end(folder: Path, **fields: object) -> None:
    """Write how the job ended, by its script."""
    record = {"status": 143, "signal": "", "ended": 1600.0, "message": "", **fields}
    (folder / ATTEMPT / "exit").write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("status", "err", "summary"),
    [
        # a printed exception is named whatever the program returns, but not one before a signal
        *(
            (status, VALUE + after, IS_TRUNCATED)
            for status in (1, 2, 127)
            for after in ("", "giving up\n")
        ),
        (2, THREAD, f"{FIRST}: OSError: stale file handle at train.py:63"),
        (139, VALUE, f"{FIRST}: crashed in native code"),
        # nor one after which the program continued
        (3, VALUE + "".join(f"step {step}\n" for step in range(9)), f"{FIRST} with exit status 3"),
        # a last line that complains is in the answer
        (
            1,
            "step 3\nERROR: no tokenizer found in ./tok\n",
            f"{FIRST} with exit status 1: ERROR: no tokenizer found in ./tok",
        ),
        (
            17,
            "2026-11-23 05:28:58,922 CRITICAL root: disk quota exceeded\n",
            f"{FIRST} with exit status 17: 2026-11-23 05:28:58,922 CRITICAL root: disk quota "
            "exceeded",
        ),
        (
            4,
            "prepare: cannot read /data/a.tar\n",
            f"{FIRST} with exit status 4: prepare: cannot read /data/a.tar",
        ),
        (3, "ERROR: skipped a.tar\n" + "step\n" * 5, f"{FIRST} with exit status 3"),
        (3, "saved the model\n", f"{FIRST} with exit status 3"),
        # what a shell, C++ or hpcrun says of a rank that could not start is the answer
        (
            127,
            "bash: run.sh: No such file or directory\n",
            f"{FIRST}: run.sh: No such file or directory",
        ),
        (126, "/bin/sh: ./run.sh: Permission denied\n", f"{FIRST}: ./run.sh: Permission denied"),
        (134, f"{TERMINATED}\n", f"{FIRST}: {TERMINATED}"),
        (
            127,
            "hpcrun: a100-2 has no apptainer on its PATH; load its module (--load)\n",
            f"{FIRST}: a100-2 has no apptainer on its PATH",
        ),
        (
            127,
            "hpcrun: a100-2 has no image /x/i.sif; put it where all nodes see it\n",
            f"{FIRST}: a100-2 has no image /x/i.sif",
        ),
        (
            127,
            "hpcrun: cannot start apptainer: not here\n",
            f"{FIRST}: cannot start apptainer: not here",
        ),
    ],
)
def test_what_the_end_of_a_ranks_log_says_of_its_exit_status(
    tmp_path: Path, status: int, err: str, summary: str
) -> None:
    others = NCCL_GONE if status < 126 or err == VALUE else ""
    shown = explained(write_run(Written(None, err, others, status=status), tmp_path / "run"))
    assert shown.summary == summary or (status == 139 and "ValueError" not in shown.summary)
    fix = err.partition("; ")[2].strip() if err.startswith("hpcrun: ") else ""
    assert fix in shown.fix


def test_an_exception_that_was_printed_long_before_the_other_log_ended_is_not_named(
    tmp_path: Path,
) -> None:
    folder = write_run(Written(None, VALUE, status=3), tmp_path / "run")
    os.utime(folder / ATTEMPT / "rank-5.err", (1500.0, 1500.0))
    assert explained(folder).summary == f"{FIRST} with exit status 3"


def test_without_records_the_rank_that_fell_silent_first_is_to_blame(tmp_path: Path) -> None:
    folder = write_run(Written(None, KEY, "ValueError: b\n"), tmp_path / "run")
    remove(folder, "rank-*.exit")
    for log in (folder / ATTEMPT).glob("rank-*.*"):
        os.utime(log, (2000, 1000 if log.stem == "rank-5" else 2000))
    shown = explained(folder)
    assert shown.rank == 5
    assert shown.rule is None
    assert shown.summary == "rank 5: KeyError: 'lr' at train.py:63"


def test_without_records_torchruns_block_names_rank_and_host(tmp_path: Path) -> None:
    block = (
        "Root Cause (first observed failure):\n[0]:\n  time : 2026-11-21_10:00:02\n  host : "
        "n2\n  rank : 5\n"
    )
    block += f"  exitcode  : 1 (pid: 4)\n  traceback : ValueError: b\n{'=' * 40}\n"
    folder = write_run(Written(None, batch=block), tmp_path / "run")
    remove(folder, "rank-*")
    shown = explained(folder)
    assert shown.summary.startswith("rank 5 on n2 failed first with exit status 1")
    assert any("ValueError: b" in item.lines for item in shown.evidence)


def test_what_the_batch_log_says_of_an_earlier_attempt_is_left_out(tmp_path: Path) -> None:
    folder = write_run(Written(None, KEY, ""), tmp_path / "run")
    (folder / ATTEMPT).rename(folder / "elements/0/attempts/1")
    begins = "hpcrun: job 4711 on node01, rendezvous node01:24711\n"
    (folder / "batch.log").write_text(
        f"{begins}srun: error: node02: task 5: Out Of Memory\n{begins}"
    )
    assert explained(folder).summary == FIRST_KEY


def test_requeues_that_are_used_up_are_not_advised_again(tmp_path: Path) -> None:
    folder = write_run(CASES["time-limit-new"], tmp_path / "run")
    write(folder / "elements/0/checkpoints/last.pt", "")
    assert explained(folder).fix == "use a longer --time, or --requeue with checkpoints"
    assert explained(folder).next == "hpcrun resubmit 4711 --time 02:00:00"
    status = json.loads((folder / "status.json").read_text())
    reason = "time limit, not requeued: --requeue 2 is used up"
    (folder / "status.json").write_text(json.dumps({**status, "reason": reason}))
    assert explained(folder).fix == "use a longer --time, or more than --requeue 2 with checkpoints"


def test_the_words_of_the_script_itself_are_the_answer(tmp_path: Path) -> None:
    folder = write_run(Written(None, failed=None), tmp_path / "run")
    end(folder, status=1, message="cannot load module cuda/12.8")
    remove(folder, "rank-*")
    assert explained(folder).summary == "cannot load module cuda/12.8"


def test_of_two_causes_that_of_the_rank_that_failed_first_counts(tmp_path: Path) -> None:
    folder = write_run(CASES["quota"], tmp_path / "run")
    (folder / ATTEMPT / "rank-2.err").write_text(raised(OOM))
    for ended_s, rank in ((1580.0, 2), (1599.0, 5)):
        record_end(folder, 2, 1, ended_s)
        assert explained(folder).rank == rank


def test_the_exception_of_the_first_rank_is_the_answer_and_the_agents_words_are_evidence(
    tmp_path: Path,
) -> None:
    shown = explained(write_run(CASES["rendezvous-lost-after-rank-0"], tmp_path / "run"))
    assert shown.summary == "rank 0 on node01 failed first: KeyError: 'lr' at train.py:63"
    assert shown.rule is None
    assert shown.rank == 0
    assert shown.node == "node01"
    assert "hpcrun preflight" not in shown.next
    (agents,) = [
        item for item in shown.evidence if "RendezvousConnectionError" in " ".join(item.lines)
    ]
    assert agents.who == "batch script"
    assert shown.evidence.index(agents) > 0


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'lmod_helper'",
        "[W1122 socket.cpp:558] [c10d] Error: port: 29500, EADDRINUSE, the server socket has "
        "failed to bind",
        "srun: error: Unable to allocate resources: Socket timed out on send/recv operation",
    ],
)
def test_a_line_in_the_batch_log_is_not_what_ended_a_rank(tmp_path: Path, line: str) -> None:
    folder = write_run(Written(None, others="", failed=None, batch=f"{line}\n"), tmp_path / "run")
    assert explained(folder).rule is not None  # where no rank failed it is what is known
    (folder / ATTEMPT / "rank-5.err").write_text(KEY)
    record_end(folder, 5, 1, 1590.0)
    assert explained(folder).summary == FIRST_KEY


def test_a_rank_that_raised_and_was_terminated_before_it_had_ended_is_named(tmp_path: Path) -> None:
    folder = write_run(Written(None, KEY, raised(PEER_CLOSED), status=143), tmp_path / "run")
    assert explained(folder).summary == FIRST_KEY
    assert explained(folder, quick=True).rank == 5
    status = json.loads((folder / "status.json").read_text())
    # it had logged an error before
    (folder / "status.json").write_text(json.dumps({**status, "state": "CANCELLED"}))
    assert explained(folder).rank is None


@pytest.mark.parametrize(
    ("err", "others", "rank", "ended_s"),
    [
        # a rank that lost the store long before the first was gone is a victim
        (
            KEY,
            raised(f"{FRAME}torch.distributed.DistNetworkError: failed to recv, got 0 bytes"),
            5,
            1610.0,
        ),
        # the words of libraries at its end do not make it one
        (f"{KEY}{TERMINATED}\n", raised("ValueError: the shard is empty"), 0, 1599.0),
    ],
)
def test_a_rank_is_the_victim_of_another_by_its_last_words(
    tmp_path: Path, err: str, others: str, rank: int, ended_s: float
) -> None:
    folder = write_run(Written(None, err, others), tmp_path / "run")
    record_end(folder, rank, 1, ended_s)
    assert explained(folder).summary == FIRST_KEY


def test_a_rank_that_left_with_0_while_others_worked_on_is_named(tmp_path: Path) -> None:
    folder = write_run(
        Written(None, others=raised(PEER_CLOSED), failed=None, batch=AGENT), tmp_path / "run"
    )
    for ended_s in (1580.0, 1591.5):  # long before the others, or noted after they had noticed
        record_end(folder, 5, 0, ended_s)
        shown = explained(folder)
        assert shown.summary.startswith(
            "rank 5 on node02 ended first, with exit status 0, while 7 other ranks continued; "
            "rank 0 on node01 then failed: RuntimeError: Connection closed by peer"
        )
        assert shown.rule is None
        assert shown.rank == 5
        assert shown.evidence[0].where == f"{ATTEMPT}/rank-5.exit"
    record_end(folder, 3, 1, 1590.0)
    (folder / ATTEMPT / "rank-3.err").write_text(KEY)
    record_end(folder, 5, 0, 1580.0)
    both = explained(folder)
    assert both.summary == "rank 3 on node01 failed first: KeyError: 'lr' at train.py:63"
    assert both.evidence[0].lines == (
        "exit status 0, 10.0 s before another rank failed or was terminated",
    )


def test_a_rank_that_went_on_alone_is_named_with_what_to_look_for(tmp_path: Path) -> None:
    folder = write_run(
        Written(None, others=raised(PEER_CLOSED), failed=None, batch=AGENT), tmp_path / "run"
    )
    for rank in range(1, 8):
        record_end(folder, rank, 0, 1580.0 + rank)
    shown = explained(folder)
    assert shown.summary.startswith(
        "rank 0 on node01 continued alone: ranks 1-7 had ended with exit status 0; it then failed: "
    )
    assert "a collective on one rank alone" in shown.fix


@pytest.mark.parametrize(("state", "rule"), [("TIMEOUT", "time-limit"), ("CANCELLED", "cancelled")])
def test_a_rank_that_ended_before_the_job_was_signalled_is_named(
    tmp_path: Path, state: str, rule: str
) -> None:
    folder = write_run(Written(None, others="", state=state, failed=None), tmp_path / "run")
    end(folder, signal="TERM", ended=1590.5)
    record_end(folder, 5, 0, 1600.0)
    assert explained(folder).rule == rule
    assert explained(folder).rank is None
    record_end(folder, 5, 0, 1520.0)
    hung = explained(folder)
    assert hung.rule == rule
    assert hung.rank == 5
    assert hung.summary.startswith(
        "rank 5 on node02 ended first, with exit status 0, while 7 other ranks continued; the job"
    )
    (folder / ATTEMPT / "rank-5.err").write_text(KEY)
    record_end(folder, 5, 1, 1520.0)
    assert explained(folder).summary == FIRST_KEY
    end(folder, ended=1590.5)
    (folder / ATTEMPT / "stop").mkdir()
    (folder / ATTEMPT / "stop/time_limit").write_text("node01 1510.25\n")
    assert explained(folder).rank is None


def test_a_quick_look_reads_on_where_the_first_ranks_only_speak_of_others(tmp_path: Path) -> None:
    folder = write_run(Written(None, others="", failed=None, batch=AGENT), tmp_path / "run")
    for rank in range(20):
        (folder / ATTEMPT / f"rank-{rank}.err").write_text(
            KEY if rank == 17 else raised(PEER_CLOSED)
        )
        record_end(folder, rank, 1, 1590.0 + rank / 100)
    assert (
        explained(folder, quick=True).summary
        == "rank 17 on node05 failed first: KeyError: 'lr' at train.py:63"
    )


@pytest.mark.parametrize(
    ("what", "fix"),
    [
        ("a100-2 cannot resolve a100-1, the host of rank 0", "try --exclude=a100-2"),
        ("a100-2 cannot write in the run's folder /r: Read-only file system", "choose a runs"),
        (
            "/tmp/hpcrun-uv-7 on a100-2 is not your folder",
            "submit with HPCRUN_UV_DIR=/path, a folder",
        ),
        ("/env/bin/python cannot import ray (No module named 'ray')", "install it there"),
        ("1 of 2 nodes did not join Ray within 180 s: a100-2", "see the logs of their ranks"),
    ],
)
def test_what_hpcrun_itself_says_of_a_node_is_the_answer(
    tmp_path: Path, what: str, fix: str
) -> None:
    batch = f"hpcrun: {what}; {fix}\nsrun: error: a100-2: task 1: Exited with exit code 1\n"
    folder = write_run(Written(None, others="", status=143, batch=batch), tmp_path / "run")
    remove(folder, "rank-*")
    shown = explained(folder)
    assert shown.rule == "hpcrun-node"
    assert shown.rank == 1
    assert shown.summary.endswith(what)
    assert shown.fix.startswith(fix)


# --- a job that wrote nothing for a long time before it was stopped ------------------------------


def stopped(folder: Path, state: str, wrote: dict[int, float], batch: str = "") -> Path:
    """A job that began at 1500 s and was signalled at 1620 s; rank → when it last wrote, else at
    1502 s.
    """
    write_run(Written(None, others="", state=state, failed=None, batch=batch), folder)
    end(folder, signal="TERM", ended=1620.0)
    remove(folder, "rank-*.exit")
    for log in (folder / ATTEMPT).glob("rank-*.*"):
        os.utime(log, (0, wrote.get(int(log.stem[5:]), 1502.0)))
    return folder


@pytest.mark.parametrize(("state", "batch"), [("TIMEOUT", ""), ("TIMEOUT", LIMIT)])
def test_a_job_that_was_silent_before_its_end_tells_its_last_line(
    tmp_path: Path, state: str, batch: str
) -> None:
    shown = explained(stopped(tmp_path / "run", state, {3: 1512.0}, batch))
    said = (
        "the job reached its time limit; no rank had written for 108 s, since rank 3 wrote: step 1 "
        "loss 2.3"
    )
    assert shown.summary == said
    assert "--stacks" in shown.fix
    assert not shown.fix.startswith("use a longer --time")


def test_a_time_out_without_checkpoints_says_that_the_next_run_begins_at_zero(
    tmp_path: Path,
) -> None:
    folder = stopped(tmp_path / "run", "TIMEOUT", {3: 1600.0})
    checkpoints = folder / "elements/0/checkpoints"
    checkpoints.mkdir()
    assert "in $HPCRUN_CHECKPOINT_DIR: resubmitted, it begins at zero" in explained(folder).fix
    (checkpoints / "last.pt").touch()
    assert "zero" not in explained(folder).fix


def test_a_job_that_a_person_cancels_hung_only_after_a_long_silence(
    tmp_path: Path,
) -> None:
    short = stopped(tmp_path / "short", "CANCELLED", {3: 1512.0})
    said = "the job was cancelled; no rank had written for 108 s"
    assert explained(short).summary == said
    assert explained(short).fix == ""
    long = stopped(tmp_path / "long", "CANCELLED", {3: 1512.0})
    end(long, signal="TERM", ended=2520.0)
    assert "; no rank had written for 16 min, since rank 3 wrote: " in explained(long).summary


def test_a_dev_session_did_not_hang(tmp_path: Path) -> None:
    item = status_of(stopped(tmp_path / "run", "TIMEOUT", {}))
    session = replace(item, run=replace(item.run, request={"script": "hpcrun_dev"}))
    assert explain(session, RULES).summary == "the job reached its time limit"


def test_a_job_whose_silence_proves_nothing_did_not_hang(tmp_path: Path) -> None:
    def is_over_time(folder: Path, *, quick: bool = False) -> bool:
        shown = explained(folder, quick=quick)
        return shown.summary == "the job reached its time limit" and shown.fix.startswith(
            "use a longer --time"
        )

    assert is_over_time(stopped(tmp_path / "wrote", "TIMEOUT", {3: 1580.0}))
    never = stopped(tmp_path / "never", "TIMEOUT", {})
    for log in never.glob(f"{ATTEMPT}/rank-*.out"):
        log.write_text("")
    assert is_over_time(never)
    many = stopped(tmp_path / "many", "TIMEOUT", {})
    for rank in range(8, 90):  # of which a quick look reads some
        (many / ATTEMPT / f"rank-{rank}.out").write_text("step 1\n")
        os.utime(many / ATTEMPT / f"rank-{rank}.out", (0, 1619.0))
    assert is_over_time(many, quick=True)
