"""What NCCL's RAS reports, in sentences."""

from __future__ import annotations

import time

import pytest

from hpcrun.explain.diagnosis.nccl_report import ras_remarks
from tests.harness import REPO

REPORTS = REPO / "tests/data/ras"
OF_8 = "NCCL communicator 78db921d1c117b4a of 8 ranks"


def report(name: str) -> str:
    return (REPORTS / f"{name}.txt").read_text()


def remarks(*texts: str, rank_of: dict[int, int] | None = None) -> list[str]:
    return ras_remarks(texts, rank_of or {})


def test_ranks_that_lag_behind_are_named_with_the_counts() -> None:
    lag = report("lag")
    assert remarks(lag, lag, rank_of={1650386: 7}) == [
        f"rank 7 has launched no Broadcast, 7 other ranks Broadcast 3 ({OF_8})",
        f"rank 7 has launched AllReduce 60 last, 7 other ranks AllReduce 64 ({OF_8})",
    ]
    # the rank in a communicator may be another one than that in the job
    assert remarks(lag, lag)[0].startswith(
        "rank 7 of its communicator (process 1650386 on 10.0.0.2) has launched no"
    )


def test_of_many_ranks_the_first_are_named() -> None:
    lag = report("lag-2.24")
    assert remarks(lag, lag, rank_of={483072 + rank: rank + 8 for rank in range(8)}) == [
        "rank 8, rank 10, rank 11 and 3 more have launched collective 6649 last, 26 other ranks "
        "collective 6650 "
        "(NCCL communicator 27a079b828ff1a75 of 32 ranks)"
    ]
    halves = report("lag-halves")
    said = f"4 ranks have launched AllGather 11 last, 4 other ranks AllGather 12 ({OF_8})"
    assert remarks(halves, halves) == [said]


def test_a_difference_counts_only_if_it_stays() -> None:
    lag = report("lag")
    assert remarks(lag) == []
    assert (
        remarks(
            lag, lag.replace("operation 60", "operation 61").replace("has not launched any", "x")
        )
        == []
    )
    assert remarks(report("healthy"), lag) == []
    assert remarks(lag, report("healthy")) == []
    # 7 ranks have gone on meanwhile, and rank 7 has not
    went_on = remarks(lag, lag.replace("operation 64", "operation 65"))
    assert went_on[1].endswith(f"AllReduce 60 last, 7 other ranks AllReduce 65 ({OF_8})")


def test_processes_that_do_not_answer_are_named() -> None:
    assert remarks(report("stopped-2.24")) == [
        "process 3487984 on 172.16.64.213 does not respond to NCCL"
    ]
    assert remarks(report("stopped-2.24"), rank_of={3487984: 21}) == [
        "rank 21 does not respond to NCCL"
    ]
    assert remarks(report("dead-2.24"), rank_of={3487984: 21}) == [
        "rank 21 has not responded to NCCL for a minute"
    ]
    many = (
        report("dead-2.24")
        .replace("1 job process is", "24 job processes are")
        .replace("  Process", "  [process")
    )
    assert remarks(many) == ["24 processes have not responded to NCCL for a minute"]


def test_a_status_that_differs_is_said_with_the_fewest_first() -> None:
    text = report("finalize-2.24")
    assert remarks(text, text, rank_of={507289: 4, 3500075: 20}) == [
        "rank 4 and rank 20 are in FINALIZE, 4 other ranks are in RUNNING and 26 other ranks are "
        "in UNKNOWN "
        "(NCCL communicator 9e17999afaa87dbb of 32 ranks)"
    ]


def test_errors_of_ranks_are_said_at_once() -> None:
    assert remarks(report("error"), rank_of={101: 1, 102: 2}) == [
        "rank 1 and rank 2 reported Remote process error",
        "rank 5 of its communicator reported System error",
    ]


@pytest.mark.parametrize("name", sorted(path.stem for path in REPORTS.glob("*.txt")))
def test_a_report_that_is_cut_off_anywhere_is_read_so_far(name: str) -> None:
    text = report(name)
    for end in range(0, len(text), 7):
        part = text[:end]
        lines = part[: part.rfind("\n") + 1]
        assert remarks(part, part) == remarks(lines, lines)


def test_a_job_that_makes_progress_and_no_report_say_nothing() -> None:
    assert remarks(report("healthy"), report("healthy")) == []
    assert (
        remarks("", "ERROR: Unknown command x\n", "\x00\x1b[2J#0-0 (zz) MISMATCH\n  Rank\n") == []
    )
    assert ras_remarks([], {}) == []


def test_a_hostile_report_takes_no_time(subtests: pytest.Subtests) -> None:
    begun = time.process_time()
    lines = ["#0-0 (ab) MISMATCH", "  Communicator ranks have different AllReduce operation counts"]
    for line in (
        "  Rank 1 " + "-- " * 20_000,
        "  1 ranks have " + "x" * 90_000,
        " 1" * 50_000,
        "  Rank " + "1" * 90_000,
    ):
        with subtests.test(line=line):
            assert remarks("\n".join([*lines, line] * 2), "\n".join([*lines, line])) == []
    remarks("\n".join(lines * 50_000))
    assert time.process_time() - begun < 2.0
