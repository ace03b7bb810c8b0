"""Where a detected profile goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.profiles.edit import new_profile_path
from hpcrun.errors import ProfileError, UsageError


def test_a_name_that_is_taken_needs_force_even_for_a_link_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "dev.yaml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ProfileError, match="already exists"):
        new_profile_path("dev", tmp_path, force=False)
    assert new_profile_path("dev", tmp_path, force=True) == tmp_path / "dev.yaml"


def test_what_cannot_be_a_name_or_is_hpcrun_s_own_is_refused(tmp_path: Path) -> None:
    for name in ("", "_part", "a/b", "..", ".hidden", "dev.yaml", "dev.yml", "é", "a b", "a\n"):
        with pytest.raises(UsageError, match="cannot be a profile's name"):
            new_profile_path(name, tmp_path, force=False)
    for name in ("local", "detected"):
        with pytest.raises(UsageError, match=f"hpcrun itself uses the profile {name}"):
            new_profile_path(name, tmp_path, force=True)
