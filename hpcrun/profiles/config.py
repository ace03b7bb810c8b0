"""The configuration of a site, a user or a project.

The configuration holds the profile, the runs folder, the default time and the account.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError, did_you_mean
from hpcrun.files.reading import flag
from hpcrun.job.request.notify_options import check_destination, check_events
from hpcrun.job.text.units import parse_slurm_time
from hpcrun.profiles.folders import Source, folders_of
from hpcrun.profiles.limits import LIMITS, Limits, limits_of, read_limit, smallest
from hpcrun.profiles.site_locks import (
    COMMENT_JOBS,
    LOCKABLE,
    LOCKED,
    NOTIFY,
    PARTITION_LIMITS,
    Lock,
    PartitionLimits,
    SiteLocks,
    partition_limits_of,
    read_partition_limit,
    read_sentence,
    smallest_of_partitions,
)
from hpcrun.profiles.yaml_file import (
    Key,
    MistakesError,
    Origin,
    YamlFile,
    dotted,
    parse_yaml,
    read_text,
)
from hpcrun.version import __version__

DETECTED = "detected"  # the name of the profile that is made of what Slurm says of the cluster
FILE_NAME = "config.yaml"
MISNAMED = "config.yml"  # not read


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("takes text")
    return value


def _events(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("takes a list")
    return check_events(map(_text, value))


def _metric_pattern(value: Any) -> str:
    from hpcrun.job.text.metric_patterns import check_metric_pattern  # few files have one

    return check_metric_pattern(_text(value))


# key → what reads its value, or each value of its list or section
_READERS: dict[str, Callable[[Any], Any]] = {
    "profile": _text,
    "runs": _text,
    "time": lambda value: parse_slurm_time(_text(value)),
    "account": _text,
    "metrics": _metric_pattern,
    "notify": lambda value: check_destination(_text(value)),
    "notify_on": _events,
    "notify_waiting": lambda value: parse_slurm_time(_text(value)),
    "wandb_sync": flag,
    "on": _text,
    "limits": read_limit,
    PARTITION_LIMITS: read_partition_limit,
    COMMENT_JOBS: flag,
    LOCKED: read_sentence,
}
KEYS = tuple(_READERS)
_SEVERAL: dict[str, tuple[type, str]] = {
    "metrics": (dict, "names with regular expressions"),
    "notify": (list, "a list"),
    "limits": (dict, f"a section with {', '.join(LIMITS)}"),
    PARTITION_LIMITS: (dict, "a section with partitions"),
    LOCKED: (dict, f"a section with {', '.join(LOCKABLE)}"),
}
_NAMES = {"limits": ("limit", LIMITS), LOCKED: ("key to lock", LOCKABLE)}
"""The names in a section that has no others, and the word for one of them."""
_REPLACED = (NOTIFY, COMMENT_JOBS)
"""The keys that can be locked and of which one file's value counts, and not the smallest."""
_FIELDS = {"time": "walltime_s", "notify_waiting": "notify_waiting_s"}


def _ignore(_warning: str) -> None:
    """Ignore a warning."""


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of ``config.yaml``."""

    profile: str | None = None  # name of the default profile
    runs: Path | None = None  # folder of the runs; a relative path starts at the file's own folder
    walltime_s: int | None = None  # default time limit of a job; overrides the profile's
    account: str | None = None  # default account of a job; overrides the profile's
    # name → regular expression that finds the number in a log; overrides the profile's
    metrics: Mapping[str, str] = field(default_factory=dict)
    notify: tuple[str, ...] = ()  # destinations of the messages about runs, besides the profile's
    notify_on: tuple[str, ...] = ()  # the events; overrides the profile's
    # how long a job is pending before a message says so; overrides the profile's
    notify_waiting_s: int | None = None
    # upload the offline wandb runs of a run in the background when a command learns that it has
    # ended
    wandb_sync: bool = False
    on: str | None = None  # the host on which commands run: ``hpcrun --on``
    # the smallest of all files: no file can raise or remove another's
    limits: Limits = field(default_factory=Limits)
    partition_limits: PartitionLimits = field(default_factory=dict)  # likewise
    comment_jobs: bool = False  # the comment of each job names hpcrun and the run
    site: SiteLocks = field(default_factory=SiteLocks)  # what nobody overrides


@dataclass(frozen=True, slots=True)
class _ConfigFile:
    """The values of one file, and where they stand."""

    path: Path
    values: dict[str, Any]
    origins: Mapping[Key, Origin]
    locks: Mapping[str, Lock]  # what it locks, as the file of a site


def load_config(
    folders: Sequence[Source],
    site: Path | None = None,
    warn: Callable[[str], None] = _ignore,
    fixed: Sequence[Source] = (),
) -> Config:
    """Read ``config.yaml`` of each folder, most important first.

    The first value of a key counts; of limits, the smallest. The site's value of a locked key
    counts before all others.

    Args:
        folders: the folders.
        site: the site's folder. An unknown key of its file is only a warning: the file may be for a
            newer hpcrun than this user's.
        warn: gets each warning.
        fixed: folders of the site of which only locked keys and limits count, before those of
            ``site``.
    """
    files = _files(folders, (site,), warn)
    fixed_folders = folders_of(fixed)
    every = [*_files(fixed_folders, [folder.path for folder in fixed_folders], warn), *files]
    locking = [file for file in every if file.locks]
    values: dict[str, Any] = {}
    for file in locking:
        for key in _REPLACED:
            if key in file.locks:
                values.setdefault(key, file.values.get(key))
    metrics: dict[str, str] = {}
    for file in files:
        _drop_locked(file, locking, warn)
        metrics = {**file.values.pop("metrics", {}), **metrics}
        values = {**file.values, **values}
    fields = {}
    for key, value in values.items():
        if value is not None and key not in ("limits", PARTITION_LIMITS):
            fields[_FIELDS.get(key, key)] = value
    return Config(
        metrics=metrics,
        limits=_limits(every),
        partition_limits=_partition_limits(every),
        site=_site_locks(locking),
        **fields,
    )


def _files(
    folders: Sequence[Source], sites: Collection[Path | None], warn: Callable[[str], None]
) -> list[_ConfigFile]:
    """Read the files of some folders, of which some are the site's.

    Raises:
        MistakesError: a file has mistakes, or a file that is not the site's locks keys.
    """
    files = []
    for folder in folders_of(folders):
        if not folder.has(FILE_NAME):
            continue
        path = folder.path / FILE_NAME
        file = parse_yaml(folder.text(FILE_NAME), path)
        is_of_site = folder.path in sites
        if is_of_site:
            _drop_unknown(file, warn)
        values = _read(file)
        if "runs" in values:
            values["runs"] = folder.path / os.path.expanduser(values["runs"])
        sentences = values.pop(LOCKED, {})
        if sentences and not is_of_site:
            text = "locked: only the site's config.yaml locks keys"
            raise MistakesError([file.origins[LOCKED,].mistake(text, (LOCKED,))])
        locks = {key: Lock(key, sentence, path) for key, sentence in sentences.items()}
        files.append(_ConfigFile(path, values, file.origins, locks))
    return files


def _drop_locked(
    file: _ConfigFile, locking: Sequence[_ConfigFile], warn: Callable[[str], None]
) -> None:
    """Remove the values of the keys that another file locks, each with the site's sentence."""
    for other in locking:
        for key in _REPLACED:
            if other.path == file.path or key not in other.locks or key not in file.values:
                continue
            if file.values[key] != other.values.get(key):
                lock = other.locks[key]
                text = f"{key} is not used: it is locked in {lock.path}: {lock.sentence}"
                warn(str(file.origins[key,].mistake(text, (key,))))
            del file.values[key]


def _limits(files: Sequence[_ConfigFile]) -> Limits:
    return smallest(limits_of(file.values.get("limits", {}), file.path) for file in files)


def _partition_limits(files: Sequence[_ConfigFile]) -> PartitionLimits:
    return smallest_of_partitions(
        partition_limits_of(file.values.get(PARTITION_LIMITS, {}), file.path) for file in files
    )


def _site_locks(files: Sequence[_ConfigFile]) -> SiteLocks:
    """Return the locks of the site's files, the first of each key."""
    locks: dict[str, Lock] = {}
    for file in files:
        locks = {**file.locks, **locks}
    return SiteLocks(
        locks,
        _limits([file for file in files if "limits" in file.locks]),
        _partition_limits([file for file in files if PARTITION_LIMITS in file.locks]),
    )


def load_limits(folder: Path) -> tuple[Limits, PartitionLimits]:
    """Return the limits in the ``config.yaml`` of a folder, whoever could have written the file.

    They are the limits on the cost of jobs, and those of partitions.

    A limit can only refuse. So a file that is not used for anything else still limits, and only a
    file that is not there sets no limit.

    Raises:
        ProfileError: the file, or the folder, is there and cannot be read, or a limit is wrong.
    """
    path = folder / FILE_NAME
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        _check_folder(folder)
        return Limits(), {}
    except OSError:
        pass  # to read the file tells why
    file = parse_yaml(read_text(path), path)
    others = [key for key in file.data if key not in ("limits", PARTITION_LIMITS)]
    for key in others:
        del file.data[key]
    values = _read(file)
    partitions = partition_limits_of(values.get(PARTITION_LIMITS, {}), path)
    return limits_of(values.get("limits", {}), path), partitions


def _check_folder(folder: Path) -> None:
    """Check that a folder without a file is a folder, or is not there.

    Raises:
        ProfileError: it is something else, such as a link to a folder that is not mounted.
    """
    for place in (folder, *folder.parents):
        if os.path.isdir(place):
            return
        if os.path.lexists(place) and (place == folder or os.path.islink(place)):
            raise ProfileError(
                f"{place} is not a folder, so that the limits in {folder} are unknown",
                hint="make it a folder, or remove it",
            )


def _drop_unknown(file: YamlFile, warn: Callable[[str], None]) -> None:
    """Remove the unknown keys of a file, each with a warning."""
    unknown = [key for key in file.data if key not in _READERS]
    for key in unknown:
        mistake = file.origins[key,].mistake(f"{key}: unknown key", (key,))
        warn(f"{mistake}; hpcrun {__version__} ignores it")
        del file.data[key]
    locked = file.data.get(LOCKED)
    if isinstance(locked, dict):
        unlockable = [key for key in locked if key not in LOCKABLE]
        for key in unlockable:
            place = (LOCKED, key)
            mistake = file.origins[place].mistake(f"{dotted(place)}: no such key to lock", place)
            warn(f"{mistake}; hpcrun {__version__} ignores it")
            del locked[key]


def check_config(text: str, path: Path) -> None:
    """Check a possible new text of the file ``path``.

    Raises:
        ProfileError: a key or a value is invalid.
    """
    _read(parse_yaml(text, path))


def _read(file: YamlFile) -> dict[str, Any]:
    """Return the values of a file by their keys.

    Raises:
        MistakesError: there are mistakes; the error holds at most one for each key.
        ValueError: never to the caller; inside, an unknown key or a wrong value becomes a mistake.
    """
    values: dict[str, Any] = {}
    mistakes = []
    hint = None
    for key, value in file.data.items():
        place: Key = (key,)
        kind, words = _SEVERAL.get(key, (None, ""))
        try:
            if key not in _READERS:
                hint = hint or did_you_mean(key, KEYS, f"there are: {', '.join(KEYS)}")
                raise ValueError("unknown key")
            if kind is None:
                values[key] = _READERS[key](value)
                continue
            if not isinstance(value, kind):
                raise ValueError(f"takes {words}")
            items: dict[str, Any] = {}
            entries: Any = value.items() if isinstance(value, dict) else enumerate(file.data[key])
            for name, item in entries:
                place = (key, str(name))
                if key in _NAMES and name not in _NAMES[key][1]:
                    noun, names = _NAMES[key]
                    raise ValueError(f"there is no such {noun}; there are: {', '.join(names)}")
                items[place[1]] = _READERS[key](item)
            values[key] = items if kind is dict else tuple(items.values())
        except ValueError as error:
            mistakes.append(file.origins[place].mistake(f"{dotted(place)}: {error}", (key,)))
    if mistakes:
        raise MistakesError(mistakes, hint=hint)
    return values
