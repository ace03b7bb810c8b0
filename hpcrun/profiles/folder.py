"""A folder of profiles, templates or rules: its files on disk, or their contents as they were read and trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from hpcrun.profiles.yaml_file import decoded_text, read_own_text, read_text


@dataclass(frozen=True, slots=True)
class Folder:
    """Files by their names, which are paths below the folder such as ``gpu/a100.yaml``.

    Attributes:
        contents: the files as they were read; nothing else is in the folder then. None for those on the disk.
        checked: whether a file on the disk is refused where another user could have written it; not hpcrun's own files.
        never: the person has said never to use it; it has no contents then.
        withheld: why nothing of it may be used; its files have names only.
    """

    path: Path
    contents: Mapping[str, bytes] | None = None
    checked: bool = True
    withheld: str | None = None
    never: bool = False

    def below(self, name: str) -> Folder:
        """Return the folder of that name in this one."""
        if self.contents is None:
            return replace(self, path=self.path / name)
        start = f"{name}/"
        inner = {file.removeprefix(start): text for file, text in self.contents.items() if file.startswith(start)}
        return replace(self, path=self.path / name, contents=inner)

    def names(self, suffix: str) -> list[str]:
        """Return the names of all files with that suffix, in subfolders too, sorted; none where it is withheld."""
        if self.withheld:
            return []
        return sorted(name for name in (self._on_disk() if self.contents is None else self.contents)
                      if name.endswith(suffix))  # fmt: skip

    def has(self, name: str) -> bool:
        """Whether there is a file of that name to be used."""
        return not self.withheld and self.holds(name)

    def holds(self, name: str) -> bool:
        """Whether there is a file of that name, usable or not."""
        if "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            return False  # a name leads nowhere else
        return _is_file(self.path / name) if self.contents is None else name in self.contents

    def text(self, name: str) -> str:
        """Return the text of a file.

        Raises:
            ProfileError: it cannot be read, is no text, or another user could have written it.
        """
        path = self.path / name
        if self.contents is not None:
            return decoded_text(self.contents[name], path)
        return read_own_text(path) if self.checked else read_text(path)

    def _on_disk(self) -> Iterator[str]:
        for path in self.path.rglob("*"):
            if _is_file(path):
                yield path.relative_to(self.path).as_posix()


def _is_file(path: Path) -> bool:
    """Whether there is something to read, or to say that it cannot be read: a pipe, a device, a link to nowhere."""
    return os.path.lexists(path) and not os.path.isdir(path)


Source = Folder | Path
"""Where files are looked up: a path is a folder on the disk, of which files are checked when they are read."""


def folders_of(sources: Sequence[Source]) -> list[Folder]:
    """Return each as a folder."""
    return [source if isinstance(source, Folder) else Folder(source) for source in sources]
