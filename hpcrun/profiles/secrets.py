"""Secrets in a profile: other users may read the file, and it may be in git, so it must not contain their values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcrun.job.secrets import is_secret, secret_in_command, secret_kind
from hpcrun.profiles.mistakes import Key, Mistake, Origin, dotted


def secret_mistakes(data: Mapping[str, Any], origins: Mapping[Key, Origin]) -> list[Mistake]:
    """Return a mistake for every value of a profile that holds a secret; the messages do not contain the value.

    Args:
        data: the merged values.
        origins: where each was written.
    """
    listed = data.get("secrets")
    named = frozenset(item for item in listed if isinstance(item, str)) if isinstance(listed, list) else frozenset()
    found = []
    for key, value in _texts(data, ()):
        text = _problem(key, value, named)
        if text and (where := origins.get(key)):
            found.append(Mistake(where.path, where.line, f"{dotted(key)}: {text}", key))
    return found


def _problem(key: Key, value: str, named: frozenset[str]) -> str | None:
    if key[0] == "env" and len(key) == 2:
        if not is_secret(key[1], value, named):
            return None
        kind = secret_kind(value) or "the value of a secret"
        return f"holds {kind}; remove the line, list the name under 'secrets', and export the variable where you submit"
    found = secret_in_command(value) if key[0] == "setup" else secret_kind(value)
    if found is None:
        return None
    return f"holds {found}; list a variable under 'secrets', export it where you submit, and use $NAME here"


def _texts(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    if isinstance(value, str) and key:
        yield key, value
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from _texts(inner, (*key, str(name)))
