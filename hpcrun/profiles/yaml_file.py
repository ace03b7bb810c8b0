"""Reading a YAML file so that every mistake, and every value, can be shown with its line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError

Key = tuple[str, ...]

_MAX_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written: a file and a line (counted from 1)."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A mapping read from a file, and the line of every key in it.

    Attributes:
        data: plain dicts, lists and scalars.
        origins: path of keys, such as ``("gpu", "type")`` → where it stands.
    """

    path: Path
    data: dict[str, Any]
    origins: dict[Key, Origin]


def read_yaml(path: Path) -> YamlFile:
    """Read one YAML file that holds a mapping.

    Raises:
        ProfileError: it cannot be read or parsed; the message says file and line.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise ProfileError(f"{path}: larger than {_MAX_BYTES // 1000} kB; that is not a profile")
        text = path.read_text("utf-8")
    except OSError as error:
        raise ProfileError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    return parse_yaml(text, path)


def parse_yaml(text: str, path: Path) -> YamlFile:
    """Parse YAML 1.2 text; ``path`` is for messages and origins.

    Raises:
        ProfileError: broken YAML, a duplicate key, a tag, or something other than a mapping of text keys.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        loaded = YAML(typ="rt", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ProfileError(f"{where}: {_first_line(error.problem or error)}", hint=_yaml_hint(text, mark)) from None
    except YAMLError as error:
        raise ProfileError(f"{path}: {_first_line(error)}") from None
    if loaded is None:
        return YamlFile(path, {}, {})
    if not isinstance(loaded, CommentedMap):
        raise ProfileError(f"{path}:1: a list of keys and values was expected, such as 'partition: gpu'")
    origins: dict[Key, Origin] = {}
    return YamlFile(path, _plain(loaded, (), path, origins), origins)


def _first_line(error: object) -> str:
    return str(error).strip().splitlines()[0]


def _yaml_hint(text: str, mark: Any) -> str | None:
    lines = text.splitlines()
    if mark and mark.line < len(lines) and "\t" in lines[mark.line]:
        return "YAML indents with spaces, not with tabs"
    return None


def _plain(value: Any, key: Key, path: Path, origins: dict[Key, Origin]) -> Any:
    """Turn ruamel's containers into plain ones, noting the line of every key."""
    tag = getattr(getattr(value, "tag", None), "value", None)
    if tag is not None:
        where = origins.get(key) or path
        raise ProfileError(f"{where}: the YAML tag {tag!r} is not allowed", hint="write the plain value")
    if isinstance(value, dict):
        plain: dict[str, Any] = {}
        for name, item in value.items():
            line = value.lc.key(name)[0] + 1  # type: ignore[attr-defined]
            if not isinstance(name, str):
                raise ProfileError(f"{path}:{line}: the key {name!r} is not text; put it in quotes")
            inner = (*key, name)
            origins[inner] = Origin(path, line)
            plain[name] = _plain(item, inner, path, origins)
        return plain
    if isinstance(value, list):
        return [_plain(item, key, path, origins) for item in value]
    for kind in (bool, int, float, str):  # ruamel's scalars are subclasses that remember their spelling
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    return str(value)  # a date
