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
    if not default:
        default = "local" if surroundings.detected is None else DETECTED
    shipped = folders_of(folders)[-1].path
    rows = []
    for name, path in sorted(profile_names(folders).items()):
        profile = None
        problem = None
        try:
            profile = load_profile(name, folders).profile
        except ProfileError as error:
            problem = error.message
        except SchedulerError as error:  # the cluster of the detected profile does not respond
            problem = f"{name}: {error.message.splitlines()[0].rstrip(':')}"
        is_shipped = path.is_relative_to(shipped)
        rows.append(ProfileRow(name, path, name == default, profile, problem, is_shipped))
    detected = next((row.profile for row in rows if row.name == DETECTED), None)
    is_known = surroundings.detected is None or detected is not None
    if not is_known:
        return rows
    return [replace(row, elsewhere=_is_elsewhere(row, detected)) for row in rows]


def _is_elsewhere(row: ProfileRow, cluster: Profile | None) -> bool:
    """Return whether a shipped profile is for another machine.

    Args:
        row: the profile in the list of profiles.
        cluster: the detected profile, None without Slurm.
    """
    if row.default or not row.shipped:
        return False
    if row.profile is None or row.profile.scheduler == "local":
        return False
    if cluster is None:
        return True
    cards = _cards(row.profile)
    return bool(cards) and cards.isdisjoint(_cards(cluster))


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
    if not names:
        paths = profile_names(folders)
        if surroundings.detected:  # hpcrun has written the detected profile
            written = surroundings.detected.path
            paths = {name: path for name, path in paths.items() if path != written}
        names = sorted(paths)
    verdicts = []
    for name in names:
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
        path = loaded.path
        line = None
        origin = loaded.origins.get(key)
        if origin:
            path = origin.path
            line = origin.line
        mistake = Mistake(path, line, f"env.{finding.text()}", key)
        if not finding.impossible:
            remarks.append(mistake)
            continue
        mistakes.append(mistake)
        if hint is None:
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
    left_values = _values_of(left, surroundings)
    right_values = _values_of(right, surroundings)
    differences = []
    for key in left_values | right_values:
        difference = Difference(key, left_values.get(key), right_values.get(key))
        if difference.left != difference.right:
            differences.append(difference)
    return differences


def _values_of(name: str, surroundings: Surroundings) -> dict[Key, Any]:
    """Return the values of a profile that are not its defaults, without its name."""
    profile = load_profile(name, surroundings.profile_folders).profile
    return flat_values(profile.model_dump(exclude_defaults=True, exclude={"name"}))


def flat_values(values: dict[str, Any]) -> dict[Key, Any]:
    """Return the values of nested sections by their full keys."""
    return {key: value for key, value in values_in(values) if not isinstance(value, dict)}
