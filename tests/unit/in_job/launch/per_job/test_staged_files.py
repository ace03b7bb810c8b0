"""What --stage copies, where links lead to folders; and what makes a kept copy another one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job.staged_files import StageError, list_source


def chain_of_links(folder: Path, levels: int) -> Path:
    """Folders that each have two links to the next one: 2 ** levels paths lead to the last one."""
    for level in range(levels, -1, -1):
        place = folder / f"{level}"
        place.mkdir(parents=True)
        if level < levels:
            for name in ("a", "b"):
                (place / name).symlink_to(folder / f"{level + 1}")
        (place / "data").write_text("x")
    return folder / "0"


def test_nested_links_that_multiply_are_refused_before_they_are_followed(tmp_path: Path) -> None:
    source = chain_of_links(tmp_path / "links", 40)
    with pytest.raises(StageError, match=r"more than 1,000 paths of links lead to .*/links/"):
        list_source(str(tmp_path / "list"), f"data/{source}")


def test_a_folder_is_copied_by_each_path_that_leads_to_it(tmp_path: Path) -> None:
    source = chain_of_links(tmp_path / "links", 3)
    listing = list_source(str(tmp_path / "list"), f"data/{source}")
    names = (tmp_path / "list/names").read_bytes().split(b"\0")
    assert (listing.files, listing.skipped) == (15, 0)
    assert b"./data/a/b/a/data" in names


def test_a_link_back_is_left_out(tmp_path: Path) -> None:
    source = chain_of_links(tmp_path / "links", 1)
    os.symlink(source, tmp_path / "links/1/back")
    listing = list_source(str(tmp_path / "list"), f"data/{source}")
    assert (listing.files, listing.skipped) == (3, 2)


def make_source(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    for name in ("a", "b", "deep/c"):
        (folder / name).write_text("text")
        os.utime(folder / name, (0, 1_000_000_000))
    return folder


def code(tmp_path: Path, text: str) -> str:
    number = len(list(tmp_path.iterdir()))
    return list_source(str(tmp_path / f"list-{number}"), text).code


def test_the_code_stays_while_the_source_is_the_same(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source")
    before = code(tmp_path, f"data/{source}")
    (source / "passing").touch()
    (source / "passing").unlink()  # the time of the folder is another one
    assert code(tmp_path, f"data/{source}") == before


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda source: (source / "a").rename(source / "z"), id="name"),
        pytest.param(lambda source: (source / "a").unlink(), id="missing file"),
        pytest.param(lambda source: (source / "empty").mkdir(), id="new folder"),
        pytest.param(lambda source: os.truncate(source / "a", 3), id="size"),
        pytest.param(
            lambda source: os.utime(source / "a", ns=(0, 1_000_000_000_000_000_001)),
            id="a nanosecond",
        ),
    ],
)
def test_the_code_changes_with_the_source(tmp_path: Path, change: object) -> None:
    source = make_source(tmp_path / "source")
    before = code(tmp_path, f"data/{source}")
    assert callable(change)
    change(source)
    assert code(tmp_path, f"data/{source}") != before


def test_the_same_files_of_another_path_are_another_source(tmp_path: Path) -> None:
    first = code(tmp_path, f"data/{make_source(tmp_path / 'first')}")
    assert code(tmp_path, f"data/{make_source(tmp_path / 'second')}") != first
