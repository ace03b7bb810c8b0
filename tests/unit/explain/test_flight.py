"""What the dumps of torch's flight recorder show: of real gloo jobs, and of NCCL as torch's source
describes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from hpcrun.explain.diagnosis.flight_dump import DumpReader
from hpcrun.explain.diagnosis.flight_meetings import Flight, Trouble, judge
from hpcrun.explain.diagnosis.waiting_cause import flight_sentence, stand_lines
from tests.harness import REPO
from tests.unit.explain.flights import Made, dump, pickled

RECORDED = REPO / "tests/data/flight"
WORLD = {"0": ("default_pg", range(4))}


def recorded(case: str) -> Flight:
    """What the dumps of a real job show: tests/data/flight/make.py makes them."""
    reader = DumpReader()
    dumps = {
        int(path.name[5:]): reader.read(path.read_bytes())
        for path in (RECORDED / case).glob("rank_*")
    }
    return judge(dumps, range(4))


def judged(
    calls: Mapping[int, Sequence[Made]], groups: Any = WORLD, first: int = 0, world: int = 0
) -> Flight:
    """What the dumps of NCCL show; ``groups`` may be those of each rank."""
    reader = DumpReader()
    dumps = {}
    for rank, mine in calls.items():
        known = groups[rank] if isinstance(groups, list) else groups
        dumps[rank] = reader.read(pickled(dump(mine, known, first_record=first)))
    return judge(dumps, range(world or len(calls)))


def said(flight: Flight) -> str:
    return flight_sentence(flight, {})


def line_of(text: str) -> int:
    """The line of the recorded program with a text."""
    lines = (RECORDED / "train.py").read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


EVALUATE, STEP = line_of("dist.all_reduce(score)"), line_of("dist.all_reduce(batch)")
BROADCAST, BARRIER = line_of("dist.broadcast(score, 0)"), line_of("dist.barrier()")
MESHED = line_of("dist.all_reduce(score, group=mesh[name])")
BEGIN = line_of("dist.all_reduce(torch.ones(2), group=group)")


@pytest.mark.parametrize(
    ("case", "culprit", "sentence"),
    [
        (
            "missing",
            3,
            f"ranks 0-2 wait in all_reduce #4 of the default group (train.py:{EVALUATE}); "
            f"rank 3 did not come: its last was all_reduce #3 (train.py:{STEP})",
        ),
        (
            "no-dump",
            3,
            f"ranks 0-2 wait in all_reduce #4 of the default group (train.py:{EVALUATE}); "
            "rank 3 left no dump",
        ),
        (
            "operation",
            2,
            "the ranks called different collectives as #4 of the default group: ranks 0-1, 3 "
            "all_reduce "
            f"(train.py:{EVALUATE}), rank 2 broadcast (train.py:{BROADCAST})",
        ),
        (
            "sizes",
            1,
            "the ranks called all_reduce #4 of the default group with different tensors: ranks 0, "
            "2-3 "
            f"[3] Float (train.py:{EVALUATE}), rank 1 [5] Float (train.py:{EVALUATE})",
        ),
        (
            "type",
            1,
            "the ranks called all_reduce #4 of the default group with different tensors: ranks 2-3 "
            f"[3] Float (train.py:{EVALUATE}), rank 1 [3] Double (train.py:{EVALUATE})",
        ),
        (
            "skipped",
            2,
            "the ranks called all_reduce #3 of the default group with different tensors: ranks "
            "0-1, 3 "
            f"[4] Float (train.py:{STEP}), rank 2 [3] Float (train.py:{EVALUATE})",
        ),
        (
            "alone",
            0,
            "the ranks called different collectives as #4 of the default group: ranks 1-3 "
            "all_reduce "
            f"(train.py:{EVALUATE}), rank 0 barrier (train.py:{BARRIER})",
        ),
        (
            "late",
            3,
            f"rank 3 came to all_reduce #4 of the default group (train.py:{EVALUATE}) 6 s after "
            "the first "
            "rank, which waits for 4 s",
        ),
        (
            "mesh",
            3,
            f"rank 1 waits in all_reduce #2 of group mesh_dp (train.py:{MESHED}); rank 3 did not "
            "come: its "
            f"last was all_reduce #1 (train.py:{BEGIN}); ranks 0, 2 wait in other groups",
        ),
    ],
)
def test_real_gloo_jobs(case: str, culprit: int, sentence: str) -> None:
    flight = recorded(case)
    assert said(flight) == sentence
    assert flight.culprit == culprit
    assert flight.decided is True


NORMAL = [Made("all_reduce")] * 3
WAITS = Made("all_reduce", 90, state="started")
WAITING = [*NORMAL, WAITS]
AHEAD = [
    *WAITING,
    Made("_all_gather_base", 91, state="scheduled"),
    Made("all_reduce", 92, state="scheduled"),
]
LATE = Made("all_reduce", 90, state="started", at_s=800)
ODD, HUNG = (Made("all_reduce", sizes=[[1000]], state=state) for state in ("completed", "started"))
BARRIER_ALONE = Made("barrier", 91, state="started", sizes=())
RENEWED = [*NORMAL, *NORMAL, Made("all_reduce", number=1)]
TENSOR, DATA = ("2", "mesh_tp"), ("1", "mesh_dp")
BEGUN = [Made("all_reduce", 40, TENSOR), Made("all_reduce", 50, DATA)]
IN_TENSOR, IN_DATA = (
    [*BEGUN, Made("all_reduce", 41, group, state="started")] for group in (TENSOR, DATA)
)
IN_DATA_AGAIN = [
    *BEGUN,
    Made("all_reduce", 40, TENSOR),
    Made("all_reduce", 50, DATA, state="started"),
]
MESH = [
    {"0": ("default_pg", range(4)), "1": ("mesh_dp", data), "2": ("mesh_tp", tensor)}
    for tensor, data in (([0, 1], [0, 2]), ([0, 1], [1, 3]), ([2, 3], [0, 2]), ([2, 3], [1, 3]))
]
"""A mesh of 2 x 2, whose groups have the same names on all ranks, as split_group makes them."""
OF_ONE = {"0": ("default_pg", [0, 1]), "5": ("", [1])}


def launched(size: int) -> list[Made]:
    """Calls that are launched together."""
    return [
        *NORMAL,
        Made("all_reduce", number=4, sizes=[[size]], state="scheduled"),
        Made("coalesced", number=4, sizes=()),
    ]


def transfer(what: str, line: int, p2p: int, state: str = "scheduled") -> Made:
    return Made(what, line, state=state, p2p=p2p)


@pytest.mark.parametrize(
    ("calls", "groups", "culprit", "sentence"),
    [
        # a rank that did not come; ranks that run ahead wait in the first collective that some did
        # not call
        (
            [WAITING, WAITING, NORMAL, WAITING],
            WORLD,
            2,
            "ranks 0-1, 3 wait in all_reduce #4 of the default group (train.py:90); rank 2 did not "
            "come: its last was "
            "all_reduce #3 (train.py:88)",
        ),
        (
            [AHEAD, AHEAD, AHEAD, NORMAL],
            WORLD,
            3,
            "ranks 0-2 wait in all_reduce #4 of the default group (train.py:90); rank 3 did not "
            "come: its last was "
            "all_reduce #3 (train.py:88)",
        ),
        (
            [WAITING, WAITING, [*NORMAL, Made("all_reduce", 95, state="started")], NORMAL],
            WORLD,
            3,
            "ranks 0-2 wait in all_reduce #4 of the default group (ranks 0-1 at train.py:90, rank "
            "2 at train.py:95); "
            "rank 3 did not come: its last was all_reduce #3 (train.py:88)",
        ),
        (
            [[*NORMAL, BARRIER_ALONE], NORMAL, NORMAL, NORMAL],
            WORLD,
            None,
            "rank 0 waits in barrier #4 of the default group (train.py:91); ranks 1-3 did not "
            "come: their last was "
            "all_reduce #3 (train.py:88)",
        ),
        (
            [[WAITS], [Made("all_reduce", 30, ("5", ""))]],
            OF_ONE,
            1,
            "rank 0 waits in all_reduce #1 of the default group (train.py:90); rank 1 did not "
            "come: its last was "
            "all_reduce #1 of group 5 (rank 1) (train.py:30)",
        ),
        # a broadcast that has ended for its root still shows it
        (
            [[*NORMAL, Made("broadcast", 80), WAITS], NORMAL],
            WORLD,
            1,
            "rank 0 waits in broadcast #4 of the default group (train.py:80); rank 1 did not come: "
            "its last was "
            "all_reduce #3 (train.py:88)",
        ),
        ([[*NORMAL, Made("broadcast", 80)], NORMAL], WORLD, None, ""),
        # a group that was made anew counts from its new beginning
        (
            [[*RENEWED, WAITS], RENEWED],
            WORLD,
            1,
            "rank 0 waits in all_reduce #2 of the default group (train.py:90); rank 1 did not "
            "come: its last was "
            "all_reduce #1 (train.py:88)",
        ),
        # a rank that came after the timeout; all came and nothing moves; a job that has completed
        (
            [WAITING, [*NORMAL, LATE], WAITING, WAITING],
            WORLD,
            1,
            "rank 1 came to all_reduce #4 of the default group (train.py:90) 797 s after the first "
            "rank, which waits for "
            "600 s",
        ),
        (
            [WAITING] * 4,
            WORLD,
            None,
            "ranks 0-3 are all in all_reduce #4 of the default group (train.py:90), with tensors "
            "of the same size",
        ),
        ([NORMAL] * 4, WORLD, None, ""),
        # a different size counts only where the collective did not end; some sizes may differ
        ([NORMAL, NORMAL, NORMAL, [ODD, *NORMAL[1:]]], WORLD, None, ""),
        (
            [NORMAL, NORMAL, NORMAL, [HUNG, *NORMAL[1:]]],
            WORLD,
            3,
            "the ranks called all_reduce #1 of the default group with different tensors: ranks 0-2 "
            "[1024] Float "
            "(train.py:88), rank 3 [1000] Float (train.py:88)",
        ),
        (
            [
                [
                    Made("gather", sizes=[[4]], state="started"),
                    Made("all_to_all", sizes=[[rank]]),
                    Made("all_to_all", sizes=[[3], [5]], state="started"),
                ]
                for rank in range(4)
            ],
            WORLD,
            None,
            "ranks 0-3 are all in all_to_all #3 of the default group (train.py:88), with tensors "
            "of the same size",
        ),
        # in a mesh the rank counts for which the others wait: rank 3, for which rank 2 waits in its
        # tensor group and rank 1 in its data group, where rank 0 waits for rank 2; groups in
        # different orders are a circle
        (
            [IN_DATA_AGAIN, IN_DATA_AGAIN, IN_TENSOR, BEGUN],
            MESH,
            3,
            "rank 1 waits in all_reduce #2 of group mesh_dp (ranks 1, 3) (train.py:50); rank 3 did "
            "not come: its last was "
            "all_reduce #1 (train.py:50); ranks 0, 2 wait in other groups",
        ),
        (
            [IN_TENSOR, IN_DATA, IN_DATA, IN_TENSOR],
            MESH,
            None,
            "the ranks wait for one another: rank 0 in all_reduce #2 of group mesh_tp (ranks 0-1)",
        ),
        # a receive without its send names the peer; transfers and calls that were launched together
        # end together
        (
            [[*NORMAL, transfer("recv 0<-1", 60, 1)], NORMAL],
            WORLD,
            1,
            "rank 0 waits in recv (train.py:60); rank 1 did not come: its last was all_reduce #3 "
            "(train.py:88)",
        ),
        (
            [[*NORMAL, transfer("send 0->1", 61, 2)], [*NORMAL, transfer("recv 1<-0", 61, 2)]],
            WORLD,
            None,
            "",
        ),
        (
            [
                [
                    *NORMAL,
                    transfer("send 0->1", 60, 3),
                    transfer("recv 0<-1", 60, 3),
                    transfer("coalesced", 60, 3, "completed"),
                ],
                NORMAL,
            ],
            WORLD,
            None,
            "",
        ),
        ([launched(5), launched(7)], WORLD, None, ""),
    ],
)
def test_dumps_of_nccl(
    calls: list[list[Made]], groups: Any, culprit: int | None, sentence: str
) -> None:
    flight = judged(dict(enumerate(calls)), groups)
    assert flight.culprit == culprit
    assert bool(flight.meetings) == bool(sentence)
    assert not sentence or said(flight).startswith(sentence)
    assert flight.decided == (bool(sentence) and "are all in" not in sentence)
    assert flight.in_circle == sentence.startswith("the ranks wait for one another")


def test_where_ranks_stand_and_whom_they_wait_for() -> None:
    flight = judged({0: WAITING, 1: WAITING, 2: NORMAL, 3: WAITING})
    assert list(stand_lines(flight)) == [
        "ranks 0-1, 3: all_reduce #4 at /home/ann/project/train.py:90 in step",
        "rank 2: all_reduce #3 at /home/ann/project/train.py:88 in step",
    ]
    flight = judged({0: IN_DATA_AGAIN, 1: IN_DATA_AGAIN, 2: IN_TENSOR, 3: BEGUN}, MESH)
    members = {one.group.ranks: (sorted(one.came_ranks), one.culprits) for one in flight.meetings}
    assert members == {(2, 3): ([2], (3,)), (0, 2): ([0], (2,)), (1, 3): ([1], (3,))}


def test_many_ranks_without_a_dump_decide_nothing() -> None:
    flight = judged({0: WAITING}, world=4)
    assert flight.meetings[0].finding is Trouble.NO_DUMP
    assert not flight.decided


def test_a_buffer_that_has_overflowed_shows_who_did_not_come_since() -> None:
    groups = {"0": ("default_pg", range(2)), "5": ("", [0, 1])}
    other = [Made("all_reduce", 30, ("5", ""))] * 3
    waits = Made("all_reduce", 90, number=7, state="started", at_s=7001.5)
    flight = judged({0: [*other, waits], 1: other}, groups, first=7000)
    assert said(flight) == (
        "rank 0 waits in all_reduce #7 of the default group (train.py:90); rank 1 did not come: "
        "its last was "
        "all_reduce #3 of group 5 (ranks 0-1) (train.py:30)"
    )
    behind = Made("all_reduce", 90, number=5, at_s=7001.5)
    three = {"0": ("default_pg", range(3))}
    flight = judged({0: [*other, waits], 1: other, 2: [behind, *other]}, three, first=7000)
    assert said(flight).startswith(
        "rank 0 waits in collective #6 of the default group; rank 2 did not come"
    )
    before = Made("all_reduce", 90, number=7, state="started", at_s=6000)
    assert judged({0: [before, *other], 1: other}, groups, first=7000).meetings == ()


def test_the_format_of_torch_2_3() -> None:
    def old(calls: Sequence[Made]) -> bytes:
        made = dump(calls, WORLD)
        for entry in made["entries"]:
            entry["seq_id"] = entry.pop("collective_seq_id")
            for name in (
                "process_group",
                "is_p2p",
                "timeout_ms",
                "input_dtypes",
                "output_dtypes",
                "record_id",
            ):
                del entry[name]
        return pickled({**made, "version": "1.5"})

    flight = judge(
        {rank: DumpReader().read(old(calls)) for rank, calls in enumerate((WAITING, NORMAL))}
    )
    assert said(flight).startswith(
        "rank 0 waits in all_reduce #4 of the default group (train.py:90); rank 1 did"
    )


def test_one_of_512_ranks_did_not_come() -> None:
    full = [Made("all_reduce", line, at_s=line) for line in range(1, 41)] * 10
    groups = {"0": ("default_pg", range(512))}
    came, absent = (
        DumpReader().read(pickled(dump(calls, groups))) for calls in ([*full, WAITS], full)
    )
    flight = judge({rank: absent if rank == 300 else came for rank in range(512)}, range(512))
    assert flight.culprit == 300
    assert said(flight).startswith(
        "ranks 0-299, 301-511 wait in all_reduce #401 of the default group (train.py:90); "
    )
