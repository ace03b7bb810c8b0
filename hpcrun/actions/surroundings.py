"""Where hpcrun was called: environment, folder, and the folders that files are looked up in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcrun.profiles.config import Config


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command needs to know of its caller; ``cli`` and ``api`` alone build it.

    Attributes:
        profile_folders, template_folders: most important first: project, user, site, shipped.
        own_python: hpcrun's own interpreter where it has torch, else None.
        warnings: what was passed over, to be said once.
    """

    env: Mapping[str, str]
    cwd: Path
    host: str
    config: Config
    profile_folders: tuple[Path, ...]
    template_folders: tuple[Path, ...]
    own_python: str | None = None
    warnings: tuple[str, ...] = ()
