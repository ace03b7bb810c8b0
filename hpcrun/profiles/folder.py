"""A folder of profiles, templates or rules: its files on disk, or the contents that were read and trusted.

The shipped folders are inside an installed wheel, or beside the package in a checkout.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from hpcrun.errors import ProfileError
from hpcrun.profiles.yaml_file import decoded_text, read_own_text, read_text

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Folder:
    """Files by their names, which are paths below the folder such as ``gpu/a100.yaml``."""

    path: Path
    # the files that were read; then the folder has no other files. None for the files on disk
    contents: Mapping[str, bytes] | None = None
    # whether a file on disk is refused if another user could have written it; not for hpcrun's own files
    checked: bool = True
    withheld: str | None = None  # why none of its files may be used; then its files have only names
    never: bool = False  # the user has chosen never to use it; then it has no contents

    def below(self, name: str) -> Folder:
        """Return the subfolder of this name."""
        if self.contents is None:
            return replace(self, path=self.path / name)
        start = f"{name}/"
        inner = {file.removeprefix(start): text for file, text in self.contents.items() if file.startswith(start)}
        return replace(self, path=self.path / name, contents=inner)

    def names(self, suffix: str) -> list[str]:
        """Return the sorted names of all files with this suffix, also in subfolders; none if the folder is withheld."""
        if self.withheld:
            return []
        return sorted(name for name in (self._on_disk() if self.contents is None else self.contents)
                      if name.endswith(suffix))  # fmt: skip

    def has(self, name: str) -> bool:
        """Whether there is a usable file of this name."""
        return not self.withheld and self.holds(name)

    def holds(self, name: str) -> bool:
        """Whether there is a file of this name, usable or not."""
        if "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            return False  # a name cannot lead out of the folder
        return _is_file(self.path / name) if self.contents is None else name in self.contents

    def text(self, name: str) -> str:
        """Return the text of a file; ProfileError if it is no text, or if another user could have written it."""
        path = self.path / name
        if self.contents is not None:
            return decoded_text(self.contents[name], path)
        return read_own_text(path) if self.checked else read_text(path)

    def _on_disk(self) -> Iterator[str]:
        for path in self.path.rglob("*"):
            if _is_file(path):
                yield path.relative_to(self.path).as_posix()


def _is_file(path: Path) -> bool:
    """Whether there is a file, or an entry whose error must be reported: a pipe, a device, a broken link."""
    return os.path.lexists(path) and not os.path.isdir(path)


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped ``templates`` or ``cluster_profiles``.

    A wheel has them in ``hpcrun/shipped`` (pyproject's force-include); an editable install and a plain
    checkout have them at the top level.
    """
    installed = _PACKAGE / "shipped" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def shipped(kind: str) -> Folder:
    """Return the shipped ``templates`` or ``cluster_profiles``, which are as trustworthy as hpcrun itself."""
    return Folder(shipped_folder(kind), checked=False)


Source = Folder | Path
"""A place of files: a path is a folder on disk, whose files are checked when they are read."""


def load_templates(folders: Sequence[Source]) -> dict[str, tuple[str, str]]:
    """Return template name (path below its folder) → source and file; an earlier folder hides a later one."""
    templates: dict[str, tuple[str, str]] = {}
    for folder in folders_of(folders):
        for name in folder.names(".j2"):
            if name not in templates:
                try:
                    templates[name] = folder.text(name), str(folder.path / name)
                except ProfileError as error:
                    raise ProfileError(f"template {error.message}", hint=error.hint) from None
    return templates


def folders_of(sources: Sequence[Source]) -> list[Folder]:
    """Return each as a folder."""
    return [source if isinstance(source, Folder) else Folder(source) for source in sources]
