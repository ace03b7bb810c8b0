"""The folders of configuration that hpcrun uses: those that no other user could have written, or that are trusted."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from hpcrun.errors import ProfileError
from hpcrun.profiles.folder import Folder
from hpcrun.profiles.trust import Contents, Trust, TrustStore, changes, dangers_on_disk, read_contents

_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Layer:
    """A folder of configuration, and whether it is used.

    Attributes:
        folder: the folder to read from; withheld if it is not used.
        warning: a message about this, None if there is none.
        contents: the files that were read; None if no trust was needed.
        trust: the user's earlier answer.
        refused: why it cannot even be trusted.
    """

    folder: Folder
    warning: str | None = None
    contents: Contents | None = None
    trust: Trust | None = None
    refused: str | None = None
    changes: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The path of the folder."""
        return self.folder.path


def own_layer(path: Path, store: TrustStore) -> Layer:
    """Return the user's or the site's folder: used if no other user could have written it, or if it is trusted."""
    dangers = dangers_on_disk(path)
    return _judged(path, store, dangers[0]) if dangers else Layer(Folder(path))


def project_layer(path: Path, store: TrustStore) -> Layer:
    """Return a project's folder: used if its contents are trusted, whatever its owner and its rights."""
    return _judged(path, store, None)


def _judged(path: Path, store: TrustStore, danger: str | None) -> Layer:
    if os.path.islink(path):
        return _refused(path, danger or "it is a symbolic link")
    try:
        contents = read_contents(path)
        trust = store.find(path)
    except ProfileError as error:
        return _refused(path, error.message)
    if os.geteuid() == 0 and contents.dangers:  # the contents may be another user's; root uses only files of root
        return _refused(path, f"root uses only files writable by root alone: {contents.dangers[0]}", contents)
    if trust and trust.never:
        return Layer(Folder(path, {}, never=True), contents=contents, trust=trust)
    differences = changes(trust, contents)
    if not contents.files and not contents.skipped:
        return Layer(Folder(path, {}), contents=contents, trust=trust)
    if trust and not differences:
        return Layer(Folder(path, contents.files), _skipped(path, contents), contents, trust)
    why = danger or ("it changed since you trusted it" if trust else "you have not trusted it")
    named = _named(f"{name} ({word})" for name, word in differences.items()) if trust else _named(contents.files)
    way = f"chmod go-w, or hpcrun profile trust {path}" if danger else "to review and trust it: hpcrun profile trust"
    warning = f"{path} is not used: {why}: {named or _named(contents.skipped)} ({way})"
    return Layer(Folder(path, contents.files, withheld=why), warning, contents, trust, changes=differences)


def _refused(path: Path, why: str, contents: Contents | None = None) -> Layer:
    files = contents.files if contents else {}
    return Layer(Folder(path, files, withheld=why), f"{path} is not used: {why}", refused=why)


def _skipped(path: Path, contents: Contents) -> str | None:
    return f"not used from {path}: {_named(contents.skipped)}" if contents.skipped else None


def _named(names: Iterable[str]) -> str:
    """Return names on one line; the name of a file is untrusted text."""
    from hpcrun.job.phrases import listed  # most layers have nothing to say

    words = ["".join(char if char.isprintable() else "?" for char in name) for name in names]
    return listed(words, _MOST_NAMED)
