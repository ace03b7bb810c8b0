"""Loading a profile: find it by name, follow ``extends``, merge, validate; and every value's origin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from hpcrun.errors import ProfileError, nearest
from hpcrun.job.profile import Profile
from hpcrun.profiles.yaml_file import Key, Origin, YamlFile, read_yaml

SUFFIX = ".yaml"


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A validated profile, and where each of its values was written."""

    profile: Profile
    path: Path
    origins: dict[Key, Origin]


@dataclass(frozen=True, slots=True)
class _Merged:
    data: dict[str, Any] = field(default_factory=dict)
    origins: dict[Key, Origin] = field(default_factory=dict)


def profile_names(folders: Sequence[Path]) -> dict[str, Path]:
    """Return every profile a person can name → its file; an earlier folder hides a later one.

    Files in subfolders, and files whose name starts with ``_``, are parts for ``extends``, not profiles.
    """
    found: dict[str, Path] = {}
    for folder in folders:
        for path in sorted(folder.glob(f"*{SUFFIX}")):
            if not path.name.startswith("_"):
                found.setdefault(path.stem, path)
    return found


def find_profile(name: str, folders: Sequence[Path]) -> Path:
    """Return the file of a profile, given its name or a path to it.

    Raises:
        ProfileError: there is none; the message names the nearest, or lists them.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ProfileError(f"profile {name}: no such file", hint="hpcrun profile list shows the profiles by name")
        return path
    names = profile_names(folders)
    if name not in names:
        close = nearest(name, list(names))
        raise ProfileError(
            f"there is no profile {name!r}",
            hint=f"did you mean {close!r}?" if close else f"there are: {', '.join(sorted(names))}",
        )
    return names[name]


def load_profile(name: str, folders: Sequence[Path]) -> LoadedProfile:
    """Load a profile by name or path.

    Args:
        name: a name, or the path of a file.
        folders: where names are looked up, most important first.

    Raises:
        ProfileError: missing, broken or invalid; the message says file, line and key.
    """
    path = find_profile(name, folders)
    merged = _merge_file(path, folders, chain=())
    merged.data.pop("extends", None)
    return LoadedProfile(_validate(path, merged), path, merged.origins)


def _merge_file(path: Path, folders: Sequence[Path], chain: tuple[Path, ...]) -> _Merged:
    if path in chain:
        loop = " → ".join(step.stem for step in (*chain, path))
        raise ProfileError(f"{path}: 'extends' goes round in a circle: {loop}")
    file = read_yaml(path)
    merged = _Merged()
    for base in _bases(file):
        base_path = _find_base(base, file, folders)
        _merge(merged, _merge_file(base_path, folders, (*chain, path)))
    _merge(merged, _Merged(file.data, file.origins))
    return merged


def _bases(file: YamlFile) -> list[str]:
    bases = file.data.get("extends", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise ProfileError(f"{file.origins[('extends',)]}: 'extends' takes the name of a profile, or a list of names")
    return bases


def _find_base(base: str, file: YamlFile, folders: Sequence[Path]) -> Path:
    searched = list(folders)
    for place, folder in enumerate(searched):
        if folder / f"{base}{SUFFIX}" == file.path:
            # a user's a100 that extends a100, or gpu/a100 that extends gpu/a100, means the one it hides
            searched = searched[place + 1 :]
            break
    for folder in searched:
        candidate = folder / f"{base}{SUFFIX}"
        if candidate.is_file():
            return candidate
    known = [
        path.relative_to(folder).with_suffix("").as_posix() for folder in folders for path in folder.rglob(f"*{SUFFIX}")
    ]
    close = nearest(base, known)
    raise ProfileError(
        f"{file.origins[('extends',)]}: 'extends' names {base!r}, which is nowhere",
        hint=f"did you mean {close!r}?" if close else "hpcrun profile path lists the folders that are searched",
    )


def _merge(under: _Merged, over: _Merged, key: Key = ()) -> None:
    """Lay one file's values over another's: mappings are merged, all else is replaced, null removes."""
    target, source = under.data, over.data
    for step in key:
        target, source = target[step], source[step]
    for name, value in source.items():
        here = (*key, name)
        if value is None:
            target.pop(name, None)
            _drop_origins(under, here)
        elif isinstance(value, dict):
            if not isinstance(target.get(name), dict):
                _drop_origins(under, here)
                target[name] = {}
            under.origins[here] = over.origins[here]
            _merge(under, over, here)
        else:
            _drop_origins(under, here)
            target[name] = value
            under.origins.update({k: o for k, o in over.origins.items() if k[: len(here)] == here})


def _drop_origins(merged: _Merged, key: Key) -> None:
    for known in [known for known in merged.origins if known[: len(key)] == key]:
        del merged.origins[known]


def _validate(path: Path, merged: _Merged) -> Profile:
    from pydantic import ValidationError

    if "name" in merged.data:
        raise ProfileError(f"{merged.origins[('name',)]}: 'name' is the file's name; remove the line")
    try:
        return Profile(name=path.stem, **merged.data)
    except ValidationError as error:
        messages = [_explain(detail, path, merged) for detail in error.errors()]
        raise ProfileError("\n".join(messages), hint="hpcrun profile show a100 shows a profile that is right") from None


def _explain(detail: Any, path: Path, merged: _Merged) -> str:
    key: Key = ()
    for step in detail["loc"]:  # pydantic adds words of its own about unions and validators
        if (*key, str(step)) not in merged.origins:
            break
        key = (*key, str(step))
    where = merged.origins.get(key) or path
    dotted = ".".join(key) or str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        close = nearest(key[-1], _keys_beside(key[:-1]))
        return f"{where}: unknown key {dotted!r}" + (f"; did you mean {close!r}?" if close else "")
    text = detail["msg"].removeprefix("Value error, ")
    return f"{where}: {dotted}: {text}" + ("" if detail["type"] == "value_error" else f", not {detail['input']!r}")


def _keys_beside(section: tuple[Any, ...]) -> list[str]:
    model: Any = Profile
    for step in section:
        # beside a section stand those of one kind under names of a site's own, as in gpu.types
        fields = getattr(model, "model_fields", None)
        model = fields[step].annotation if fields else get_args(model)[1]
    return [*model.model_fields, *(["extends"] if model is Profile else [])]
