"""The configuration of a person or a project: which profile, which runs folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import ProfileError, nearest
from hpcrun.profiles.yaml_file import read_yaml

FILE_NAME = "config.yaml"
KEYS = ("profile", "runs")


@dataclass(frozen=True, slots=True)
class Config:
    """What ``config.yaml`` may say.

    Attributes:
        profile: name of the default profile.
        runs: folder of the runs; a relative one counts from the file's own folder.
    """

    profile: str | None = None
    runs: Path | None = None


def load_config(folders: Sequence[Path]) -> Config:
    """Read ``config.yaml`` of each folder, most important first; the first to say a thing is heard.

    Raises:
        ProfileError: a file is broken, or has a key or value that means nothing.
    """
    said: dict[str, str] = {}
    for folder in folders:
        path = folder / FILE_NAME
        if not path.is_file():
            continue
        file = read_yaml(path)
        for key, value in file.data.items():
            where = file.origins[(key,)]
            if key not in KEYS:
                close = nearest(key, list(KEYS))
                raise ProfileError(f"{where}: unknown key {key!r}", hint=f"did you mean {close!r}?" if close else
                                   f"there are: {', '.join(KEYS)}")  # fmt: skip
            if not isinstance(value, str):
                raise ProfileError(f"{where}: {key} takes text, not {value!r}")
            if key == "runs":
                value = str(folder / Path(value).expanduser())
            said.setdefault(key, value)
    return Config(said.get("profile"), Path(said["runs"]) if "runs" in said else None)
