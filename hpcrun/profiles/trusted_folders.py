"""The folders of configuration that hpcrun uses: those that no other user could have written, or that are trusted.

A clone's ``.hpcrun`` contains templates and set-up commands that run as the user who submits there. Ownership is no
help, since a user owns all files of a clone. So the files are used only if each has the contents that the user has seen
and trusted; hpcrun uses the bytes that it has hashed, and does not read a file again.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError
from hpcrun.job.units import listed
from hpcrun.ownership import danger_in, danger_to, read_checked, read_open
from hpcrun.profiles.folder import Folder
from hpcrun.profiles.save import make_folder, replace_text, saving
from hpcrun.profiles.yaml_file import MAX_BYTES

SCHEMA = 1
FILES = ("config.yaml", "rules.yaml")
TREES = (("profiles", ".yaml"), ("templates", ".j2"))
"""The files of a folder that hpcrun reads, and so the files that are trusted."""
_MOST_ENTRIES = 500
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class Trust:
    """A user's answer about a folder."""

    path: Path
    hashes: Mapping[str, str]  # name → SHA-256 of the trusted contents
    never: bool = False  # the user never wants to use it, or to see a message about it


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of the files of a folder that hpcrun would read, read once."""

    files: Mapping[str, bytes]
    skipped: tuple[str, ...] = ()  # what was not read, for example a link, with the reason
    dangers: tuple[str, ...] = ()  # how other users could write to it

    def hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each file."""
        return {name: _sha256(text) for name, text in self.files.items()}


def _sha256(data: bytes) -> str:
    import hashlib  # with OpenSSL; most people have nothing to trust

    return hashlib.sha256(data).hexdigest()


class TrustStore:
    """The folder with a user's answers: one file for each path, readable only by this user."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find(self, path: Path) -> Trust | None:
        """Return the answer about a folder, by its real path; None if there is none, or if it cannot be read.

        Raises:
            ProfileError: another user could have written it.
        """
        file = self._file(path)
        try:
            trust = _trust(read_checked(file, MAX_BYTES))
        except OSError:
            return None
        return trust if trust and trust.path == Path(os.path.realpath(path)) else None

    def save(self, trust: Trust) -> None:
        """Save the answer about a folder, or raise ProfileError: it cannot be written."""
        with saving(self.root):
            make_folder(self.root, mode=0o700)
        record = {"schema": SCHEMA, "path": str(trust.path), "never": trust.never, "files": dict(trust.hashes)}
        replace_text(self._file(trust.path), json.dumps(record, indent=1) + "\n", mode=0o600)

    def forget(self, path: Path) -> bool:
        """Delete the answer about a folder, and return whether there was one."""
        with saving(self.root):
            try:
                self._file(path).unlink()
            except FileNotFoundError:
                return False
        return True

    def all(self) -> list[Trust]:
        """Return all answers, by path, or raise ProfileError: another user could have written it."""
        answers = []
        for file in self.root.glob("*.json"):
            with suppress(OSError):
                if trust := _trust(read_checked(file, MAX_BYTES)):
                    answers.append(trust)
        return sorted(answers, key=lambda trust: trust.path)

    def _file(self, path: Path) -> Path:
        real = os.fsencode(os.path.realpath(path))
        return self.root / f"{_sha256(real)[:40]}.json"


def _trust(text: bytes) -> Trust | None:
    try:
        record: Any = json.loads(text)
        if record["schema"] != SCHEMA:
            return None
        hashes = {str(name): str(digest) for name, digest in record["files"].items()}
        return Trust(Path(record["path"]), hashes, never=record["never"] is True)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


# --- reading a folder -----------------------------------------------------------------------------------------------


def read_contents(folder: Path) -> Contents:
    """Read every file of a folder that hpcrun may use, each once. Links are not followed.

    Raises:
        ProfileError: there are more files than a user could check.
    """
    files: dict[str, bytes] = {}
    scan = _Scan(folder, dangers=_dangers_to(folder))
    for name in scan.names():
        try:
            content, status = read_open(folder / name, MAX_BYTES, follow=False)
        except OSError as error:
            scan.skipped.append(f"{name} ({'a link' if os.path.islink(folder / name) else error.strerror})")
            continue
        if len(content) > MAX_BYTES:
            scan.skipped.append(f"{name} (larger than {MAX_BYTES // 1000} kB)")
            continue
        if danger := danger_in(folder / name, status):
            scan.dangers.append(danger)
        files[name] = content
    return Contents(files, tuple(scan.skipped), tuple(scan.dangers))


def dangers_on_disk(folder: Path) -> tuple[str, ...]:
    """Return how other users could write to a folder, or to the files that hpcrun reads in it; links are followed.

    A file that does not exist, or cannot be checked, is no danger: it cannot be read either.
    """
    if not os.path.lexists(folder):
        return ()
    dangers = _dangers_to(folder)
    for start in (*FILES, *(tree for tree, _ in TREES)):
        for path in _all_below(folder / start):
            dangers += _dangers_to(path, way=False)
    return tuple(dangers)


def _all_below(path: Path) -> Iterator[Path]:
    yield path
    for top, folders, files in os.walk(path):
        yield from (Path(top, name) for name in (*folders, *files))


def _dangers_to(path: Path, *, way: bool = True) -> list[str]:
    try:
        status = path.lstat()
        danger = danger_to(path) if way or stat.S_ISLNK(status.st_mode) else danger_in(path, status)
    except OSError:
        return []
    return [danger] if danger else []


@dataclass(slots=True)
class _Scan:
    """A walk through a folder, which stops if there are more entries than a user could check."""

    folder: Path
    skipped: list[str] = field(default_factory=list)
    dangers: list[str] = field(default_factory=list)
    entries: int = 0  # the number of files and folders so far, with those that hpcrun does not read

    def names(self) -> Iterator[str]:
        """Yield the name of each file that hpcrun would read."""
        yield from (name for name in FILES if os.path.lexists(self.folder / name))
        for tree, suffix in TREES:
            yield from self._below(tree, suffix)

    def _below(self, name: str, suffix: str) -> Iterator[str]:
        try:
            status = (self.folder / name).lstat()
            if not stat.S_ISDIR(status.st_mode):
                self.skipped.append(f"{name} ({'a link' if stat.S_ISLNK(status.st_mode) else 'not a folder'})")
                return
            entries = self._entries(name)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.skipped.append(f"{name} ({error.strerror})")
            return
        if danger := danger_in(self.folder / name, status):
            self.dangers.append(danger)
        for entry in entries:
            inner = f"{name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False) and inner.count("/") < _DEEPEST:
                yield from self._below(inner, suffix)
            elif entry.name.endswith(suffix) or entry.is_symlink():  # a link is listed, but not read
                yield inner

    def _entries(self, name: str) -> list[os.DirEntry[str]]:
        with os.scandir(self.folder / name) as scan:
            entries = list(islice(scan, _MOST_ENTRIES - self.entries + 1))
        self.entries += len(entries)
        if self.entries > _MOST_ENTRIES:
            raise ProfileError(
                f"{self.folder} has more than {_MOST_ENTRIES} files and folders",
                hint="hpcrun does not read this folder",
            )
        return sorted(entries, key=lambda entry: entry.name)


def changes(trust: Trust | None, contents: Contents) -> dict[str, str]:
    """Return the differences from the trusted contents: name → ``new``, ``changed`` or ``removed``."""
    before, now = (trust.hashes if trust else {}), contents.hashes()
    differences = {name: "new" if name not in before else "changed" for name, digest in now.items()
             if before.get(name) != digest}  # fmt: skip
    return differences | {name: "removed" for name in before if name not in now}


_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Layer:
    """A folder of configuration, and whether it is used."""

    folder: Folder  # the folder to read from; withheld if it is not used
    warning: str | None = None  # a message about this, None if there is none
    contents: Contents | None = None  # the files that were read; None if no trust was needed
    trust: Trust | None = None  # the user's earlier answer
    refused: str | None = None  # why it cannot even be trusted
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
        warning = f"not used from {path}: {_named(contents.skipped)}" if contents.skipped else None
        return Layer(Folder(path, contents.files), warning, contents, trust)
    why = danger or ("it changed since you trusted it" if trust else "you have not trusted it")
    changed = [f"{name} ({difference})" for name, difference in differences.items()]
    named = _named(changed if trust else contents.files)
    way = f"chmod go-w, or hpcrun profile trust {path}" if danger else "to review and trust it: hpcrun profile trust"
    warning = f"{path} is not used: {why}: {named or _named(contents.skipped)} ({way})"
    return Layer(Folder(path, contents.files, withheld=why), warning, contents, trust, changes=differences)


def _refused(path: Path, why: str, contents: Contents | None = None) -> Layer:
    files = contents.files if contents else {}
    return Layer(Folder(path, files, withheld=why), f"{path} is not used: {why}", refused=why)


def _named(names: Iterable[str]) -> str:
    """Return names on one line; the name of a file is untrusted text."""
    words = ["".join(char if char.isprintable() else "?" for char in name) for name in names]
    return listed(words, _MOST_NAMED)
