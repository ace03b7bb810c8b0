"""Reading files that anybody may have written: only regular ones, of bounded size, of known
types.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from hpcrun.files.reading import (
    Kind,
    NotRegularError,
    file_head,
    flag,
    hours,
    number,
    open_regular,
    optional,
    pair,
    parse_object,
    read_bytes,
    read_end,
    read_fields,
    read_named_text,
    read_object,
    read_text,
    table,
    text,
    time_s,
    whole,
)


@pytest.fixture(params=["fifo", "folder", "socket", "zero", "loop"])
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path that is no regular file."""
    path = tmp_path / "odd"
    if request.param == "fifo":
        os.mkfifo(path)
    elif request.param == "folder":
        path.mkdir()
    elif request.param == "socket":
        monkeypatch.chdir(tmp_path)  # a socket's path has at most 108 bytes: unix(7)
        with socket.socket(socket.AF_UNIX) as here:
            here.bind("odd")
    elif request.param == "zero":
        path.symlink_to("/dev/zero")
    else:
        path.symlink_to(path)
    return path


def test_what_is_no_regular_file_is_refused_at_once(odd: Path) -> None:
    for links in (True, False):
        with pytest.raises(OSError, match=r"regular file|symbolic link"):
            open_regular(odd, links=links)
    with pytest.raises(NotRegularError):
        read_bytes(odd)


def test_a_link_to_a_log_is_followed_and_one_to_a_record_is_not(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("{}")
    (tmp_path / "link").symlink_to("there")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"{}"
    with pytest.raises(NotRegularError, match="is a symbolic link"):
        read_object(tmp_path / "link")


def test_a_record_that_is_too_large_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="larger than 1000 bytes"):
        read_text(tmp_path / "large", 1000)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        '"x"',
        "[" * 200_000,
        '{"a":' * 200_000,
        '{"a": ' + "[" * 60 + "]" * 60 + "}",
        '{"a": 1e999}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": ' + "9" * 400 + "}",
    ],
    ids=range(13),
)
def test_what_is_no_plain_object_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_object(content)


def test_text_can_always_be_printed() -> None:
    said = parse_object(r'{"a": "\ud800x", "b": ["\udcff", "\ud83d\ude00"]}')
    assert said == {"a": "\ufffdx", "b": ["\udcff", "😀"]}


def test_a_field_of_the_wrong_type_is_named_and_unknown_ones_come_besides() -> None:
    wrong: list[dict[str, object]] = [
        {},
        {"rank": "x"},
        {"rank": True},
        {"rank": -1},
        {"rank": 1.5},
        {"rank": 1, "at": 1e300},
    ]
    for data in wrong:
        with pytest.raises(ValueError, match=r"rank|at"):
            read_fields(data, {"rank": whole(), "at": time_s}, ("rank",))
    assert read_fields({"a": None, "b": 2}, {"a": optional(text)}) == ({"a": None}, {"b": 2})


def test_a_file_that_is_too_large_is_refused_with_the_size_it_may_have(tmp_path: Path) -> None:
    for most, size in ((200_000, "0.2 MB"), (2_000_000, "2 MB")):
        (tmp_path / "a.sbatch").write_bytes(b"x" * (most + 1))
        with pytest.raises(ValueError, match=rf"is larger than {size}$"):
            read_named_text(tmp_path / "a.sbatch", most)


@pytest.mark.parametrize(
    ("kind", "least", "most"),
    [
        pytest.param(whole(), 0, 10**9, id="whole"),
        pytest.param(whole(-3, 5), -3, 5, id="range"),
        pytest.param(time_s, 0, 1e11, id="time"),
        pytest.param(hours, 0, 9e299, id="hours"),
        pytest.param(number, -9e299, 9e299, id="number"),
    ],
)
def test_the_least_and_the_most_of_a_range_are_in_it(kind: Kind, least: Any, most: Any) -> None:
    assert kind(least) == least
    assert kind(most) == most


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        pytest.param(whole(), -1, "is not a whole number from 0 to 1000000000", id="negative"),
        pytest.param(whole(), 10**9 + 1, "is not a whole number", id="large"),
        pytest.param(whole(-3, 5), -4, "is not a whole number from -3 to 5", id="below"),
        pytest.param(whole(-3, 5), 6, "is not a whole number from -3 to 5", id="above"),
        pytest.param(whole(), 1.0, "is not a whole number", id="real"),
        pytest.param(whole(), True, "is not a whole number", id="flag for whole"),
        pytest.param(number, True, "is not a number", id="flag for number"),
        pytest.param(number, "1", "is not a number", id="text for number"),
        pytest.param(number, 1e300, "is not a number", id="too large"),
        pytest.param(number, -1e300, "is not a number", id="too small"),
        pytest.param(number, float("nan"), "is not a number", id="nan"),
        pytest.param(time_s, -0.1, "is not a time", id="before the epoch"),
        pytest.param(time_s, 1.01e11, "is not a time", id="after datetime"),
        pytest.param(hours, -0.1, "is not a number of hours", id="negative hours"),
        pytest.param(flag, 1, "takes true or false", id="number for flag"),
        pytest.param(pair, ["a"], "is not a pair of texts", id="one text"),
        pytest.param(pair, ["a", "b", "c"], "is not a pair of texts", id="three texts"),
        pytest.param(pair, "ab", "is not a pair of texts", id="text for pair"),
        pytest.param(table(), [], "is not an object", id="list for object"),
    ],
)
def test_a_value_out_of_its_range_is_refused(kind: Kind, value: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kind(value)


def test_a_number_has_at_most_40_digits() -> None:
    assert parse_object('{"a": ' + "9" * 40 + "}") == {"a": 10**40 - 1}
    with pytest.raises(ValueError, match="a number of 41 digits"):
        parse_object('{"a": ' + "9" * 41 + "}")


def test_an_object_is_at_most_40_levels_deep() -> None:
    parse_object('{"a": ' + "[" * 39 + "]" * 39 + "}")
    with pytest.raises(ValueError, match="it is nested too deeply"):
        parse_object('{"a": ' + "[" * 40 + "]" * 40 + "}")


def test_a_record_may_be_as_large_as_its_limit(tmp_path: Path) -> None:
    (tmp_path / "record").write_bytes(b"12345")
    assert read_bytes(tmp_path / "record", 5) == b"12345"
    with pytest.raises(OSError, match="is larger than 4 bytes"):
        read_bytes(tmp_path / "record", 4)


def test_a_record_has_at_most_a_mebibyte_by_default(tmp_path: Path) -> None:
    with (tmp_path / "record").open("wb") as file:
        file.truncate(1 << 20)
        assert len(read_bytes(tmp_path / "record")) == 1 << 20
        file.truncate((1 << 20) + 1)
    with pytest.raises(OSError, match="is larger than 1048576 bytes"):
        read_text(tmp_path / "record")


@pytest.mark.parametrize(("most", "end"), [(2, b"45"), (5, b"12345"), (9, b"12345")])
def test_the_last_bytes_of_a_file_are_read(tmp_path: Path, most: int, end: bytes) -> None:
    (tmp_path / "log").write_bytes(b"12345")
    assert read_end(tmp_path / "log", most) == end


def test_the_beginning_of_a_file_has_64_kibibytes(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 70_000)
    assert len(file_head(tmp_path / "log")) == 65536
    assert file_head(tmp_path / "missing") == b""


def test_a_file_of_a_person_may_be_behind_a_link_and_begin_with_a_mark(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xef\xbb\xbfa")
    (tmp_path / "link").symlink_to("file")
    assert read_named_text(tmp_path / "link", 10) == "a"


def test_a_file_of_a_person_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"ab\xff")
    with pytest.raises(ValueError, match=r"file is no UTF-8 text \(invalid start byte at byte 2\)"):
        read_named_text(tmp_path / "file", 10)


def test_all_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match=r"^it has no b, c$"):
        read_fields({"a": 1}, {}, ("a", "b", "c"))
