"""Load a profile: find the file by name, follow ``extends``, merge, and validate.

The origin of every value is kept.
"""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.errors import ProfileError, did_you_mean
from hpcrun.profiles.folders import Folder, Source, folders_of
from hpcrun.profiles.validate import check_values
from hpcrun.profiles.yaml_file import (
    EXTEND,
    Key,
    Mistake,
    MistakesError,
    Origin,
    YamlFile,
    dotted,
    parse_yaml,
    read_own_text,
    values_in,
)

if TYPE_CHECKING:  # the import of pydantic takes too long for shell completion
    from hpcrun.job.profile_model import Profile

SUFFIX = ".yaml"
_DEEPEST = 50
TRUST = "hpcrun profile trust"
WAYS_ROUND = f"to review and trust the files: {TRUST}"


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A validated profile, and where each of its values was written."""

    profile: Profile
    path: Path
    origins: dict[Key, Origin]  # path of keys (and of positions in lists) → file and line
    data: dict[str, Any] = field(default_factory=dict)  # the merged values as written


@dataclass(frozen=True, slots=True)
class _Merged:
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Key, Origin] = field(default_factory=dict)


def profile_names(folders: Sequence[Source]) -> dict[str, Path]:
    """Return every profile that a user can name → its file; an earlier folder hides a later one.

    Files whose names start with ``_`` are parts for ``extends``, not profiles.
    """
    files: dict[str, Path] = {}
    for folder in folders_of(folders):
        for name in folder.names(SUFFIX):
            if "/" not in name and not name.startswith(("_", ".")):
                files.setdefault(name.removesuffix(SUFFIX), folder.path / name)
    return files


def is_path(name: str) -> bool:
    """Whether a word names a profile by its file."""
    return "/" in name or name.endswith((".yaml", ".yml"))


def find_profile(name: str, folders: Sequence[Source]) -> Path:
    """Return the file of a profile, given its name or a path to the file.

    Raises:
        ProfileError: there is no such profile or file, or hpcrun may not use the file.
    """
    if is_path(name):
        path = Path(name)
        if not os.path.isfile(path):
            raise ProfileError(
                f"profile {name}: no such file",
                hint="hpcrun profile list shows the profiles by name",
            )
        return path
    holding = [folder for folder in folders_of(folders) if folder.holds(f"{name}{SUFFIX}")]
    # another profile of this name, in a lower layer, is not the requested one
    if holding and holding[0].withheld:
        hint = WAYS_ROUND
        if len(holding) > 1:
            hint += f"; to use the other: {TRUST} --never"
        problem = f"profile {name!r} is {holding[0].path / name}{SUFFIX}, and {holding[0].withheld}"
        raise ProfileError(problem, hint=hint)
    names = profile_names(folders)
    if name not in names:
        for folder in folders_of(folders):
            path = folder.path / f"{name}{SUFFIX}"
            if folder.never and "\0" not in name and os.path.isfile(path):
                raise ProfileError(
                    f"profile {name!r} is {path}, in a folder that you set to never use",
                    hint="to undo: hpcrun profile trust --revoke",
                )
        others = f"hpcrun profile list shows all; hpcrun profile new {shlex.quote(name)} makes it"
        raise ProfileError(f"there is no profile {name!r}", hint=did_you_mean(name, names, others))
    return names[name]


def load_profile(name: str, folders: Sequence[Source]) -> LoadedProfile:
    """Load a profile by path, or by name from the first folder that has the profile.

    Raises:
        ProfileError: the profile has mistakes; the error lists all of them.
    """
    path = find_profile(name, folders)
    return _load(parse_yaml(_text(path, folders), path), folders)


def _text(path: Path, folders: Sequence[Source]) -> str:
    """Return the text of a profile: the trusted contents if it is in a folder with contents."""
    absolute = Path(os.path.abspath(path))
    for folder in folders_of(folders):
        if not absolute.is_relative_to(folder.path):
            continue
        name = absolute.relative_to(folder.path).as_posix()
        if folder.has(name):
            return folder.text(name)
    return read_own_text(path)


def load_text(text: str, path: Path, folders: Sequence[Source]) -> LoadedProfile:
    """Load a profile from a possible new text of the file ``path``.

    Whatever ``load_profile`` refuses is refused here too.
    """
    return _load(parse_yaml(text, path), folders)


def _load(file: YamlFile, folders: Sequence[Source]) -> LoadedProfile:
    merger = _Merger(folders_of(folders))
    merged = merger.merge_file(file, chain=())
    merged.data.pop("extends", None)
    profile, mistakes = check_values(file.path, merged.data, merged.origins)
    mistakes = [*merger.mistakes, *mistakes]
    if mistakes or profile is None:
        raise MistakesError(
            mistakes, hint=merger.hint or "hpcrun profile show a100 shows a valid profile"
        )
    return LoadedProfile(profile, file.path, merged.origins, merged.data)


class _Merger:
    """Merges a file with the files that it extends.

    All mistakes are collected, to report them at once.
    """

    def __init__(self, folders: Sequence[Folder]) -> None:
        self.folders = folders
        self.mistakes: list[Mistake] = []
        self.hint: str | None = None
        # or twenty files that each extend one twice would take forever
        self._done: dict[Path, _Merged] = {}

    def merge_file(self, file: YamlFile, chain: tuple[Path, ...]) -> _Merged:
        chain = (*chain, file.path)
        merged = _Merged()
        for base in self._bases(file):
            inherited = self._base(base, file, ("extends",), chain)
            if inherited is not None:
                self._merge(merged, inherited)
        self._merge(merged, self._with_cards(file, chain))
        return merged

    def _with_cards(self, file: YamlFile, chain: tuple[Path, ...]) -> _Merged:
        """Return a file's own values, with the cards of the parts that the file names.

        A file names a part with ``card: gpu/a100``.
        """
        merged = _Merged(file.data, file.origins)
        of_types = ("gpu", "types")
        for key in [
            key
            for key in file.origins
            if key[-1] == "card" and (len(key) == 1 or key[:-2] == of_types)
        ]:
            section: Any = merged.data
            for step in key[:-1]:
                section = section[step] if isinstance(section, dict) else None
            if not isinstance(section, dict) or not isinstance(section["card"], str):
                continue
            part = self._base(section.pop("card"), file, key, chain)
            if part is not None:
                section["card"] = part.data.get("card", {})
                of_card = {
                    (*key, *known[1:]): at
                    for known, at in part.origins.items()
                    if known[0] == "card"
                }
                merged.origins.update(of_card)
        return merged

    def _base(self, base: str, file: YamlFile, key: Key, chain: tuple[Path, ...]) -> _Merged | None:
        """Return the merged values of a file that another file names under a key.

        Returns None after a mistake.
        """
        match = self._find_base(base, file, key)
        if match is None:
            return None
        folder, name = match
        path = folder.path / name
        if path in chain:
            loop = " → ".join(step.stem for step in (*chain, path))
            self._mistake(file.origins[key], key, f"{dotted(key)!r} is circular: {loop}")
            return None
        if len(chain) > _DEEPEST:
            self._mistake(
                file.origins[key], key, f"{dotted(key)!r} goes through more than {_DEEPEST} files"
            )
            return None
        if path not in self._done:
            try:
                self._done[path] = self.merge_file(parse_yaml(folder.text(name), path), chain)
            except MistakesError as error:
                self.mistakes += error.mistakes
                self.hint = self.hint or error.hint
                self._done[path] = _Merged()
        return self._done[path]

    def _mistake(self, origin: Origin, key: Key, text: str) -> None:
        mistake = origin.mistake(text, key)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def _bases(self, file: YamlFile) -> list[str]:
        bases = file.data.get("extends")
        if bases is None:
            bases = []
        elif isinstance(bases, str):
            bases = [bases]
        if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
            text = "'extends' must be the name of a profile, or a list of names"
            self._mistake(file.origins[("extends",)], ("extends",), text)
            return []
        return bases

    def _find_base(self, base: str, file: YamlFile, key: Key) -> tuple[Folder, str] | None:
        searched = list(self.folders)
        absolute = Path(os.path.abspath(file.path))
        name = f"{base}{SUFFIX}"
        for place, folder in enumerate(searched):
            if folder.path / name == absolute:
                # a user's a100 that extends a100, or gpu/a100 that extends gpu/a100, means the file
                # that it hides
                searched = searched[place + 1 :]
                break
        for folder in searched:
            if folder.has(name):
                return folder, name
        known: list[str] = []
        for folder in self.folders:
            known += [file_name.removesuffix(SUFFIX) for file_name in folder.names(SUFFIX)]
        self.hint = did_you_mean(base, known, "hpcrun profile path lists the searched folders")
        self._mistake(
            file.origins[key], key, f"{dotted(key)!r} names {base!r}, which does not exist"
        )
        return None

    def _merge(self, under: _Merged, over: _Merged, key: Key = ()) -> None:
        """Merge one file's values over another's.

        Mappings are merged, ``x+`` extends a list, null removes a value, and other values replace.
        """
        target = under.data
        source = over.data
        for step in key:
            target = target[step]
            source = source[step]
        for name, value in source.items():
            here = (*key, name)
            if name.endswith(EXTEND):
                self._extend(under, over, here, target, source)
            elif isinstance(value, dict):
                if not isinstance(target.get(name), dict):
                    _drop_origins(under, target, here)
                    target[name] = {}
                under.origins[here] = over.origins[here]
                self._merge(under, over, here)
            else:
                _drop_origins(under, target, here)
                if value is None:
                    target.pop(name, None)
                    continue
                target[name] = value
                for known, _ in values_in(value, here):
                    under.origins[known] = over.origins[known]

    def _extend(
        self,
        under: _Merged,
        over: _Merged,
        here: Key,
        target: dict[str, Any],
        source: dict[str, Any],
    ) -> None:
        plain = (*here[:-1], here[-1].removesuffix(EXTEND))
        more = source[here[-1]]
        old = target.get(plain[-1], [])
        if not isinstance(more, list):
            text = f"{dotted(here)}: must be a list of values to add to {dotted(plain)!r}"
        elif plain[-1] in source:
            text = f"{dotted(here)}: {dotted(plain)!r} is also in this file; write one list"
        elif not isinstance(old, list):
            text = f"{dotted(here)}: {dotted(plain)!r} is not a list"
        else:
            target[plain[-1]] = [*old, *more]
            under.origins.setdefault(plain, over.origins[here])
            for number, value in enumerate(more):
                for known, _ in values_in(value, (*here, str(number))):
                    moved = (*plain, str(len(old) + number), *known[len(here) + 1 :])
                    under.origins[moved] = over.origins[known]
            return
        self._mistake(over.origins[here], here, text)


def _drop_origins(merged: _Merged, section: dict[str, Any], key: Key) -> None:
    if key[-1] in section:
        for known, _ in values_in(section[key[-1]], key):
            merged.origins.pop(known, None)
