"""The configuration of a site, a user or a project.

The configuration holds the profile, the runs folder, the default time and the account.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError, did_you_mean
from hpcrun.files.reading import flag
from hpcrun.job.request.notify_options import check_destination, check_events
from hpcrun.job.text.units import parse_slurm_time
from hpcrun.profiles.folders import Source, folders_of
from hpcrun.profiles.limits import LIMITS, Limits, limits_of, read_limit, smallest
from hpcrun.profiles.yaml_file import (
    Key,
    MistakesError,
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
    from hpcrun.job.text.patterns import check_metric_pattern  # few files have one

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
}
KEYS = tuple(_READERS)
_SEVERAL: dict[str, tuple[type, str]] = {
    "metrics": (dict, "names with regular expressions"),
    "notify": (list, "a list"),
    "limits": (dict, f"a section with {', '.join(LIMITS)}"),
}
_NAMES = {"limits": LIMITS}
"""The names in a section that has no others."""
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


def load_config(
    folders: Sequence[Source], site: Path | None = None, warn: Callable[[str], None] = _ignore
) -> Config:
    """Read ``config.yaml`` of each folder, most important first.

    The first value of a key counts; of limits, the smallest.

    Args:
        folders: the folders.
        site: the site's folder. An unknown key of its file is only a warning: the file may be for a
            newer hpcrun than this user's.
        warn: gets each warning.
    """
    values: dict[str, Any] = {}
    metrics: dict[str, str] = {}
    limits: list[Limits] = []
    for folder in folders_of(folders):
        if folder.has(FILE_NAME):
            file = parse_yaml(folder.text(FILE_NAME), folder.path / FILE_NAME)
            if folder.path == site:
                _drop_unknown(file, warn)
            here = _read(file)
            if "runs" in here:
                here["runs"] = folder.path / os.path.expanduser(here["runs"])
            limits.append(limits_of(here.pop("limits", {}), folder.path / FILE_NAME))
            metrics = {**here.pop("metrics", {}), **metrics}
            values = {**here, **values}
    fields = {_FIELDS.get(key, key): value for key, value in values.items()}
    return Config(metrics=metrics, limits=smallest(limits), **fields)


def load_limits(folder: Path) -> Limits:
    """Return the limits in the ``config.yaml`` of a folder, whoever could have written the file.

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
        return Limits()
    except OSError:
        pass  # to read the file tells why
    file = parse_yaml(read_text(path), path)
    for key in [key for key in file.data if key != "limits"]:
        del file.data[key]
    return limits_of(_read(file).get("limits", {}), path)


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
                if key in _NAMES and name not in _NAMES[key]:
                    raise ValueError(f"there is no such limit; there are: {', '.join(LIMITS)}")
                items[place[1]] = _READERS[key](item)
            values[key] = items if kind is dict else tuple(items.values())
        except ValueError as error:
            mistakes.append(file.origins[place].mistake(f"{dotted(place)}: {error}", (key,)))
    if mistakes:
        raise MistakesError(mistakes, hint=hint)
    return values
