"""The shipped catalogue of variables: read piece by piece, since a job sets only a few."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from hpcrun.errors import ProfileError
from hpcrun.job.known_variables import Harmful, Kind, Values, Variable
from hpcrun.profiles.folder import shipped_folder
from hpcrun.profiles.yaml_file import parse_yaml

# A key at the left margin begins a piece, which ends at the next key.
_PIECE = re.compile(r"^(\w+):\n((?:[ \t#].*\n|\n)*)", re.MULTILINE)
_OTHERS = "others"
_TEXTS = ("meaning", "source", "default", "set_when", "trap", "instead", "hpcrun", "renamed_to", "since")
_KEYS = frozenset({*_TEXTS, "kind", "values", "off", "harmful"})


@dataclass(frozen=True)
class Catalogue(Mapping[str, Variable]):
    """Every variable that hpcrun knows, by name; each is read from its text on first use.

    Attributes:
        texts: name → the YAML of the variable.
        others: names that are correct, without a description.
    """

    path: Path
    texts: dict[str, str]
    others: frozenset[str]
    _read: dict[str, Variable] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Variable:
        if name not in self._read:
            self._read[name] = _variable(name, parse_yaml(self.texts[name], self.path).data[name], self.path)
        return self._read[name]

    def __contains__(self, name: object) -> bool:  # the inherited method would read it
        return name in self.texts

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def load_catalogue(path: Path | None = None) -> Catalogue:
    """Return the catalogue of variables; the shipped one unless a path is given.

    Raises:
        ProfileError: the file cannot be read.
    """
    path = path or shipped_folder("cluster_profiles") / "variables" / "variables.yaml"
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"the list of variables {path} cannot be read: {error}") from None
    texts = {match[1]: match[0] for match in _PIECE.finditer(text)}
    others = re.findall(r"^ +- (\w+)$", texts.pop(_OTHERS, ""), re.MULTILINE)
    return Catalogue(path, texts, frozenset(others))


def _variable(name: str, said: Any, path: Path) -> Variable:
    if unknown := set(said) - _KEYS:
        raise ProfileError(f"{path}: {name}: unknown key {min(unknown)!r}")
    try:
        texts = {key: str(said[key]) for key in _TEXTS if key in said}
        return Variable(
            name=name,
            kind=_kind(said["kind"]),
            values=_values(said.get("values", {})),
            off=tuple(said.get("off", ())),
            harmful=tuple(map(_harmful, said.get("harmful", ()))),
            **cast("dict[str, Any]", texts),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(f"{path}: {name}: {error}") from None


def _kind(said: str) -> Kind:
    if said not in get_args(Kind):
        raise ValueError(f"there is no kind {said!r}")
    return cast("Kind", said)


def _harmful(said: Any) -> Harmful:
    return Harmful(tuple(said.get("on", ())), said["values"], said["why"])


def _values(said: Any) -> Values:
    least, most = (None if end is None else int(end) for end in said.get("range", (None, None)))
    return Values(tuple(said.get("one_of", ())), least, most, said.get("pattern"))
