"""The configuration of a site, a user or a project: profile, runs folder, default time and account."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.errors import did_you_mean
from hpcrun.job.notify import check_destination, check_events
from hpcrun.job.patterns import check_metric_pattern
from hpcrun.job.units import parse_slurm_time
from hpcrun.profiles.folders import Source, folders_of
from hpcrun.profiles.yaml_file import Mistake, MistakesError, YamlFile, parse_yaml

DETECTED = "detected"  # the name of the profile that is made of what Slurm says of the cluster
FILE_NAME = "config.yaml"
KEYS = ("profile", "runs", "time", "account", "metrics", "notify", "notify_on", "notify_waiting", "wandb_sync")
_KINDS: dict[str, tuple[type, str]] = {
    "metrics": (dict, "names with regular expressions"),
    "notify": (list, "a list"),
    "notify_on": (list, "a list"),
    "wandb_sync": (bool, "true or false"),
}
_CONVERTED: dict[str, Callable[[Any], object]] = {
    "runs": Path, "time": parse_slurm_time, "notify": tuple, "notify_on": tuple, "notify_waiting": parse_slurm_time,
}  # fmt: skip
_FIELDS = {"time": "walltime_s", "notify_waiting": "notify_waiting_s"}
_ITEMS: dict[str, Callable[[str], object]] = {
    "metrics": check_metric_pattern,
    "notify": check_destination,
    "notify_on": lambda event: check_events([event]),
}


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
    notify_waiting_s: int | None = None  # how long a job is pending before a message says so; overrides the profile's
    # upload the offline wandb runs of a run in the background when a command learns that it has ended
    wandb_sync: bool = False


def load_config(folders: Sequence[Source]) -> Config:
    """Read ``config.yaml`` of each folder, most important first; the first value of a key counts."""
    values: dict[str, Any] = {}
    metrics: dict[str, str] = {}
    for folder in folders_of(folders):
        if not folder.has(FILE_NAME):
            continue
        for key, value in _checked(parse_yaml(folder.text(FILE_NAME), folder.path / FILE_NAME)).items():
            if key == "metrics":
                metrics = {**value, **metrics}
                continue
            if key == "runs":
                value = str(folder.path / os.path.expanduser(value))
            values.setdefault(key, value)
    for key, convert in _CONVERTED.items():
        if key in values:
            values[key] = convert(values[key])
    return Config(metrics=metrics, **{_FIELDS.get(key, key): value for key, value in values.items()})


def check_config(text: str, path: Path) -> None:
    """Check a possible new text of the file ``path``; raise ProfileError for invalid keys or values."""
    _checked(parse_yaml(text, path))


def _checked(file: YamlFile) -> dict[str, Any]:
    mistakes, hints = [], []
    for key, value in file.data.items():
        text, hint = _problem(key, value)
        if text:
            mistakes.append(file.origins[(key,)].mistake(text, (key,)))
        elif key in _ITEMS:
            mistakes += _item_mistakes(key, value.items() if key == "metrics" else enumerate(value), file)
        if hint:
            hints.append(hint)
    if mistakes:
        raise MistakesError(mistakes, hint=hints[0] if hints else None)
    return file.data


def _problem(key: str, value: object) -> tuple[str | None, str | None]:
    if key not in KEYS:
        return f"unknown key {key!r}", did_you_mean(key, KEYS, f"there are: {', '.join(KEYS)}")
    kind, words = _KINDS.get(key, (str, "text"))
    if not isinstance(value, kind) or (isinstance(value, str) and not (value and value.isprintable())):
        return f"{key} takes {words}" + (f", not {value!r}" if kind in (str, bool) else ""), None
    if key in ("time", "notify_waiting"):
        try:
            parse_slurm_time(str(value))
        except ValueError as error:
            return f"{key}: {error}", None
    return None, None


def _item_mistakes(key: str, items: Iterable[tuple[object, object]], file: YamlFile) -> Iterator[Mistake]:
    """Yield the mistakes in the values of a section or a list, each with its name or place."""
    for name, value in items:
        try:
            if not isinstance(value, str):
                raise ValueError(f"takes a regular expression, not {value!r}" if key == "metrics" else "takes text")
            _ITEMS[key](value)
        except ValueError as error:
            origin = file.origins.get((key, str(name))) or file.origins[(key,)]
            yield origin.mistake(f"{f'metrics.{name}' if key == 'metrics' else key}: {error}", (key,))
