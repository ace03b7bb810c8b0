"""trust: the files of a configuration folder, and the user's answer about them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcrun.errors import NotFoundError, ProfileError, UsageError
from hpcrun.profiles.folders import (
    Contents,
    Layer,
    Trust,
    TrustStore,
    changes,
    project_layer,
    read_contents,
)
from hpcrun.profiles.yaml_file import decoded_text, parse_yaml

# What a file of each kind can do once it is used. Of profiles and config.yaml the keys are shown,
# too.
_POWERS = (
    ("config.yaml", "chooses profile, runs folder, account and time, and where messages go"),
    ("rules.yaml", "patterns that hpcrun searches for in logs"),
    ("templates/", "writes the script: any command, in every job"),
    (
        "profiles/",
        "set-up commands, Python, containers, variables, messages, options of sbatch, srun, "
        "torchrun",
    ),
)

_PROFILE_POWERS = {
    "setup": "set-up commands",
    "modules": "modules",
    "python": "Python",
    "env": "variables",
    "container": "container image",
    "sbatch": "sbatch options",
    "srun": "srun options",
    "torchrun": "torchrun options",
    "notify": "messages to others",
}


@dataclass(frozen=True, slots=True)
class FileToTrust:
    """One file of a folder that may be trusted."""

    name: str
    state: str  # ``trusted``, ``new``, ``changed`` or ``removed``
    size_bytes: int
    keys: tuple[str, ...]  # the first keys of a YAML file, in its order; empty for a template
    power: str  # what such a file can do


@dataclass(frozen=True, slots=True)
class Question:
    """A folder about which the user is asked."""

    path: Path
    files: tuple[FileToTrust, ...]
    contents: Contents  # its files as they were read; these contents are trusted, and no later ones
    # how other users could change it; then only the trusted contents are used
    dangers: tuple[str, ...]
    trusted: bool  # whether it is trusted as it is


@dataclass(frozen=True, slots=True)
class TrustRow:
    """The user's answer about a folder.

    ``state`` is ``trusted``, ``changed``, ``never`` or ``gone``.
    """

    path: Path
    state: Literal["trusted", "changed", "never", "gone"]
    files: int


def folder_to_trust(typed: Path | None, layers: Sequence[Layer]) -> Path:
    """Return the folder to trust.

    The folder is the typed one, or the ``.hpcrun`` of the typed project; without a typed folder,
    the first that is not used here.

    Raises:
        NotFoundError: the typed folder does not exist, or there is nothing to trust here.
    """
    if typed is None:
        for layer in sorted(layers, key=lambda layer: layer.folder.withheld is None):
            if layer.contents is not None or layer.refused:
                return layer.path
        raise NotFoundError(
            "nothing to trust here", hint="hpcrun profile trust FOLDER names a project"
        )
    inner = typed / ".hpcrun"
    if os.path.lexists(inner) and typed.name != ".hpcrun":
        path = inner
    else:
        path = typed
    if not os.path.lexists(path):
        raise NotFoundError(f"{path}: no such folder", hint="name a project, or its .hpcrun")
    return path


def look_into(path: Path, store: TrustStore) -> Question:
    """Return what the user must see before trusting a folder.

    Raises:
        ProfileError: the folder cannot be trusted.
        NotFoundError: the folder has no files for hpcrun.
    """
    layer = project_layer(path, store)
    if layer.refused or layer.contents is None:
        raise ProfileError(
            f"{path} cannot be trusted: {layer.refused}",
            hint="copy the files you want to use to your own folder, such as ~/.config/hpcrun",
        )
    if not layer.contents.files:
        raise NotFoundError(f"{path} has no files for hpcrun")
    contents = layer.contents
    trust = layer.trust
    if trust and trust.never:
        trust = None
    differences = changes(trust, contents)
    files = []
    for name in sorted({*contents.files, *differences}):
        file_state = differences.get(name, "trusted")
        files.append(_file(name, contents.files.get(name), path, file_state))
    is_trusted = trust is not None and not differences
    return Question(path, tuple(files), contents, contents.dangers, is_trusted)


def _file(name: str, content: bytes | None, folder: Path, state: str) -> FileToTrust:
    if content is None:
        return FileToTrust(name, state, 0, (), "")
    power = next(power for start, power in _POWERS if name.startswith(start))
    keys = _keys(name, content, folder)
    if name.startswith("profiles/") and keys:  # a file that cannot be read may contain anything
        present = {key.removesuffix("+") for key in keys}
        powers = [words for key, words in _PROFILE_POWERS.items() if key in present]
        power = ", ".join(powers) or "values of a job"
    return FileToTrust(name, state, len(content), keys, power)


def _keys(name: str, content: bytes, folder: Path) -> tuple[str, ...]:
    if not name.endswith(".yaml"):
        return ()
    try:
        return tuple(parse_yaml(decoded_text(content, folder / name), folder / name).data)
    except ProfileError:
        return ()


def remember(path: Path, contents: Contents | None, store: TrustStore) -> None:
    """Save that the user trusts a folder with the contents that were shown.

    Without contents, hpcrun never uses the folder, and asks no question about it.
    """
    hashes = contents.hashes() if contents else {}
    store.save(Trust(Path(os.path.realpath(path)), hashes, never=contents is None))


def revoke(path: Path, store: TrustStore) -> None:
    """Forget the answer about a folder.

    Raises:
        UsageError: there is no answer about the folder.
    """
    if not store.forget(path):
        raise UsageError(
            f"{path} is not trusted", hint="hpcrun profile trust --list shows the trusted projects"
        )


def list_trust(store: TrustStore) -> list[TrustRow]:
    """Return all answers, by path."""
    return [TrustRow(trust.path, _state(trust), len(trust.hashes)) for trust in store.all()]


def _state(trust: Trust) -> Literal["trusted", "changed", "never", "gone"]:
    if not trust.path.is_dir():
        return "gone"
    if trust.never:
        return "never"
    try:
        if changes(trust, read_contents(trust.path)):
            return "changed"
        return "trusted"
    except (ProfileError, OSError):
        return "changed"


def keep_trust(path: Path, layers: Sequence[Layer], store: TrustStore) -> None:
    """Trust a file that the user has just written with hpcrun, in a folder that was trusted before.

    ``layers`` are those before the change: a folder that was not used before stays unused.
    """
    target = Path(os.path.realpath(path))
    for layer in layers:
        if layer.trust is None or layer.trust.never or layer.folder.withheld:
            continue
        if layer.contents is None or layer.contents.dangers:  # the file may have changed already
            continue
        folder = Path(os.path.realpath(layer.path))
        if not target.is_relative_to(folder):
            continue
        name = target.relative_to(folder).as_posix()
        digest = read_contents(layer.path).hashes().get(name)
        if digest:
            store.save(Trust(folder, {**layer.trust.hashes, name: digest}))
