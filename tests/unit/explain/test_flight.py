"""What the dumps of torch's flight recorder show: of real gloo jobs, and of NCCL as torch's source describes them."""

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
    dumps = {int(path.name[5:]): reader.read(path.read_bytes()) for path in (RECORDED / case).glob("rank_*")}
    return judge(dumps, range(4))


def judged(calls: Mapping[int, Sequence[Made]], world: int = 4, groups: Any = None, first: int = 0) -> Flight:
    """What the dumps of NCCL show; ``groups`` may be those of each rank."""
    reader = DumpReader()
    dumps = {}
    for rank, mine in calls.items():
        known = groups[rank] if isinstance(groups, list) else groups or WORLD
        dumps[rank] = reader.read(pickled(dump(mine, known, first_record=first)))
    return judge(dumps, range(world))


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
        ("missing", 3, f"ranks 0-2 wait in all_reduce #4 of the default group (train.py:{EVALUATE}); "
                       f"rank 3 did not come: its last was all_reduce #3 (train.py:{STEP})"),
        ("no-dump", 3, f"ranks 0-2 wait in all_reduce #4 of the default group (train.py:{EVALUATE}); "
                       "rank 3 left no dump"),
        ("operation", 2, "the ranks called different collectives as #4 of the default group: ranks 0-1, 3 all_reduce "
                         f"(train.py:{EVALUATE}), rank 2 broadcast (train.py:{BROADCAST})"),
        ("sizes", 1, "the ranks called all_reduce #4 of the default group with different tensors: ranks 0, 2-3 "
                     f"[3] Float (train.py:{EVALUATE}), rank 1 [5] Float (train.py:{EVALUATE})"),
        ("type", 1, "the ranks called all_reduce #4 of the default group with different tensors: ranks 2-3 "
                    f"[3] Float (train.py:{EVALUATE}), rank 1 [3] Double (train.py:{EVALUATE})"),
        ("skipped", 2, "the ranks called all_reduce #3 of the default group with different tensors: ranks 0-1, 3 "
                       f"[4] Float (train.py:{STEP}), rank 2 [3] Float (train.py:{EVALUATE})"),
        ("alone", 0, "the ranks called different collectives as #4 of the default group: ranks 1-3 all_reduce "
                     f"(train.py:{EVALUATE}), rank 0 barrier (train.py:{BARRIER})"),
        ("late", 3, f"rank 3 came to all_reduce #4 of the default group (train.py:{EVALUATE}) 6 s after the first "
                    "rank, which waits for 4 s"),
        ("mesh", 3, f"rank 1 waits in all_reduce #2 of group mesh_dp (train.py:{MESHED}); rank 3 did not come: its "
                    f"last was all_reduce #1 (train.py:{BEGIN}); ranks 0, 2 wait in other groups"),
    ],
)  # fmt: skip
def test_real_gloo_jobs(case: str, culprit: int, sentence: str) -> None:
    flight = recorded(case)
    assert (said(flight), flight.culprit, flight.decided) == (sentence, culprit, True)


NORMAL = [Made("all_reduce")] * 3
WAITS = Made("all_reduce", 90, state="started")


def test_nccl_names_the_rank_that_did_not_come() -> None:
    flight = judged({0: [*NORMAL, WAITS], 1: [*NORMAL, WAITS], 2: NORMAL, 3: [*NORMAL, WAITS]})
    assert said(flight) == (
        "ranks 0-1, 3 wait in all_reduce #4 of the default group (train.py:90); rank 2 did not come: its last was "
        "all_reduce #3 (train.py:88)"
    )
    assert flight.culprit == 2
    assert list(stand_lines(flight)) == [
        "ranks 0-1, 3: all_reduce #4 at /home/ann/project/train.py:90 in step",
        "rank 2: all_reduce #3 at /home/ann/project/train.py:88 in step",
    ]


def test_ranks_that_run_ahead_wait_in_the_first_collective_that_some_did_not_call() -> None:
    ahead = [*NORMAL, WAITS, Made("_all_gather_base", 91, state="scheduled"), Made("all_reduce", 92, state="scheduled")]
    flight = judged({0: ahead, 1: ahead, 2: ahead, 3: NORMAL})
    assert said(flight).startswith("ranks 0-2 wait in all_reduce #4 of the default group (train.py:90); rank 3 did not")


def test_ranks_in_different_lines_are_named_by_line() -> None:
    other = Made("all_reduce", 95, state="started")
    flight = judged({0: [*NORMAL, WAITS], 1: [*NORMAL, WAITS], 2: [*NORMAL, other], 3: NORMAL})
    assert "(ranks 0-1 at train.py:90, rank 2 at train.py:95)" in said(flight)


def test_a_collective_of_one_rank_alone_blames_none() -> None:
    flight = judged({0: [*NORMAL, Made("barrier", 91, state="started", sizes=())], 1: NORMAL, 2: NORMAL, 3: NORMAL})
    assert flight.culprit is None
    assert said(flight) == (
        "rank 0 waits in barrier #4 of the default group (train.py:91); ranks 1-3 did not come: their last was "
        "all_reduce #3 (train.py:88)"
    )


TENSOR, DATA = "mesh_tp", "mesh_dp"


def mesh_groups(rank: int) -> dict[str, tuple[str, Sequence[int]]]:
    """A mesh of 2 x 2, whose groups have the same names on all ranks, as split_group makes them."""
    tensor, data = ([0, 1], [2, 3])[rank // 2], ([0, 2], [1, 3])[rank % 2]
    return {"0": ("default_pg", range(4)), "1": (DATA, data), "2": (TENSOR, tensor)}


def test_in_a_mesh_the_rank_counts_for_which_the_others_wait() -> None:
    tensor, data = Made("all_reduce", 40, ("2", TENSOR)), Made("all_reduce", 50, ("1", DATA))
    begun = [tensor, data]
    waits_tensor = [*begun, Made("all_reduce", 40, ("2", TENSOR), state="started")]
    waits_data = [*begun, tensor, Made("all_reduce", 50, ("1", DATA), state="started")]
    groups = [mesh_groups(rank) for rank in range(4)]
    # rank 3 stopped; rank 2 waits for it in its tensor group, rank 1 in its data group, and rank 0 there for rank 2
    flight = judged({0: waits_data, 1: waits_data, 2: waits_tensor, 3: begun}, groups=groups)
    assert flight.culprit == 3
    assert not flight.in_circle
    assert "rank 3 did not come: its last was all_reduce #1" in said(flight)
    members = {one.group.ranks: (sorted(one.came_ranks), one.culprits) for one in flight.meetings}
    assert members == {(2, 3): ([2], (3,)), (0, 2): ([0], (2,)), (1, 3): ([1], (3,))}


def test_groups_in_different_orders_are_a_circle() -> None:
    groups = [mesh_groups(rank) for rank in range(4)]
    begun = [Made("all_reduce", 40, ("2", TENSOR)), Made("all_reduce", 50, ("1", DATA))]
    tensor = [*begun, Made("all_reduce", 41, ("2", TENSOR), state="started")]
    data = [*begun, Made("all_reduce", 51, ("1", DATA), state="started")]
    flight = judged({0: tensor, 1: data, 2: data, 3: tensor}, groups=groups)
    assert flight.in_circle
    assert flight.culprit is None
    assert said(flight).startswith(
        "the ranks wait for one another: rank 0 in all_reduce #2 of group mesh_tp (ranks 0-1)"
    )


def test_sizes_that_may_differ_are_no_mistake() -> None:
    root = Made("gather", sizes=[[4]], state="started")
    scattered = Made("all_to_all", sizes=[[3], [5]], state="started")
    flight = judged({rank: [root, Made("all_to_all", sizes=[[rank]]), scattered] for rank in range(4)})
    assert flight.meetings[0].finding is Trouble.STUCK
    assert not flight.decided


def test_all_came_and_nothing_moves_is_shown_and_decides_nothing() -> None:
    flight = judged({rank: [*NORMAL, WAITS] for rank in range(4)})
    assert said(flight) == (
        "ranks 0-3 are all in all_reduce #4 of the default group (train.py:90), with tensors of the same size"
    )
    assert not flight.decided


def test_a_completed_job_has_no_finding() -> None:
    assert judged(dict.fromkeys(range(4), NORMAL)).meetings == ()


def test_a_different_size_counts_only_where_the_collective_did_not_end() -> None:
    odd = [Made("all_reduce", sizes=[[1000]]), *NORMAL]
    same = [Made("all_reduce"), *NORMAL]
    assert judged({0: same, 1: same, 2: same, 3: odd}).meetings == ()
    hung = [Made("all_reduce", sizes=[[1000]], state="started"), *NORMAL]
    flight = judged({0: same, 1: same, 2: same, 3: hung})
    assert (flight.meetings[0].finding, flight.culprit) == (Trouble.SIZES, 3)


def test_a_rank_that_came_after_the_timeout_is_late() -> None:
    late = Made("all_reduce", 90, state="started", at_s=800)
    flight = judged({0: [*NORMAL, WAITS], 1: [*NORMAL, late], 2: [*NORMAL, WAITS], 3: [*NORMAL, WAITS]})
    assert said(flight) == (
        "rank 1 came to all_reduce #4 of the default group (train.py:90) 797 s after the first rank, which waits for "
        "600 s"
    )
    assert flight.culprit == 1


def test_many_ranks_without_a_dump_decide_nothing() -> None:
    flight = judged({0: [*NORMAL, WAITS]})
    assert flight.meetings[0].finding is Trouble.NO_DUMP
    assert not flight.decided


def test_a_buffer_that_has_overflowed_shows_who_did_not_come_since() -> None:
    groups = {"0": ("default_pg", range(2)), "5": ("", [0, 1])}
    other = [Made("all_reduce", 30, ("5", ""))] * 3
    waits = Made("all_reduce", 90, number=7, state="started", at_s=7001.5)
    flight = judged({0: [*other, waits], 1: other}, 2, groups, first=7000)
    assert said(flight) == (
        "rank 0 waits in all_reduce #7 of the default group (train.py:90); rank 1 did not come: its last was "
        "all_reduce #3 of group 5 (ranks 0-1) (train.py:30)"
    )
    behind = Made("all_reduce", 90, number=5, at_s=7001.5)
    three = {"0": ("default_pg", range(3))}
    flight = judged({0: [*other, waits], 1: other, 2: [behind, *other]}, 3, three, first=7000)
    assert said(flight).startswith("rank 0 waits in collective #6 of the default group; rank 2 did not come")
    before = Made("all_reduce", 90, number=7, state="started", at_s=6000)
    assert judged({0: [before, *other], 1: other}, 2, groups, first=7000).meetings == ()


def test_a_rank_that_never_called_a_collective_of_a_group_did_not_come() -> None:
    groups = {"0": ("default_pg", [0, 1]), "5": ("", [1])}
    first = Made("all_reduce", state="started")
    assert judged({0: [first], 1: [Made("all_reduce", 30, ("5", ""))]}, 2, groups).culprit == 1


def test_a_broadcast_that_has_ended_for_its_root_still_shows_who_did_not_come() -> None:
    flight = judged({0: [*NORMAL, Made("broadcast", 80), Made("all_reduce", 90, state="started")], 1: NORMAL}, 2)
    assert said(flight).startswith("rank 0 waits in broadcast #4 of the default group (train.py:80); rank 1 did not")
    assert judged({0: [*NORMAL, Made("broadcast", 80)], 1: NORMAL}, 2).meetings == ()


def test_a_receive_without_its_send_names_the_peer() -> None:
    waits = Made("recv 0<-1", 60, state="scheduled", p2p=1)
    sends = Made("send 0->1", 61, state="scheduled", p2p=2)
    both = Made("recv 1<-0", 61, state="scheduled", p2p=2)
    flight = judged({0: [*NORMAL, waits], 1: NORMAL}, 2)
    assert said(flight) == (
        "rank 0 waits in recv (train.py:60); rank 1 did not come: its last was all_reduce #3 (train.py:88)"
    )
    assert judged({0: [*NORMAL, sends], 1: [*NORMAL, both]}, 2).meetings == ()


def test_transfers_that_were_launched_together_ended_with_their_group() -> None:
    together = [Made("send 0->1", 60, state="scheduled", p2p=3), Made("recv 0<-1", 60, state="scheduled", p2p=3)]
    assert judged({0: [*NORMAL, *together, Made("coalesced", 60, p2p=3)], 1: NORMAL}, 2).meetings == ()


def test_calls_that_are_launched_together_count_as_one() -> None:
    pair = [Made("all_reduce", number=4, sizes=[[5]], state="scheduled"), Made("coalesced", number=4, sizes=())]
    other = [Made("all_reduce", number=4, sizes=[[7]], state="scheduled"), Made("coalesced", number=4, sizes=())]
    assert judged({0: [*NORMAL, *pair], 1: [*NORMAL, *other]}, 2).meetings == ()


def test_a_group_that_was_made_anew_counts_from_its_new_beginning() -> None:
    again = [*NORMAL, *NORMAL, Made("all_reduce", number=1), Made("all_reduce", 90, state="started")]
    flight = judged({0: again, 1: again[:-1]}, 2)
    assert said(flight).startswith("rank 0 waits in all_reduce #2 of the default group (train.py:90); rank 1 did not")


def test_the_format_of_torch_2_3() -> None:
    def old(calls: Sequence[Made]) -> bytes:
        made = dump(calls, WORLD, version="1.5")
        for entry in made["entries"]:
            entry["seq_id"] = entry.pop("collective_seq_id")
            for name in ("process_group", "is_p2p", "timeout_ms", "input_dtypes", "output_dtypes", "record_id"):
                del entry[name]
        return pickled(made)

    reader = DumpReader()
    dumps = {0: reader.read(old([*NORMAL, WAITS])), 1: reader.read(old(NORMAL))}
    assert said(judge(dumps)).startswith("rank 0 waits in all_reduce #4 of the default group (train.py:90); rank 1 did")


def test_one_of_512_ranks_did_not_come() -> None:
    full = [Made("all_reduce", line, at_s=line) for line in range(1, 41)] * 10
    groups = {"0": ("default_pg", range(512))}
    came, absent = pickled(dump([*full, WAITS], groups)), pickled(dump(full, groups))
    reader = DumpReader()
    flight = judge({rank: reader.read(absent if rank == 300 else came) for rank in range(512)}, range(512))
    assert flight.culprit == 300
    assert said(flight).startswith("ranks 0-299, 301-511 wait in all_reduce #401 of the default group (train.py:90); ")
