"""Reads template sources: a user's or project's file has priority over the shipped file of the same name."""

from __future__ import annotations

from collections.abc import Sequence

from hpcrun.errors import ProfileError
from hpcrun.job.script import TemplateSource
from hpcrun.profiles.folder import Source, folders_of

SUFFIX = ".j2"


def load_templates(folders: Sequence[Source]) -> dict[str, TemplateSource]:
    """Return template name (path below its folder) → source; an earlier folder hides a later one.

    Raises:
        ProfileError: a template cannot be read, or another user could have written it.
    """
    sources: dict[str, TemplateSource] = {}
    for folder in folders_of(folders):
        for name in folder.names(SUFFIX):
            if name in sources:
                continue
            try:
                sources[name] = TemplateSource(folder.text(name), str(folder.path / name))
            except ProfileError as error:
                raise ProfileError(f"template {error.message}", hint=error.hint) from None
    return sources
