"""profile list, show, validate and diff: the profiles, their values, and the mistakes in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.detect_types import card_part
from hpcrun.actions.profiles.variables import check_profile_env
from hpcrun.errors import ProfileError, SchedulerError
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.folders import folders_of
from hpcrun.profiles.load import LoadedProfile, find_profile, load_profile, profile_names
from hpcrun.profiles.yaml_file import Key, Mistake, MistakesError, values_in

if TYPE_CHECKING:
    from hpcrun.job.profile_model import Profile


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """One profile of the list."""

    name: str
    path: Path
    default: bool
    profile: Profile | None
    problem: str | None = None  # why it cannot be loaded
    shipped: bool = False  # it comes with hpcrun
    # it is shipped, for GPUs that this cluster does not have, or for Slurm where there is none
    elsewhere: bool = False


def list_profiles(surroundings: Surroundings) -> list[ProfileRow]:
    """Return every profile, by name; an invalid one has its problem."""
    folders = surroundings.profile_folders
    default = surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    default = default or ("local" if surroundings.detected is None else DETECTED)
    shipped = folders_of(folders)[-1].path
    rows = []
    for name, path in sorted(profile_names(folders).items()):
        profile = problem = None
        try:
            profile = load_profile(name, folders).profile
        except ProfileError as error:
            problem = error.message
        except SchedulerError as error:  # the cluster of the detected profile does not respond
            problem = f"{name}: {error.message.splitlines()[0].rstrip(':')}"
        rows.append(
            ProfileRow(name, path, name == default, profile, problem, path.is_relative_to(shipped))
        )
    detected = next((row.profile for row in rows if row.name == DETECTED), None)
    is_known = surroundings.detected is None or detected is not None
    return [replace(row, elsewhere=is_known and _is_elsewhere(row, detected)) for row in rows]


def _is_elsewhere(row: ProfileRow, cluster: Profile | None) -> bool:
    """Return whether a shipped profile is for another machine.

    Args:
        row: the profile in the list of profiles.
        cluster: the detected profile, None without Slurm.
    """
    if row.default or not row.shipped or row.profile is None or row.profile.scheduler == "local":
        return False
    cards = _cards(row.profile)
    return cluster is None or bool(cards and not cards & _cards(cluster))


def _cards(profile: Profile) -> set[str]:
    types = {profile.gpu.type, *profile.gpu.types} - {None}
    return {card_part(type_) or type_ for type_ in types if type_}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The mistakes in a profile; without any it is valid."""

    name: str
    path: Path
    mistakes: tuple[Mistake, ...] = ()
    hint: str | None = None
    remarks: tuple[Mistake, ...] = ()  # warnings, which are not mistakes


def validate_profiles(names: Sequence[str], surroundings: Surroundings) -> list[Verdict]:
    """Check profiles by name or path, or all of them."""
    folders = surroundings.profile_folders
    verdicts = []
    # hpcrun has written it
    if surroundings.detected:
        detected = surroundings.detected.path
    else:
        detected = None
    for name in names or sorted(
        name for name, path in profile_names(folders).items() if path != detected
    ):
        path = find_profile(name, folders)
        try:
            loaded = load_profile(name, folders)
        except MistakesError as error:
            verdicts.append(Verdict(name, path, error.mistakes, error.hint))
        else:
            verdicts.append(_verdict_on_variables(name, loaded))
    return verdicts


def _verdict_on_variables(name: str, loaded: LoadedProfile) -> Verdict:
    """Check the variables that a profile sets.

    An impossible value is a mistake, since submit refuses the value.
    """
    mistakes: list[Mistake] = []
    remarks: list[Mistake] = []
    hint = None
    for finding, key in check_profile_env(loaded):
        where = loaded.origins.get(key)
        mistake = Mistake(
            where.path if where else loaded.path,
            where.line if where else None,
            f"env.{finding.text}",
            key,
        )
        (mistakes if finding.impossible else remarks).append(mistake)
        if finding.impossible and hint is None:
            hint = f"hpcrun profile env {finding.name} explains it"
    return Verdict(name, loaded.path, tuple(mistakes), hint, tuple(remarks))


@dataclass(frozen=True, slots=True)
class Difference:
    """A key with different values in two profiles; None if one profile has no value."""

    key: Key
    left: Any
    right: Any


def diff_profiles(left: str, right: str, surroundings: Surroundings) -> list[Difference]:
    """Return the differences between two profiles: ``24h`` and ``1-00:00:00`` are one value."""
    loaded = [load_profile(name, surroundings.profile_folders).profile for name in (left, right)]
    one, other = (
        flat_values(profile.model_dump(exclude_defaults=True, exclude={"name"}))
        for profile in loaded
    )
    keys = [*one, *(key for key in other if key not in one)]
    return [
        Difference(key, one.get(key), other.get(key))
        for key in keys
        if one.get(key) != other.get(key)
    ]


def flat_values(values: dict[str, Any]) -> dict[Key, Any]:
    """Return the values of nested sections by their full keys."""
    return {key: value for key, value in values_in(values) if not isinstance(value, dict)}
