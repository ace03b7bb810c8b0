"""profile list, show and path: what profiles there are, what one says, where files are looked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.actions.surroundings import Surroundings
from hpcrun.errors import ProfileError
from hpcrun.job.profile import Profile
from hpcrun.profiles.load import load_profile, profile_names


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One profile of the list; ``problem`` says why it cannot be loaded."""

    name: str
    path: Path
    default: bool
    profile: Profile | None
    problem: str | None = None


def list_profiles(surroundings: Surroundings) -> list[ProfileRow]:
    """Return every profile, by name; one that is broken is listed with its problem."""
    default = surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    rows = []
    for name, path in sorted(profile_names(surroundings.profile_folders).items()):
        try:
            loaded = load_profile(name, surroundings.profile_folders)
            rows.append(ProfileRow(name, path, name == default, loaded.profile))
        except ProfileError as error:
            rows.append(ProfileRow(name, path, name == default, None, error.message))
    return rows


def show_profile(name: str, surroundings: Surroundings) -> tuple[Path, dict[str, Any]]:
    """Return a profile's file and its merged values, as they are used.

    Raises:
        ProfileError: there is none of that name, or it is wrong.
    """
    loaded = load_profile(name, surroundings.profile_folders)
    return loaded.path, loaded.profile.model_dump(exclude_defaults=True)
