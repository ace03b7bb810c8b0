"""Reading logs: the last lines of a file, and files that still grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcrun.job.run_paths import AttemptFolder
from hpcrun.runs.follow_files import Pace, _Reader, follow
from hpcrun.runs.log_files import LogFile, has_text, rank_log, tail

BLOCK = 65536


def last_lines(data: bytes, lines: int) -> str:
    kept = data.split(b"\n")
    pieces = [piece + b"\n" for piece in kept[:-1]] + ([kept[-1]] if kept[-1] else [])
    return b"".join(pieces[-lines:] if lines else []).decode("utf-8", "replace")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from([b"a", b"\n", b"\r\n", b"\n\n", b"\xff", "é".encode()]), max_size=30),
    st.integers(0, 8),
)
def test_the_last_lines_are_the_last_lines(tmp_path: Path, pieces: list[bytes], lines: int) -> None:
    path = tmp_path / "log"
    data = b"".join(pieces)
    path.write_bytes(data)
    assert tail(path, lines) == last_lines(data, lines)
    assert tail(path, None) == data.decode("utf-8", "replace")


@pytest.mark.parametrize("length", [BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_lines_longer_than_a_block_are_whole(length: int, end: bytes, tmp_path: Path) -> None:
    path = tmp_path / "log"
    data = b"first\n" + b"x" * length + b"\n" + b"short\n" * 20_000 + b"y" * length + end
    path.write_bytes(data)
    for lines in range(5):
        assert tail(path, lines) == last_lines(data, lines)


def test_a_log_has_text_or_not_and_a_link_is_followed_only_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    log = rank_log(AttemptFolder(tmp_path), 3, "err")
    assert log.path == tmp_path / "rank-3.err"
    assert log.source == "rank 3"
    assert not has_text(log)
    log.path.touch()
    assert not has_text(log)
    log.path.write_text("x")
    assert has_text(log)
    (tmp_path / "secret").write_text("not a log\n")
    (tmp_path / "log").symlink_to("secret")
    with pytest.raises(OSError):
        tail(tmp_path / "log", 3)
    assert tail(tmp_path / "log", 3, links=True) == "not a log\n"


class Job:
    """A job that does one more thing at every pause, and is over after the last."""

    def __init__(self, folder: Path, *steps: Callable[[], object]) -> None:
        self.folder = folder
        self._steps = list(steps)

    def logs(self) -> list[LogFile]:
        return [LogFile(path, path.name) for path in sorted(self.folder.iterdir())]

    def is_over(self) -> bool:
        return not self._steps

    def pause(self) -> None:
        self._steps.pop(0)()

    def follow(self, lines: int | None = None) -> Iterator[tuple[str, str]]:
        for log, text in follow(self.logs, lines=lines, is_over=self.is_over, pause=self.pause):
            yield log.source, text


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.parametrize(
    ("begin", "steps", "lines", "shown"),
    [
        # what is written is shown as it comes until the end, and nothing twice
        (b"one\n", ["atwo\n", "a", "athree"], None, ["aone\n", "atwo\n", "athree"]),
        # a job that is over already is shown and not waited for
        (b"one\ntwo\n", [], None, ["aone\ntwo\n"]),
        (b"one\ntwo\n", [], 1, ["atwo\n"]),
        # a log is followed from when it appears
        (b"", ["a1\n", "b2\n", "a3\n"], None, ["a1\n", "b2\n", "a3\n"]),
        # only what was there at first is cut to the last lines
        (b"1\n2\n3\n", ["a4\n5\n", "b6\n7\n8\n"], 2, ["a2\n3\n", "a4\n5\n", "b6\n7\n8\n"]),
        (b"1\n2\n3\n", ["a9\n"], 0, ["a9\n"]),
        # a character that a read cuts in two comes whole
        (b"caf\xc3", ["a\udca9\n"], None, ["acaf", "a\u00e9\n"]),
    ],
)
def test_logs_are_followed(
    begin: bytes, steps: list[str], lines: int | None, shown: list[str], tmp_path: Path
) -> None:
    """Each step, and each text that is shown, begins with the name of its log."""
    append(tmp_path / "a", begin)
    written = [
        partial(append, tmp_path / step[0], step[1:].encode("utf-8", "surrogateescape"))
        for step in steps
    ]
    assert ["".join(each) for each in Job(tmp_path, *written).follow(lines)] == shown


def test_a_log_that_was_begun_anew_is_shown_from_its_beginning_and_one_that_is_gone_is_not(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_bytes(b"a long first attempt\n")
    job = Job(tmp_path, lambda: (tmp_path / "a").write_bytes(b"second\n"))
    assert list(job.follow()) == [("a", "a long first attempt\n"), ("a", "second\n")]
    (tmp_path / "b").symlink_to("none")
    assert list(Job(tmp_path).follow()) == [("a", "second\n")]


def test_the_end_of_a_log_is_at_most_a_mebibyte(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (1 << 20) + b"y" * 9)
    end = tail(tmp_path / "log", 5)
    assert len(end) == 1 << 20
    assert end.endswith("y" * 9)


def round_of(pace: Pace, readers: list[_Reader], *, every: bool = False) -> list[int]:
    """Read the logs that are chosen for a round, and return their numbers."""
    numbers = []
    for reader in pace.chosen(readers, every=every):
        numbers.append(readers.index(reader))
        for _ in reader.read():
            reader.spoke_at = pace.round
    return numbers


def many(folder: Path, number: int) -> list[_Reader]:
    readers = []
    for index in range(number):
        path = folder / f"rank-{index}.out"
        path.touch()
        readers.append(_Reader(LogFile(path, f"rank {index}")))
    return readers


def test_few_logs_are_all_read_in_each_round(tmp_path: Path) -> None:
    pace = Pace()
    readers = many(tmp_path, 32)
    for _ in range(3):
        assert round_of(pace, readers) == list(range(32))


def test_many_silent_logs_are_read_in_turn(tmp_path: Path) -> None:
    pace = Pace()
    readers = many(tmp_path, 40)
    assert round_of(pace, readers, every=True) == list(range(40))
    assert round_of(pace, readers) == list(range(30))
    assert round_of(pace, readers) == [*range(30, 40), *range(20)]


def test_of_many_logs_those_that_are_written_are_read_first(tmp_path: Path) -> None:
    pace = Pace()
    readers = many(tmp_path, 40)
    round_of(pace, readers, every=True)
    readers[39].log.path.write_text("hello\n")
    round_of(pace, readers)
    assert 39 in round_of(pace, readers)
    assert round_of(pace, readers)[0] == 39


def test_a_log_that_is_written_stays_open_for_ten_looks(tmp_path: Path) -> None:
    [reader] = many(tmp_path, 1)
    looks = []
    for number in range(13):
        with reader.log.path.open("a") as file:
            file.write(f"{number} ")
        assert "".join(reader.read(stays_open=True)) == f"{number} "
        looks.append(reader.is_open)
    assert looks == [True] * 10 + [False, True, True]
    assert list(reader.read(stays_open=True)) == []
    assert not reader.is_open


def test_a_log_in_the_place_of_an_open_one_is_found(tmp_path: Path) -> None:
    [reader] = many(tmp_path, 1)
    reader.log.path.write_text("old ")
    assert list(reader.read(stays_open=True)) == ["old "]
    reader.log.path.unlink()
    reader.log.path.write_text("new ")
    assert list(reader.read(stays_open=True)) == ["new "]
    reader.close()
