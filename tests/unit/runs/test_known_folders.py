"""The list of a user's runs folders."""

from __future__ import annotations

from pathlib import Path

from hpcrun.runs.known_folders import note_folder


def test_folders_of_all_lists_that_exist_are_known(tmp_path: Path) -> None:
    first, second = tmp_path / "state/list", tmp_path / "other"
    for name in ("a", "b\nc", "gone"):
        (tmp_path / name).mkdir()
        note_folder(tmp_path / name, [first])
    (tmp_path / "gone").rmdir()
    now = tmp_path / "now"
    assert note_folder(now, [first, second]) == [now, tmp_path / "a", tmp_path / "b\nc"]
    assert note_folder(tmp_path / "a", [second]) == [tmp_path / "a"]


def test_a_folder_is_noted_once(tmp_path: Path) -> None:
    for _ in range(3):
        note_folder(tmp_path, [tmp_path / "list"])
    assert len((tmp_path / "list").read_text().splitlines()) == 1


def test_a_list_that_cannot_be_written_or_read_is_left(tmp_path: Path) -> None:
    (tmp_path / "list").mkdir()
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b'\xff\n{"a"\n')
    assert note_folder(tmp_path, [tmp_path / "list", damaged]) == [tmp_path]
