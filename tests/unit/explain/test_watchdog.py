"""Which rank stood elsewhere, by the lines of torch's watchdog alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.explain.written import explained, of_log, write_job

PREFIX = "[rank{}]:[E1121 20:27:21.426415540 ProcessGroupNCCL.cpp"


def timed_out(
    rank: int, number: int, name: str = "ALLREDUCE", elements: int = 512, group: str = "0"
) -> str:
    """What torch 2.13 prints of a rank that waits in a collective, and has called two more."""
    begins = PREFIX.format(rank)
    return (
        f"{begins}:683] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum={number}, OpType={name}, NumelIn={elements}, NumelOut={elements}, "
        "Timeout(ms)=600000) ran for 600081 milliseconds before timing out.\n"
        f"{begins}:2241] [PG ID {group} PG GUID {group}(default_pg) Rank {rank}]  failure "
        f"detected by watchdog at work sequence id: {number} PG status: last enqueued work: "
        f"{number + 2}, last completed work: {number - 1}\n"
    )


def asked_to_dump(rank: int, called: int) -> str:
    """What a rank prints that waits in no collective, when another one has timed out."""
    return (
        f"{PREFIX.format(rank)}:1900] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a dump "
        "signal due to a collective timeout from rank 0 and we will try our best to dump the debug "
        f"info. Last enqueued NCCL work: {called}, last completed NCCL work: {called}.\n"
    )


WAITING = "".join(timed_out(rank, 41) for rank in (0, 1, 3))


@pytest.mark.parametrize(
    ("log", "rule", "rank", "summary"),
    [
        (
            WAITING + timed_out(2, 41, "_ALLGATHER_BASE", 1),
            "collective-mismatch",
            2,
            "different collectives as #41 of the default group: ranks 0-1, 3 ALLREDUCE, "
            "rank 2 _ALLGATHER_BASE",
        ),
        (
            WAITING + timed_out(2, 41, elements=500),
            "collective-mismatch",
            2,
            "different tensors: ranks 0-1, 3 512 elements, rank 2 500 elements",
        ),
        (
            WAITING + asked_to_dump(2, 40),
            "collective-timeout",
            2,
            "rank 2 did not join the other ranks",
        ),
        (WAITING + timed_out(2, 41), "collective-timeout", None, "ranks 0-3: a collective"),
        (WAITING + asked_to_dump(2, 43), "collective-timeout", None, "a collective timed out"),
        (
            WAITING + timed_out(2, 77, "BROADCAST", group="5").replace("default_pg", "mesh_tp"),
            "collective-timeout",
            None,
            "a collective timed out",
        ),
    ],
    ids=[
        "another collective",
        "another size",
        "one that did not come",
        "all at the same",
        "one that has called more",
        "another group",
    ],
)
def test_the_rank_that_stood_elsewhere_is_named(
    log: str, rule: str, rank: int | None, summary: str
) -> None:
    explanation = of_log(log)
    assert summary in explanation.summary
    assert explanation.rule == rule
    if rank is not None:
        assert explanation.rank == rank


def test_a_rank_with_a_log_of_its_own_that_did_not_come_is_named(tmp_path: Path) -> None:
    logs = {rank: timed_out(rank, 41) for rank in (0, 1, 3)} | {2: asked_to_dump(2, 40)}
    ends = {rank: (134, float(rank)) for rank in (0, 1, 3)} | {2: (143, 5.0)}
    explanation = explained(write_job(tmp_path / "run", logs, ends))
    assert explanation.rank == 2
    assert "its last was collective #40" in explanation.summary
