"""The profile model as files show it: the mistakes in merged values, with their lines."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hpcrun.errors import UsageError, nearest
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.recognise_secrets import is_secret, secret_in_command, secret_kind
from hpcrun.job.text.units import error_words
from hpcrun.profiles.yaml_file import EXTEND, Key, Mistake, Origin, dotted, values_in

if TYPE_CHECKING:
    from hpcrun.job.profile_model import Profile


_MOST_SHOWN = 60
_KINDS = {"array": "list", "object": "mapping", "boolean": "bool"}
# The search for the nearest key takes time, and no user reads a thousand mistakes.
_MOST_EXPLAINED = 200


def check_values(
    path: Path, data: Mapping[str, Any], origins: Mapping[Key, Origin]
) -> tuple[Profile | None, list[Mistake]]:
    """Return the profile, or every mistake in its values.

    Args:
        path: the profile's own file; its name is the profile's.
        data: the values of the file, merged over those of the files that it extends.
        origins: where each value was written.
    """
    from pydantic import ValidationError

    from hpcrun.job.profile_model import Profile
    from hpcrun.job.resources.shape import check_gpu_type

    mistakes = _secret_mistakes(data, origins)
    if "name" in data:
        text = "remove the line: the file's name is the profile's name"
        mistakes.append(origins["name",].mistake(text, ("name",)))
    values = {name: value for name, value in data.items() if name not in ("name", "extends")}
    try:
        profile = Profile(name=path.stem, **values)
        if profile.gpu.type:
            check_gpu_type(profile, profile.gpu.type)
        return profile, mistakes
    except UsageError as error:
        key = ("gpu", "type")
        mistakes.append(origins[key].mistake(f"gpu.type: {error.message}; {error.hint}", key))
    except ValidationError as error:
        for detail in error.errors(include_url=False)[:_MOST_EXPLAINED]:
            mistakes.append(_explain(detail, path, origins))
    return None, mistakes


def known_keys(section: Key = ()) -> list[str]:
    """Return the allowed keys of a section of a profile.

    The list is empty if any key is allowed, as in ``env``.
    """
    keys: list[str] = []
    for schema in _schemas(section):
        keys += [name for name in schema.get("properties", {}) if not name.endswith(EXTEND)]
    return keys


def value_kinds(key: Key) -> set[str]:
    """Return the allowed kinds of a key's value: ``list``, ``mapping``, ``bool``.

    The set is empty for text and numbers. An unknown key has no kind: the check of the values
    reports it better.
    """
    types: set[str] = set()
    for schema in _schemas(key):
        allowed = schema.get("type", ())
        types |= {allowed} if isinstance(allowed, str) else set(allowed)
    return {kind for name, kind in _KINDS.items() if name in types}


@cache
def _schemas(key: Key) -> list[dict[str, Any]]:
    """Return the JSON Schemas of a key's value, one for each form of the value.

    An unknown key has none.
    """
    from hpcrun.profiles.file_schemas import profile_schema

    schema = profile_schema()
    if not key:
        return [schema]
    forms: list[dict[str, Any]] = []
    for section in _schemas(key[:-1]):
        value = section.get("properties", {}).get(key[-1]) or _value_of_any_name(section)
        for form in value.get("anyOf", [value]):
            if "$ref" in form:
                forms.append(schema["$defs"][form["$ref"].rpartition("/")[2]])
            else:
                forms.append(form)
    return forms


def _value_of_any_name(section: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the values under the site's own names, as in ``gpu.types``.

    A section without such values has an empty schema.
    """
    for schema in section.get("patternProperties", {}).values():
        if schema:
            return cast(dict[str, Any], schema)
    return section.get("additionalProperties") or {}


def _explain(detail: Any, path: Path, origins: Mapping[Key, Origin]) -> Mistake:
    key: Key = ()
    for step in detail["loc"]:  # pydantic adds its own words about unions and validators
        if (*key, str(step)) not in origins:
            break
        key = (*key, str(step))
    name = dotted(key) or str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        text = f"unknown key {name!r}{_known_instead(key)}"
    else:
        text = f"{name}: {error_words(detail)}"
        if detail["type"] != "value_error" and detail["loc"][0] != "env":  # it may be a secret
            given = HIDER.hide(repr(detail["input"]))
            if len(given) > _MOST_SHOWN:
                given = f"{given[:_MOST_SHOWN]}..."
            text += f", not {given}"
    where = origins.get(key)
    if where is None:
        return Mistake(path, None, text, key)
    return where.mistake(text, key)


def _known_instead(key: Key) -> str:
    """Return what else an unknown key could be, as the end of a message."""
    if not key:
        return ""
    section = key[:-1]
    known = known_keys(section)
    close = nearest(key[-1], known)
    if close:
        return f"; did you mean {dotted((*section, close))!r}?"
    if section and known:
        return f"; there are: {', '.join(known)}"
    return ""


def _secret_mistakes(data: Mapping[str, Any], origins: Mapping[Key, Origin]) -> list[Mistake]:
    """Return a mistake for every value of a profile that holds a secret.

    The messages do not contain the value: other users may read the file, and it may be in git.
    """
    listed = data.get("secrets")
    if isinstance(listed, list):
        named = frozenset(item for item in listed if isinstance(item, str))
    else:
        named = frozenset()
    mistakes = []
    for key, value in values_in(data):
        where = origins.get(key)
        if where is None or not isinstance(value, str):
            continue
        text = _secret_problem(key, value, named)
        if text:
            mistakes.append(where.mistake(f"{dotted(key)}: {text}", key))
    return mistakes


def _secret_problem(key: Key, value: str, named: frozenset[str]) -> str | None:
    if key[0] == "env" and len(key) == 2:
        if not is_secret(key[1], value, named):
            return None
        what = secret_kind(value) or "the value of a secret"
        return (
            f"holds {what}; remove the line, list the name under 'secrets', and export the "
            "variable where you submit"
        )
    if key[0] == "setup":
        kind = secret_in_command(value)
    else:
        kind = secret_kind(value)
    if kind is None:
        return None
    return (
        f"holds {kind}; list a variable under 'secrets', export it where you submit, and use "
        "$NAME here"
    )
