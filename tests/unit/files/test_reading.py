"""Reading files that anybody may have written: only regular ones, of bounded size, of known
types.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from hpcrun.files.reading import (
    NotRegularError,
    open_regular,
    optional,
    parse_object,
    read_bytes,
    read_fields,
    read_named_text,
    read_object,
    read_text,
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
