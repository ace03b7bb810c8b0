"""Hostile pickles: none calls anything, fills the memory, or takes long."""

from __future__ import annotations

import os
import pickle
import random
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from hpcrun.explain.diagnosis.flight_dump import DumpError, DumpReader, load_plain
from hpcrun.explain.diagnosis.flight_meetings import judge
from hpcrun.explain.diagnosis.waiting_cause import meeting_sentence, stand_lines
from tests.harness import REPO
from tests.unit.explain.flights import Made, dump, pickled

REAL = REPO / "tests/data/flight/missing/rank_0"
DATA = REAL.read_bytes()
PLAIN: dict[str, Any] = {
    "text": "ü",
    "numbers": [0, 255, 256, 65535, -1, 2**31, 2**62, -(2**62)],
    "none": None,
    "flags": [True, False],
    "pair": ("0", "default_pg"),
    "nested": [[[], {}]],
}


class Calling:
    """Calls a function when Python unpickles it."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.called = function, arguments

    def __reduce__(self) -> Any:
        return self.called


def test_what_torch_writes_is_read() -> None:
    assert load_plain(pickled(PLAIN)) == PLAIN
    assert load_plain(DATA) == pickle.loads(DATA)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_nothing_is_called(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "mark"
    for function, argument in (
        (os.system, f"touch {mark}"),
        (Path.touch, mark),
        (eval, f"open({str(mark)!r}, 'w')"),
    ):
        data = pickle.dumps({"entries": [Calling(function, argument)]}, protocol)
        with pytest.raises(DumpError):
            load_plain(data)
    assert not mark.exists()


def test_a_call_after_a_real_dump_is_not_made(tmp_path: Path, subtests: pytest.Subtests) -> None:
    mark = tmp_path / "mark"
    call = pickle.dumps(Calling(os.system, f"touch {mark}"), 2)[2:]
    for data in (DATA[:-1] + call, DATA[:2] + call[:-1] + DATA[2:], DATA + call):
        with subtests.test(data=data):
            try:
                load_plain(data)
            except DumpError:
                continue
            assert data == DATA + call  # what stands after the end is not read
    assert not mark.exists()


HEAD = b"\x80\x02"
HOSTILE = {
    "a text of 4 GB": HEAD + b"X\xff\xff\xff\xffab.",
    "a text of 4 GB in 8 bytes": HEAD + b"\x8d\xff\xff\xff\xff\x00\x00\x00\x00ab.",
    "bytes of exabytes": HEAD + b"\x8e" + b"\xff" * 7 + b"\x7fab.",
    "a frame of exabytes": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7fN.",
    "a memo of 64 GB": HEAD + b"Nr\xff\xff\xff\xff.",
    "a memo of gigabytes, with text": HEAD + b"X\x01\x00\x00\x00ar\x00\x00\x00\x20.",
    "a memo of gigabytes, in digits": HEAD + b"Np999999999\n.",
    "a number of 2 GB": HEAD + b"\x8b\xff\xff\xff\x7f.",
    "a number of many digits": HEAD + b"L" + b"9" * 1_000_000 + b"L\n.",
    "lists in lists": HEAD + b"]" * 2_000_000 + b"a" * 1_999_999 + b".",
    "sets": HEAD + b"\x8f" * 2_000_000 + b".",
    "pairs in pairs": HEAD + b"N" + b"N\x86" * 1_000_000 + b".",
    "a pair of pairs of the same pairs": HEAD + b"}N" + b"q\x01h\x01\x86" * 60 + b"Ns.",
    "copies of copies": HEAD + b"]2" + b"2\x86" * 60 + b".",
    "marks": HEAD + b"(" * 2_000_000 + b".",
    "an extension": HEAD + b"\x82\x01.",
    "a persistent id": HEAD + b"Pos\n.",
    "a module": b"cos\nsystem\n(S'true'\ntR.",
    "an instance": HEAD + b"(S'true'\nios\nsystem\n.",
    "a state": HEAD + b"}}b.",
    "nothing": b"",
    "no end": HEAD + b"}",
    "an end alone": HEAD + b".",
    "a key that has no hash": HEAD + b"}]Ns.",
    "no text": HEAD + b"X\x02\x00\x00\x00\xff\xfe.",
    "too large": HEAD + b"N" * (16 << 20) + b".",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_refused_soon_and_takes_no_memory(case: str) -> None:
    before_kb, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    with pytest.raises(DumpError):
        load_plain(HOSTILE[case])
    assert time.process_time() - started < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb < 300_000


def test_as_much_as_may_be_nested_is_only_no_dump() -> None:
    for data in (
        HEAD + b"]" * 400_000 + b"a" * 399_999 + b".",
        HEAD + b"}N" + b"N\x86" * 40_000 + b"Ns.",
    ):
        with pytest.raises(DumpError):
            DumpReader().read(data)


def test_each_part_of_a_dump_that_was_not_written_to_its_end_is_refused() -> None:
    for size in range(len(DATA)):
        with pytest.raises(DumpError):
            load_plain(DATA[:size])


def test_a_dump_with_damaged_bytes_is_read_or_refused() -> None:
    """No byte makes anything else of it: a damaged dump is one remark, and what is read can be
    judged.
    """
    rng = random.Random(7)
    whole = {
        rank: DumpReader().read((REAL.parent / f"rank_{rank}").read_bytes()) for rank in range(4)
    }
    read = 0
    for number in range(3000):
        data = bytearray(REAL.read_bytes())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            flight = judge({**whole, number % 4: DumpReader().read(bytes(data))}, range(4))
        except DumpError as error:
            assert str(error)
            continue
        read += 1
        assert all(meeting_sentence(one, {}) for one in flight.meetings)
        assert all(stand_lines(flight))
    assert read > 200


ENTRY = {"profiling_name": "nccl:all_reduce", "process_group": ("0", "x"), "collective_seq_id": 1}


@pytest.mark.parametrize(
    "value",
    [
        *([], "entries", 7, None, {"entries": 3}, {"entries": [7]}, {"entries": [{}]}),
        {"entries": [{**ENTRY, "profiling_name": 3}]},
        {"entries": [{**ENTRY, "collective_seq_id": "7"}]},
        {"entries": [{**ENTRY, "collective_seq_id": 1 << 62, "input_sizes": 7}]},
        {"entries": [{**ENTRY, "input_sizes": [["aaaa", 1 << 31]]}]},
        {"entries": [{**ENTRY, "process_group": (str(name), "x")} for name in range(300)]},
    ],
)
def test_plain_data_that_is_no_dump_is_refused(value: Any) -> None:
    with pytest.raises(DumpError):
        DumpReader().read(pickled(value))


def test_half_characters_of_a_dump_can_be_printed() -> None:
    half = "\udc80\ud800"
    calls = [
        Made(
            "all_reduce" + half,
            5,
            ("0", "default_pg"),
            state="started",
            file=f"/home/{half}.py",
            dtype=half,
        )
    ]
    dumps = {
        0: DumpReader().read(pickled(dump(calls, {}))),
        1: DumpReader().read(pickled(dump([], {}))),
    }
    flight = judge(dumps)
    assert meeting_sentence(flight.meetings[0], {}).encode()
    assert "".join(stand_lines(flight)).encode()
