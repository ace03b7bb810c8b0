"""Where a detected profile goes, and how it gets there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.errors import ProfileError, UsageError
from hpcrun.profiles.detected import new_profile_path, save_profile


def test_a_name_that_is_taken_needs_force_even_for_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "dev.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ProfileError, match="is there already"):
        new_profile_path("dev", tmp_path, force=False)
    assert new_profile_path("dev", tmp_path, force=True) == tmp_path / "dev.yaml"


@pytest.mark.parametrize("name", ["", "_part", "a/b", "..", ".hidden", "dev.yaml", "dev.yml", "é", "a b", "a\n"])
def test_what_cannot_be_a_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be a profile's name"):
        new_profile_path(name, tmp_path, force=False)


def test_what_cannot_be_saved_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dev.yaml"
    path.write_text("partition: old\n")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(ProfileError, match=r"dev\.yaml: cannot be written: No space left on device"):
        save_profile(path, "partition: new\n")
    assert path.read_text() == "partition: old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["dev.yaml"]
