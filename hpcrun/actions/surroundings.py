"""Where hpcrun was called: environment, folder, and the folders that files are looked up in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcrun.profiles.config import Config
from hpcrun.profiles.folder import Source


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command needs to know of its caller; ``cli`` and ``api`` alone build it.

    Attributes:
        profile_folders, template_folders: most important first: project, user, site, shipped.
        own_python: hpcrun's own interpreter where it has torch, else None.
        warnings: configuration that is not used, for a caller that is not told of it by the command line.
    """

    env: Mapping[str, str]
    cwd: Path
    host: str
    config: Config
    profile_folders: tuple[Source, ...]
    template_folders: tuple[Source, ...]
    own_python: str | None = None
    warnings: tuple[str, ...] = ()
