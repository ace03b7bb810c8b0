"""Where a detected profile goes, and how it gets there: whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from hpcrun.errors import ProfileError, UsageError
from hpcrun.profiles.load import SUFFIX

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


def new_profile_path(name: str, folder: Path, *, force: bool) -> Path:
    """Return the file that a new profile is to have.

    Raises:
        UsageError: it cannot be a profile's name.
        ProfileError: there is one already, and ``force`` is not set.
    """
    if not _NAME.fullmatch(name) or name.endswith((SUFFIX, ".yml")):
        raise UsageError(
            f"{name!r} cannot be a profile's name", hint="use letters, digits, '-', '_' and '.', as mysite"
        )
    path = folder / f"{name}{SUFFIX}"
    if os.path.lexists(path) and not force:
        raise ProfileError(f"{path} is there already", hint="choose another name, or replace it with --force")
    return path


def save_profile(path: Path, text: str) -> None:
    """Write a profile's file: readable by all, as profiles are handed around; replaced in one step.

    Raises:
        ProfileError: it cannot be written; what was there is still there.
    """
    target = path.resolve()  # of a link, as dotfile managers make them, the file behind it
    temporary = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=target.parent, prefix=f".{target.name}.", delete=False
        ) as file:
            temporary = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise ProfileError(f"{path}: cannot be written: {error.strerror}") from None
