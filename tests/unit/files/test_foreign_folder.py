"""A folder that another person may change: what is in it is opened without following any link."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from hpcrun.files.foreign_folder import LARGEST, ForeignFolder, is_foreign
from hpcrun.files.reading import list_folder, open_regular, read_text, walk_folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A foreign folder with a/b/file, beside a folder with a secret."""
    folder = tmp_path / "theirs"
    (folder / "a/b").mkdir(parents=True)
    (folder / "a/b/file").write_text("text")
    (tmp_path / "outside/b").mkdir(parents=True)
    (tmp_path / "outside/b/file").write_text("secret")
    monkeypatch.setattr(ForeignFolder, "path", str(folder))
    return folder


def test_a_plain_file_is_read_and_a_plain_folder_is_listed(folder: Path) -> None:
    assert read_text(folder / "a/b/file") == "text"
    assert list_folder(folder / "a/b") == ["file"]
    assert list_folder(folder / "a") == ["b"]


@pytest.mark.parametrize("name", ["a", "a/b", "a/b/file"])
@pytest.mark.parametrize("links", [True, False])
def test_no_part_of_the_way_may_be_a_link(name: str, links: bool, folder: Path) -> None:
    place = folder / name
    place.rename(folder / "moved")
    place.symlink_to(folder.parent / "outside" / name.removeprefix("a").removeprefix("/"))
    with pytest.raises(OSError, match="is a symbolic link"):
        open_regular(folder / "a/b/file", links=links)
    if name != "a/b/file":
        with pytest.raises(OSError, match="is a symbolic link"):
            list_folder(folder / "a/b")


def test_the_folder_itself_may_be_reached_by_a_link(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = folder.with_name("link")
    link.symlink_to(folder)
    monkeypatch.setattr(ForeignFolder, "path", str(link))
    assert read_text(link / "a/b/file") == "text"


def test_two_dots_take_away_the_name_before_them_and_lead_nowhere_else(folder: Path) -> None:
    (folder / "a/link").symlink_to(folder.parent / "outside/b")
    assert read_text(folder / "a/link/../b/file") == "text"
    with pytest.raises(OSError, match="leads out of the folder"):
        open_regular(folder / "../outside/b/file")


def test_other_paths_are_opened_as_ever(folder: Path) -> None:
    link = folder.with_name("theirs-too")
    link.symlink_to(folder.parent / "outside")
    assert not is_foreign(link / "b/file")
    with open_regular(link / "b/file") as file:
        assert file.read() == b"secret"


def test_a_hole_of_a_terabyte_is_refused(folder: Path) -> None:
    with (folder / "hole").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(OSError, match="is larger than"):
        open_regular(folder / "hole")


def test_a_fifo_and_a_socket_are_not_opened(folder: Path) -> None:
    os.mkfifo(folder / "a/fifo")
    for name in ("a/fifo", "a/b", "gone"):
        with pytest.raises(OSError, match=r"regular file|No such file"):
            open_regular(folder / name)
    with pytest.raises(NotADirectoryError):
        list_folder(folder / "a/fifo")


def test_a_walk_leads_into_no_link(folder: Path) -> None:
    (folder / "a/link").symlink_to(folder.parent / "outside")
    walked = {place: sorted(files) for place, _, files in walk_folder(folder / "a")}
    assert walked == {str(folder / "a"): [], str(folder / "a/b"): ["file"]}
    assert list(walk_folder(folder / "a/link")) == []


def test_a_folder_that_is_swapped_with_a_link_all_the_time_never_leads_out(folder: Path) -> None:
    place = folder / "a"
    link = folder / "link"
    link.symlink_to(folder.parent / "outside")
    is_over = threading.Event()

    def swap() -> None:
        while not is_over.is_set():
            place.rename(folder / "aside")
            link.rename(place)
            place.rename(link)
            (folder / "aside").rename(place)

    swapper = threading.Thread(target=swap)
    swapper.start()
    texts = set()
    try:
        for _ in range(1000):
            try:
                texts.add(read_text(place / "b/file"))
            except OSError as error:
                texts.add(f"{error.errno}")
    finally:
        is_over.set()
        swapper.join()
    assert "secret" not in texts
    assert read_text(place / "b/file") == "text"
