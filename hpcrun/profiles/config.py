"""The configuration of a site, a user or a project: profile, runs folder, default time and account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import nearest
from hpcrun.job.metrics import check_metric_pattern
from hpcrun.job.units import parse_time
from hpcrun.profiles.folder import Source, folders_of
from hpcrun.profiles.mistakes import Mistake, MistakesError, Origin

if TYPE_CHECKING:
    from hpcrun.profiles.yaml_file import YamlFile

FILE_NAME = "config.yaml"
KEYS = ("profile", "runs", "time", "account", "metrics")


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of ``config.yaml``.

    Attributes:
        profile: name of the default profile.
        runs: folder of the runs; a relative path starts at the file's own folder.
        walltime_s: default time limit of a job; overrides the profile's.
        account: default account of a job; overrides the profile's.
        metrics: name → regular expression that finds the number in a log; overrides the profile's.
    """

    profile: str | None = None
    runs: Path | None = None
    walltime_s: int | None = None
    account: str | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


def load_config(folders: Sequence[Source]) -> Config:
    """Read ``config.yaml`` of each folder, most important first; the first value of a key counts.

    Raises:
        ProfileError: a file is broken, or has invalid keys or values, which are all listed; or another user could have
            written it.
    """
    said: dict[str, Any] = {}
    metrics: dict[str, str] = {}
    for folder in folders_of(folders):
        if not folder.has(FILE_NAME):
            continue
        from hpcrun.profiles.yaml_file import parse_yaml  # import ruamel only if there is a file to read

        for key, value in _checked(parse_yaml(folder.text(FILE_NAME), folder.path / FILE_NAME)).items():
            if key == "metrics":
                metrics = {**value, **metrics}
                continue
            if key == "runs":
                value = str(folder.path / Path(value).expanduser())
            said.setdefault(key, value)
    return Config(
        said.get("profile"),
        Path(said["runs"]) if "runs" in said else None,
        parse_time(said["time"]) if "time" in said else None,
        said.get("account"),
        metrics,
    )


def _checked(file: YamlFile) -> dict[str, Any]:
    mistakes, hints = [], []
    for key, value in file.data.items():
        text, hint = _problem(key, value)
        if text:
            mistakes.append(_mistake(file.origins[(key,)], text, key))
        elif key == "metrics":
            mistakes += _pattern_mistakes(value, file)
        if hint:
            hints.append(hint)
    if mistakes:
        raise MistakesError(mistakes, hint=hints[0] if hints else None)
    return file.data


def _problem(key: str, value: object) -> tuple[str | None, str | None]:
    if key not in KEYS:
        close = nearest(key, list(KEYS))
        return f"unknown key {key!r}", f"did you mean {close!r}?" if close else f"there are: {', '.join(KEYS)}"
    if key == "metrics":
        return (None, None) if isinstance(value, dict) else ("metrics takes names with regular expressions", None)
    if not isinstance(value, str) or not value or not value.isprintable():
        return f"{key} takes text, not {value!r}", None
    if key == "time":
        try:
            parse_time(value)
        except ValueError as error:
            return f"time: {error}", None
    return None, None


def _pattern_mistakes(metrics: Mapping[str, object], file: YamlFile) -> list[Mistake]:
    found = []
    for name, value in metrics.items():
        try:
            if not isinstance(value, str):
                raise ValueError(f"takes a regular expression, not {value!r}")
            check_metric_pattern(value)
        except ValueError as error:
            found.append(_mistake(file.origins[("metrics", name)], f"metrics.{name}: {error}", "metrics"))
    return found


def _mistake(where: Origin, text: str, key: str) -> Mistake:
    return Mistake(where.path, where.line, text, (key,))
