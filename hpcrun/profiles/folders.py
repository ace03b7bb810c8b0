"""Folders of profiles, templates and rules: shipped folders, safe folders and trusted folders.

A safe folder is one that no other user can write. The shipped folders are inside an installed
wheel, or beside the package in a checkout. A clone's ``.hpcrun`` contains templates and set-up
commands that run as the user who submits there. Ownership is no help, since a user owns all files
of a clone. So the files are used only if each has the contents that the user has seen and trusted;
hpcrun uses the bytes that it has hashed, and does not read a file again.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from hpcrun.errors import ProfileError
from hpcrun.files.ownership import danger_in, danger_to, read_checked, read_open
from hpcrun.files.writing import make_folder
from hpcrun.job.text.units import listed
from hpcrun.profiles.yaml_file import (
    MAX_BYTES,
    decoded_text,
    read_own_text,
    read_text,
    replace_text,
    saving,
)

_PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Folder:
    """Files by their names, which are paths below the folder such as ``gpu/a100.yaml``."""

    path: Path
    # the files that were read; then the folder has no other files. None for the files on disk
    contents: Mapping[str, bytes] | None = None
    # whether a file on disk is refused if another user could have written it; not for hpcrun's own
    # files
    checked: bool = True
    withheld: str | None = None  # why none of its files may be used; then its files have only names
    never: bool = False  # the user has chosen never to use it; then it has no contents

    def below(self, name: str) -> Folder:
        """Return the subfolder of this name."""
        if self.contents is None:
            return replace(self, path=self.path / name)
        start = f"{name}/"
        inner = {}
        for file, content in self.contents.items():
            if file.startswith(start):
                inner[file.removeprefix(start)] = content
        return replace(self, path=self.path / name, contents=inner)

    def names(self, suffix: str) -> list[str]:
        """Return the sorted names of all files with this suffix, also in subfolders.

        A folder that is withheld gives no names.
        """
        if self.withheld:
            return []
        if self.contents is not None:
            return sorted(name for name in self.contents if name.endswith(suffix))
        files = [path for path in self.path.rglob(f"*{suffix}") if _is_file(path)]
        return sorted(path.relative_to(self.path).as_posix() for path in files)

    def has(self, name: str) -> bool:
        """Whether there is a usable file of this name."""
        return not self.withheld and self.holds(name)

    def holds(self, name: str) -> bool:
        """Whether there is a file of this name, usable or not."""
        if "\0" in name or name.startswith("/") or ".." in PurePosixPath(name).parts:
            return False  # a name cannot lead out of the folder
        if self.contents is None:
            return _is_file(self.path / name)
        return name in self.contents

    def text(self, name: str) -> str:
        """Return the text of a file.

        Raises:
            ProfileError: the file is no text, or another user could have written the file.
        """
        path = self.path / name
        if self.contents is not None:
            return decoded_text(self.contents[name], path)
        return read_own_text(path) if self.checked else read_text(path)


def _is_file(path: Path) -> bool:
    """Return whether there is a file, or an entry whose error must be reported.

    Such an entry is a pipe, a device or a broken link.
    """
    return os.path.lexists(path) and not os.path.isdir(path)


def shipped_folder(kind: str) -> Path:
    """Return the folder of the shipped ``templates`` or ``cluster_profiles``.

    A wheel has them in ``hpcrun/shipped`` (pyproject's force-include); an editable install and a
    plain checkout have them at the top level.
    """
    installed = _PACKAGE / "shipped" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def shipped(kind: str) -> Folder:
    """Return the shipped ``templates`` or ``cluster_profiles``.

    The shipped folders are as trustworthy as hpcrun itself.
    """
    return Folder(shipped_folder(kind), checked=False)


# a place of files: a path is a folder on disk, whose files are checked when they are read
Source = Folder | Path


def load_templates(folders: Sequence[Source]) -> dict[str, tuple[str, str]]:
    """Return template name (path below its folder) → source and file.

    An earlier folder hides a later one.

    Raises:
        ProfileError: a template cannot be read, is no text, or another user could have written it.
    """
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
        """Return the answer about a folder, by the folder's real path.

        Returns None if there is no answer, or if the answer cannot be read.
        """
        trust = self._read(self._file(path))
        if trust and trust.path == Path(os.path.realpath(path)):
            return trust
        return None

    def save(self, trust: Trust) -> None:
        """Save the answer about a folder, or raise ProfileError: it cannot be written."""
        with saving(self.root):
            make_folder(self.root, mode=0o700)
        record = {
            "schema": SCHEMA,
            "path": str(trust.path),
            "never": trust.never,
            "files": dict(trust.hashes),
        }
        replace_text(self._file(trust.path), json.dumps(record, indent=1) + "\n", mode=0o600)

    def forget(self, path: Path) -> bool:
        """Delete the answer about a folder, and return whether there was one."""
        file = self._file(path)
        is_there = file.exists()
        with saving(self.root):
            file.unlink(missing_ok=True)
        return is_there

    def all(self) -> list[Trust]:
        """Return all answers, sorted by path.

        Raises:
            ProfileError: another user could have written an answer.
        """
        answers = [self._read(file) for file in self.root.glob("*.json")]
        known = [trust for trust in answers if trust is not None]
        return sorted(known, key=lambda trust: trust.path)

    @staticmethod
    def _read(file: Path) -> Trust | None:
        try:
            record: Any = json.loads(read_checked(file, MAX_BYTES))
            if record["schema"] != SCHEMA:
                return None
            hashes = {str(name): str(digest) for name, digest in record["files"].items()}
            return Trust(Path(record["path"]), hashes, never=record["never"] is True)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None

    def _file(self, path: Path) -> Path:
        real = os.fsencode(os.path.realpath(path))
        return self.root / f"{_sha256(real)[:40]}.json"


# --- reading a folder ----------------------------------------------------------------------------


def read_contents(folder: Path) -> Contents:
    """Read every file of a folder that hpcrun may use, each once, without following links."""
    files: dict[str, bytes] = {}
    skipped: list[str] = []
    dangers = _dangers_to(folder)
    for name in _names(folder, skipped, dangers):
        path = folder / name
        try:
            content, status = read_open(path, MAX_BYTES, follow=False)
        except OSError as error:
            why = "a link" if path.is_symlink() else error.strerror
            skipped.append(f"{name} ({why})")
            continue
        if len(content) > MAX_BYTES:
            skipped.append(f"{name} (larger than {MAX_BYTES // 1000} kB)")
            continue
        danger = danger_in(path, status)
        if danger:
            dangers.append(danger)
        files[name] = content
    return Contents(files, tuple(skipped), tuple(dangers))


def _names(folder: Path, skipped: list[str], dangers: list[str]) -> Iterator[str]:
    """Yield the names of the files that hpcrun would read, and of links.

    Raises:
        ProfileError: there are more files and folders than hpcrun could check.
    """
    yield from (name for name in FILES if os.path.lexists(folder / name))
    number = 0  # of files and folders so far, with those that hpcrun does not read

    def below(name: str, suffix: str) -> Iterator[str]:
        nonlocal number
        try:
            status = (folder / name).lstat()
            if not stat.S_ISDIR(status.st_mode):
                kind = "a link" if stat.S_ISLNK(status.st_mode) else "not a folder"
                skipped.append(f"{name} ({kind})")
                return
            with os.scandir(folder / name) as scan:
                entries = list(islice(scan, _MOST_ENTRIES - number + 1))
        except FileNotFoundError:
            return
        except OSError as error:
            skipped.append(f"{name} ({error.strerror})")
            return
        number += len(entries)
        if number > _MOST_ENTRIES:
            raise ProfileError(
                f"{folder} has more than {_MOST_ENTRIES} files and folders",
                hint="hpcrun does not read this folder",
            )
        danger = danger_in(folder / name, status)
        if danger:
            dangers.append(danger)
        for entry in sorted(entries, key=lambda entry: entry.name):
            inner = f"{name}/{entry.name}"
            if entry.is_dir(follow_symlinks=False) and inner.count("/") < _DEEPEST:
                yield from below(inner, suffix)
            elif entry.name.endswith(suffix) or entry.is_symlink():
                # a link is listed, but not read
                yield inner

    for tree, suffix in TREES:
        yield from below(tree, suffix)


def dangers_on_disk(folder: Path) -> tuple[str, ...]:
    """Return how other users could write to a folder, or to the files that hpcrun reads there.

    Links are followed. A file that does not exist, or cannot be checked, is no danger: hpcrun
    cannot read such a file either.
    """
    if not os.path.lexists(folder):
        return ()
    starts = [folder / name for name in FILES]
    starts += [folder / tree for tree, _ in TREES]
    inner = []
    for start in starts:
        for top, folders, files in os.walk(start):
            inner += [Path(top, name) for name in folders + files]
    dangers = _dangers_to(folder)
    for path in starts + inner:
        dangers += _dangers_to(path, way=False)
    return tuple(dangers)


def _dangers_to(path: Path, *, way: bool = True) -> list[str]:
    try:
        status = path.lstat()
        if way or stat.S_ISLNK(status.st_mode):
            danger = danger_to(path)
        else:
            danger = danger_in(path, status)
    except OSError:
        return []
    return [danger] if danger else []


def changes(trust: Trust | None, contents: Contents) -> dict[str, str]:
    """Return the differences from the trusted contents.

    The differences are name → ``new``, ``changed`` or ``removed``.
    """
    before = trust.hashes if trust else {}
    now = contents.hashes()
    differences = {}
    for name, digest in now.items():
        if name not in before:
            differences[name] = "new"
        elif before[name] != digest:
            differences[name] = "changed"
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
    """Return the layer of the user's or the site's folder.

    The folder is used if no other user could have written it, or if it is trusted.
    """
    dangers = dangers_on_disk(path)
    if dangers:
        return _judged(path, store, dangers[0])
    if _is_closed(path):
        return _refused(path, "you may not read it")
    return Layer(Folder(path))


def _is_closed(path: Path) -> bool:
    """Return whether the rights of a folder, or of one above it, keep this user out."""
    try:
        os.stat(path / ".")
        os.listdir(path)
    except PermissionError:
        return True
    except OSError:
        return False  # it is not there
    return False


def project_layer(path: Path, store: TrustStore) -> Layer:
    """Return the layer of a project's folder.

    The folder is used if its contents are trusted, whatever its owner and its rights.
    """
    return _judged(path, store, None)


def _judged(path: Path, store: TrustStore, danger: str | None) -> Layer:
    if os.path.islink(path):
        return _refused(path, danger or "it is a symbolic link")
    try:
        contents = read_contents(path)
        trust = store.find(path)
    except ProfileError as error:
        return _refused(path, error.message)
    # the contents may be another user's; root uses only files of root
    if os.geteuid() == 0 and contents.dangers:
        why = f"root uses only files writable by root alone: {contents.dangers[0]}"
        return _refused(path, why, contents)
    if trust and trust.never:
        return Layer(Folder(path, {}, never=True), contents=contents, trust=trust)
    if not contents.files and not contents.skipped:
        return Layer(Folder(path, {}), contents=contents, trust=trust)
    differences = changes(trust, contents)
    if trust and not differences:
        return _trusted(path, contents, trust)
    return _not_trusted(path, danger, contents, trust, differences)


def _trusted(path: Path, contents: Contents, trust: Trust) -> Layer:
    warning = None
    if contents.skipped:
        warning = f"not used from {path}: {_named(contents.skipped)}"
    return Layer(Folder(path, contents.files), warning, contents, trust)


def _not_trusted(
    path: Path,
    danger: str | None,
    contents: Contents,
    trust: Trust | None,
    differences: dict[str, str],
) -> Layer:
    if trust:
        why = "it changed since you trusted it"
        named = _named(f"{name} ({difference})" for name, difference in differences.items())
    else:
        why = "you have not trusted it"
        named = _named(contents.files)
    way = "to review and trust it: hpcrun profile trust"
    if danger:
        why = danger
        way = f"chmod go-w, or hpcrun profile trust {shlex.quote(str(path))}"
    warning = f"{path} is not used: {why}: {named or _named(contents.skipped)} ({way})"
    folder = Folder(path, contents.files, withheld=why)
    return Layer(folder, warning, contents, trust, changes=differences)


def _refused(path: Path, why: str, contents: Contents | None = None) -> Layer:
    folder = Folder(path, contents.files if contents else {}, withheld=why)
    return Layer(folder, f"{path} is not used: {why}", refused=why)


def _named(names: Iterable[str]) -> str:
    """Return names on one line; the name of a file is untrusted text."""
    return listed([_printable(name) for name in names], _MOST_NAMED)


def _printable(name: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in name)
