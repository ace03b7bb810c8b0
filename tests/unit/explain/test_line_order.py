"""The order of events across ranks decides the cause: by records, by times in the logs, by lines of
one log.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from tests.harness import REPO
from tests.unit.explain.written import (
    ATTEMPT,
    OOM,
    RULES,
    TERMINATE,
    TRACE,
    Written,
    explained,
    of_log,
    timed_out,
    write_job,
    write_run,
)

SKIPPED = (
    "2026-11-21 20:17:20,101 WARNING train: rank 5: out of memory in step 40, skipping the batch\n"
)
WAITING = {rank: timed_out(rank) + TERMINATE for rank in range(8) if rank != 5}
GONE = {rank: (134, rank / 10) for rank in WAITING}
CLEAN_UP = timed_out(5) + TRACE + OOM + "\n"
LEFT = dict.fromkeys(range(8), (143, 40.0)) | {5: (1, 0.0), 0: (134, 5.5)}
LATER = dict.fromkeys(range(8), (143, 40.0)) | {0: (134, 0.0), 5: (1, 2.0)}
STEPS = "".join(f"step {step} loss 2.3\n" for step in range(30))


def all_but(*ranks: int) -> tuple[dict[int, str], dict[int, tuple[int, float]]]:
    """Eight ranks of which some do not say that they waited."""
    waiting = {rank: timed_out(rank) for rank in range(8) if rank not in ranks}
    return waiting, {rank: (134, rank / 10) for rank in waiting} | dict.fromkeys(ranks, (143, 2.0))


def first_of(waiting: int, ranks: int) -> tuple[dict[int, str], dict[int, tuple[int, float]]]:
    """Some ranks of which the first ones time out and the others are terminated."""
    return {rank: timed_out(rank) for rank in range(waiting)}, {
        rank: (1 if rank < waiting else 143, rank) for rank in range(ranks)
    }


@pytest.mark.parametrize(
    ("errs", "ends", "rule", "rank", "summary"),
    [
        # a rank that skips a batch, or prints an exception and goes on, is the cause of the others'
        # timeout
        (
            {**WAITING, 5: SKIPPED},
            GONE | {5: (143, 3.0)},
            "memory-skipped",
            5,
            "other ranks then waited for it",
        ),
        (
            {
                **WAITING,
                5: f"[W1121 20:17:21.000 socket.cpp:1] x\n{TRACE}{OOM}\n{STEPS}{STEPS}{STEPS}",
            },
            GONE | {5: (137, 33.0)},
            "cuda-out-of-memory",
            5,
            "which the program caught",
        ),
        # but not if it skipped it long before, or if all ranks did
        (
            {**WAITING, 5: SKIPPED.replace("20:17", "11:17")},
            GONE | {5: (143, 3.0)},
            "collective-timeout",
            5,
            "^rank 5 on node02 did not join the other ranks",
        ),
        (
            {rank: SKIPPED + text for rank, text in {**WAITING, 5: ""}.items()},
            GONE | {5: (143, 3.0)},
            "collective-timeout",
            5,
            "",
        ),
        # a timeout is the cause of what its clean-up raises, and of a later failure where the times
        # show it
        (
            {0: timed_out(0) + TERMINATE, 5: CLEAN_UP},
            LEFT,
            "collective-timeout",
            0,
            "^(?!.*ran out of memory)",
        ),
        (
            {0: timed_out(0), 5: TRACE + OOM + "\n" + timed_out(5)},
            LEFT,
            "cuda-out-of-memory",
            5,
            "",
        ),
        (
            {0: timed_out(0), 5: f"[W1121 20:28:00.000 s.cpp:1] x\n{TRACE}{OOM}\n"},
            LATER,
            "collective-timeout",
            0,
            "",
        ),
        ({0: timed_out(0), 5: f"{TRACE}{OOM}\n"}, LATER, "cuda-out-of-memory", 5, ""),
        # the rank for which all others waited is named; of two it is not known which one was
        # missing
        (
            *all_but(3),
            "collective-timeout",
            3,
            "^rank 3 on node01 did not join the other ranks: a collective timed out",
        ),
        (*all_but(3, 4), "collective-timeout", 0, "^(?!.*did not join)"),
        # those that did not time out are named, if they are few
        (
            *first_of(1, 2),
            "collective-timeout",
            0,
            "^rank 0 on node01 failed first: a collective timed out.*; rank 1 on node01 reported "
            "no timeout$",
        ),
        (*first_of(2, 2), "collective-timeout", 0, "^(?!.*reported no timeout)"),
        (*first_of(3, 5), "collective-timeout", 0, "; ranks 3-4 reported no timeout$"),
        (*first_of(1, 5), "collective-timeout", 0, "^(?!.*reported no timeout)"),
    ],
)
def test_the_first_of_several_failures_is_the_cause(
    tmp_path: Path,
    errs: dict[int, str],
    ends: dict[int, tuple[int, float]],
    rule: str,
    rank: int,
    summary: str,
) -> None:
    shown = explained(write_job(tmp_path / "run", errs, ends))
    assert (shown.rule, shown.rank) == (rule, rank), shown.summary
    assert re.search(summary, shown.summary), shown.summary
    if rule == "memory-skipped":
        assert shown.evidence[0].who == "rank 5 on node02"
        assert any("Watchdog caught" in line for item in shown.evidence for line in item.lines)


def test_in_a_log_alone_a_timeout_is_the_cause_of_what_its_clean_up_raises() -> None:
    assert of_log("step 40\n" + CLEAN_UP.replace("[rank5]:", "")).rule == "collective-timeout"


NO_ANSWER = (
    "gpu07:311:399 [0] transport/net_ib.cc:2025 NCCL WARN NET/IB: Got completion from peer "
    "10.0.0.2<54862> with "
    "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129  hca mlx5_0\n"
)
CLOSED = (
    f"{TRACE}RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection "
    "closed by peer "
    "[10.78.0.7]:932. This is typically caused by a remote worker crashing.\n"
)
NODE_FAILED = (
    "srun: error: Node failure on node02\nsrun: Job step aborted: Waiting up to 32 seconds.\n"
)


@pytest.mark.parametrize(
    "symptom", [NO_ANSWER, CLOSED, timed_out(0)], ids=["ib", "gloo", "timeout"]
)
def test_a_node_that_failed_is_the_cause_of_what_ranks_on_other_nodes_say(
    tmp_path: Path, symptom: str
) -> None:
    ends = {0: (1, 0.0), 1: (143, 2.0), 2: (143, 2.0), 3: (143, 2.0)}
    shown = explained(write_job(tmp_path / "run", {0: symptom}, ends, batch=NODE_FAILED))
    assert (shown.rule, "node02" in shown.summary) == ("node-failed", True), shown.summary
    for order in (symptom + NODE_FAILED, NODE_FAILED + symptom):
        alone = of_log(order)
        assert alone.rule == "node-failed"
        assert alone.rank is None


@pytest.mark.parametrize(
    "crash",
    [
        "srun: error: node02: task 5: Segmentation fault (core dumped)\n",
        "mpirun noticed that process rank 5 with PID 4940 on node02 exited on signal 11 "
        "(Segmentation fault).\n",
    ],
    ids=["srun", "mpirun"],
)
@pytest.mark.parametrize(
    "symptom",
    [CLOSED, NO_ANSWER, "[rank0]: " + CLOSED.splitlines()[-1] + "\n"],
    ids=["gloo", "ib", "rank"],
)
def test_a_crash_of_one_rank_is_the_cause_of_the_connections_that_others_lost(
    crash: str, symptom: str
) -> None:
    for order in (symptom + crash, crash + symptom):
        shown = of_log(order)
        assert (shown.rule, shown.rank) == ("crashed", 5), shown.summary


HUNG = "".join(
    f"w1:51{rank}:56{rank} [{rank}] include/socket.h:344 WARN Socket creation failed : Address "
    "family not supported\n"
    for rank in range(4)
)
LIMIT = (
    "slurmstepd: error: *** JOB 40 ON w1 CANCELLED AT 2019-04-20T14:10:22 DUE TO TIME LIMIT ***\n"
)
RETRIED = (
    f"{TRACE}OSError: [Errno 37] No locks available\n\n"
    "During handling of the above exception, another exception "
    f"occurred:\n\n{TRACE}KeyboardInterrupt\n"
)


@pytest.mark.parametrize(
    ("state", "log", "rule"),
    [
        ("TIMEOUT", HUNG + LIMIT, "nccl-socket"),
        ("TIMEOUT", HUNG + STEPS + LIMIT, "time-limit"),
        ("CANCELLED", RETRIED, "io-error"),
        ("CANCELLED", f"{TRACE}KeyboardInterrupt\n", "cancelled"),
    ],
)
def test_a_job_that_hung_or_tried_again_until_it_was_ended_failed_before(
    tmp_path: Path, state: str, log: str, rule: str
) -> None:
    folder = write_run(
        Written(None, others="", failed=None, state=state, batch=log), tmp_path / "run"
    )
    for path in (folder / ATTEMPT).glob("rank-*"):
        path.unlink()
    assert explained(folder).rule == rule


@pytest.mark.parametrize(
    ("log", "rule", "rank"),
    [
        *(
            (f"{name}{prefixed}", rule, 1)
            for prefixed in ("", "-tee")
            for name, rule in (
                ("skip", "memory-skipped"),
                ("cleanup", "collective-timeout"),
                ("crash", "crashed"),
            )
        ),
        ("no-guard-spawn", "main-guard", None),
        ("no-guard-mpspawn", "main-guard", 1),
    ],
)
def test_real_logs_of_ranks_of_which_one_made_the_others_fail(
    log: str, rule: str, rank: int | None
) -> None:
    shown = explain_logs([str(REPO / f"tests/data/explain/order/{log}.log")], RULES)
    assert (shown.rule, shown.rank) == (rule, rank), shown.summary
    assert not re.search("Connection reset|could not allocate", shown.summary)


@pytest.mark.parametrize(
    ("line", "raised", "rule"),
    [
        ("conda: command not found", "KeyError: 'lr'", None),
        ("conda: command not found", "ModuleNotFoundError: No module named 'torch'", "shell-setup"),
        ("n1: Cuda failure 'out of memory'", "ValueError: no batch", None),
        (
            "n1: Cuda failure 'out of memory'",
            "RuntimeError: NCCL error in: x.cpp:1, internal error",
            "nccl-out-of-memory",
        ),
    ],
)
def test_what_was_complained_of_before_an_exception_of_the_program_is_not_its_cause(
    line: str, raised: str, rule: str | None
) -> None:
    shown = of_log(f"{line}\n{STEPS}{TRACE}{raised}\n")
    assert shown.rule == rule
    assert rule or raised.partition(":")[0] in shown.summary
