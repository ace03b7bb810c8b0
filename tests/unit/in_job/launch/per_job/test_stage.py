"""What --stage copies, where links lead to folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job.stage import StageError, list_files


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
        list_files(str(tmp_path / "list"), [f"data/{source}"])


def test_a_folder_is_copied_by_each_path_that_leads_to_it(tmp_path: Path) -> None:
    source = chain_of_links(tmp_path / "links", 3)
    listing = list_files(str(tmp_path / "list"), [f"data/{source}"])
    names = (tmp_path / "list/names").read_bytes().split(b"\0")
    assert (listing.files, listing.skipped) == (15, 0)
    assert b"./data/a/b/a/data" in names


def test_a_link_back_is_left_out(tmp_path: Path) -> None:
    source = chain_of_links(tmp_path / "links", 1)
    os.symlink(source, tmp_path / "links/1/back")
    listing = list_files(str(tmp_path / "list"), [f"data/{source}"])
    assert (listing.files, listing.skipped) == (3, 2)
