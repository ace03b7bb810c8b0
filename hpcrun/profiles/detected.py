"""The file of a detected profile."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hpcrun.errors import ProfileError, UsageError
from hpcrun.profiles.load import SUFFIX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


def new_profile_path(name: str, folder: Path, *, force: bool) -> Path:
    """Return the file for a new profile.

    Raises:
        UsageError: it cannot be a profile's name.
        ProfileError: the file already exists, and ``force`` is not set.
    """
    if not _NAME.fullmatch(name) or name.endswith((SUFFIX, ".yml")):
        raise UsageError(
            f"{name!r} cannot be a profile's name", hint="use letters, digits, '-', '_' and '.', as mysite"
        )
    path = folder / f"{name}{SUFFIX}"
    if os.path.lexists(path) and not force:
        raise ProfileError(f"{path} already exists", hint="choose another name, or replace the file with --force")
    return path
