"""Reading template sources: a user's or project's file comes before the shipped one of the same name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcrun.errors import ProfileError
from hpcrun.job.script import TemplateSource

SUFFIX = ".j2"


def load_templates(folders: Sequence[Path]) -> dict[str, TemplateSource]:
    """Return template name (path below its folder) → source; an earlier folder hides a later one.

    Raises:
        ProfileError: a template cannot be read.
    """
    sources: dict[str, TemplateSource] = {}
    for folder in folders:
        for path in sorted(folder.rglob(f"*{SUFFIX}")):
            name = path.relative_to(folder).as_posix()
            if name in sources:
                continue
            try:
                sources[name] = TemplateSource(path.read_text("utf-8"), str(path))
            except (OSError, UnicodeDecodeError) as error:
                raise ProfileError(f"template {path}: {error}") from None
    return sources
