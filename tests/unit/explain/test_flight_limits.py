"""Hostile dumps that are small and name the same objects many times: none takes long or much
memory.
"""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from hpcrun.explain.diagnosis.flight_calls import Dump
from hpcrun.explain.diagnosis.flight_dump import DumpError, DumpReader
from hpcrun.explain.diagnosis.flight_meetings import judge
from hpcrun.explain.diagnosis.waiting_cause import flight_sentence, stand_lines

ENTRIES = 50_000
NESTED = b"N" + b"X\x01\x00\x00\x00a\x86" * 45_000
"""A pair in a pair, 45,000 deep: Python computes its hash anew each time."""


def pickled(value: Any, **places: bytes) -> bytes:
    """Return a pickle in which the same object stands once; a text that names a place becomes its
    opcodes.
    """
    data = pickle.dumps(value, 2)
    for name, opcodes in places.items():
        data = data.replace(b"X" + len(name).to_bytes(4, "little") + name.encode(), opcodes)
    return data


def entry(**fields: Any) -> dict[str, Any]:
    return {
        "process_group": ["0", "default_pg"],
        "profiling_name": "nccl:all_reduce",
        "collective_seq_id": 1,
        **fields,
    }


def many(**fields: Any) -> list[dict[str, Any]]:
    """The same entry many times, in so many groups that all are looked at."""
    own = [entry(process_group=[str(group), "x"], **fields) for group in range(250)]
    return [own[number % 250] for number in range(ENTRIES)]


def dumped(entries: list[dict[str, Any]], **places: bytes) -> bytes:
    return pickled({"entries": entries}, **places)


def with_members(ranks: Any, **places: bytes) -> bytes:
    config = {str(group): {"ranks": ranks} for group in range(250)}
    return pickled({"entries": many(state="started"), "pg_config": config}, **places)


def open_transfers() -> bytes:
    sends = [
        entry(profiling_name="nccl:send 0->1", process_group=[str(group), ""], p2p_seq_id=7)
        for group in range(125)
    ]
    ends = [
        entry(
            profiling_name="nccl:coalesced",
            process_group=[str(group), ""],
            p2p_seq_id=8,
            is_p2p=True,
            state="completed",
        )
        for group in range(125, 250)
    ]
    return dumped(sends * 200 + ends * 200)


def frames(count: int, folder: str) -> list[dict[str, Any]]:
    """Lines of one file whose name is long."""
    file = folder + "a" * 100_000
    return [{"filename": file, "line": line, "name": file} for line in range(count)]


def frames_of_one_file() -> bytes:
    made = frames(150_000, "/site-packages/")
    return dumped(
        [
            entry(collective_seq_id=number, frames=made[number * 200 :][:200])
            for number in range(750)
        ]
    )


def sizes_of_one_hash() -> bytes:
    sizes = itertools.product([number * (2**61 - 1) for number in range(4)], repeat=7)
    return dumped(
        [{**one, "input_sizes": [list(size)]} for one, size in zip(many(), sizes, strict=False)]
    )


def pairs_of_one_hash() -> bytes:
    """A dict whose keys are pairs of pairs of numbers: Python computes the same hash of all of
    them.
    """
    number = [
        b"\x8a\x08" + (one * (2**61 - 1)).to_bytes(8, "little", signed=True) for one in range(-3, 4)
    ]
    leaves = itertools.islice(itertools.product(number, repeat=5), 12_000)
    keys = b"".join(
        a + b + b"\x86" + c + b"\x86" + d + b"\x86" + e + b"\x86N" for a, b, c, d, e in leaves
    )
    return b"\x80\x02}(" + keys + b"u."


LONG = "a" * 100_000
CASES: dict[str, Callable[[], bytes]] = {
    "nested group": lambda: dumped(
        [entry(process_group="PLACE")] * ENTRIES, PLACE=NESTED + b"X\x01\x00\x00\x000\x86"
    ),
    "nested sizes": lambda: dumped(many(input_sizes=[["PLACE", 1]]), PLACE=NESTED),
    "nested types": lambda: dumped(many(input_dtypes=["PLACE", 1]), PLACE=NESTED),
    "long group": lambda: dumped(
        [entry(process_group=["PLACE", 1])] * ENTRIES, PLACE=b"K\x01" * 100_000
    ),
    "many members": lambda: with_members(",".join(["1"] * 1_900_000)),
    "most members": lambda: with_members(",".join(map(str, range(200_000)))),
    "listed members": lambda: with_members(["PLACE", 1], PLACE=b"K\x01" * 1_900_000),
    "long name": lambda: dumped(many(profiling_name="a" * 3_800_000)),
    "distinct kinds": lambda: dumped(
        [
            {**one, "profiling_name": LONG, "input_sizes": [[number]], "input_dtypes": [LONG]}
            for number, one in enumerate(many())
        ]
    ),
    "open transfers": open_transfers,
    "frames of one file": frames_of_one_file,
    "lines of one file": lambda: dumped(
        [
            {**one, "frames": [frame]}
            for one, frame in zip(many(), frames(ENTRIES, "/home/ann/"), strict=True)
        ]
    ),
    "members of one hash": lambda: pickled(
        {
            "entries": [entry()],
            "pg_config": {"0": {"ranks": [number * (2**61 - 1) for number in range(150_000)]}},
        }
    ),
    "sizes of one hash": sizes_of_one_hash,
    "pairs of one hash": pairs_of_one_hash,
}


def read_and_judged(data: bytes) -> str:
    """Return what is said of a dump."""
    try:
        dump = DumpReader().read(data)
    except DumpError as error:
        return str(error)
    flight = judge({0: dump, 1: Dump({})})
    return "".join(stand_lines(flight)) + (flight_sentence(flight, {}) if flight.meetings else "")


@pytest.mark.parametrize("case", CASES)
def test_a_dump_that_names_the_same_objects_many_times_takes_no_long_time(case: str) -> None:
    data = CASES[case]()
    started = time.process_time()
    assert len(read_and_judged(data)) < 50_000
    assert time.process_time() - started < 5


MORE_MEMORY = r"""
import re, sys
from hpcrun.explain.diagnosis.flight_calls import Dump
from hpcrun.explain.diagnosis.flight_dump import DumpError, DumpReader
from hpcrun.explain.diagnosis.flight_meetings import judge
from hpcrun.explain.diagnosis.waiting_cause import stand_lines
def most_kb():
    return int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1])
data = sys.stdin.buffer.read()
before = most_kb()
try:
    stand_lines(judge({0: DumpReader().read(data), 1: Dump({})}))
except DumpError:
    pass
print(most_kb() - before)
"""


@pytest.mark.parametrize(
    "case", ["many members", "most members", "distinct kinds", "lines of one file"]
)
def test_what_is_kept_of_a_dump_is_not_much_larger_than_the_dump(case: str) -> None:
    """In a process of its own, whose memory is measured: to trace each allocation takes five times
    as long.
    """
    done = subprocess.run(
        [sys.executable, "-c", MORE_MEMORY], input=CASES[case](), capture_output=True, check=True
    )
    assert int(done.stdout) < 200 << 10


@pytest.mark.parametrize("ranks", ["[0, 1, 1, 1, 0]", [0, 1, 1, 1, 0]])
def test_each_member_of_a_group_counts_once(ranks: Any) -> None:
    dump = DumpReader().read(pickled({"entries": [entry()], "pg_config": {"0": {"ranks": ranks}}}))
    assert [group.ranks for group in dump.groups] == [(0, 1)]


def test_the_same_members_are_kept_once_for_all_groups_and_dumps() -> None:
    reader = DumpReader()
    data = with_members("0, 1, 2")
    kept = {id(group.ranks) for _ in range(3) for group in reader.read(data).groups}
    assert len(kept) == 1


def test_a_group_has_no_more_members_than_a_job_has_ranks() -> None:
    with pytest.raises(DumpError, match="ValueError"):
        DumpReader().read(CASES["many members"]())


def test_groups_of_many_ranks_that_all_have_dumps_are_judged_soon() -> None:
    """Each of the ranks' dumps is a few bytes, and one of them names all ranks in all of its
    groups.
    """
    reader, empty = DumpReader(), Dump({})
    dumps = dict.fromkeys(range(20000), empty)
    ranks = ",".join(map(str, dumps))
    for rank in range(8):
        calls = [
            entry(process_group=[f"{rank}.{group}", "x"], state="started") for group in range(250)
        ]
        config = {f"{rank}.{group}": {"ranks": ranks} for group in range(250)}
        dumps[rank] = reader.read(pickled({"entries": calls, "pg_config": config}))
    started = time.process_time()
    judge(dumps)
    assert time.process_time() - started < 5
