"""profile new, set, unset, edit and use: changes to the user's own files.

Each change is checked before a file is replaced.
"""

from __future__ import annotations

import os.path
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError, UsageError
from hpcrun.profiles.config import DETECTED, check_config
from hpcrun.profiles.folders import Source, folders_of
from hpcrun.profiles.load import (
    SUFFIX,
    find_profile,
    is_path,
    load_profile,
    load_text,
    profile_names,
)
from hpcrun.profiles.validate import value_kinds
from hpcrun.profiles.yaml_edit import (
    copy_text,
    new_text,
    set_value,
    unsaid,
    unset_value,
    with_remarks,
    without_remarks,
)
from hpcrun.profiles.yaml_file import (
    EXTEND,
    Key,
    Mistake,
    MistakesError,
    dotted,
    locked,
    parse_yaml,
    read_text,
    replace_text,
    saving,
    values_in,
)

TYPES: Key = ("gpu", "types")
# sbatch has --time in minutes and --signal in seconds: other numbers need their unit
_TIMES = (("requeue", "warn"), ("cancel_idle",))
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)

RunEditor = Callable[[Path], int]
AskAgain = Callable[[Sequence[Mistake]], bool]


@dataclass(frozen=True, slots=True)
class Place:
    """Where profiles are changed."""

    user: Path  # the folder of the user's profiles
    folders: Sequence[Source]  # every folder that names are looked up in, most important first

    @property
    def lock(self) -> Path:
        """The file whose lock a program holds while it changes one of the user's files."""
        return self.user.with_name(".lock")


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a change to a profile's file."""

    path: Path
    made: bool  # there was none before
    changed: bool  # False if the file already has this content
    hidden_by: Path | None = None  # the file of that name in a folder with a higher priority
    # key of a value → the GPU types whose own values no longer apply
    replaced: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's present and new text; ``before`` is None if the file does not exist yet."""

    path: Path
    before: str | None
    after: str

    @property
    def changed(self) -> bool:
        """Whether the file has to be written."""
        return self.before != self.after

    def write(
        self, lock: Path, *, during: str = "", hint: str | None = None, kept: Path | None = None
    ) -> None:
        """Write the file, completely or not at all, if the file has not changed since.

        ``kept`` gets the old text of the file.

        Raises:
            ProfileError: another program changed the file.
        """
        with locked(lock):
            if text_at(self.path) != self.before:
                raise ProfileError(f"{self.path} was changed by another program{during}", hint=hint)
            if kept and self.before is not None:
                replace_text(kept, self.before)
            replace_text(self.path, self.after)


def text_at(path: Path) -> str | None:
    """Return the text of a file, None if there is none."""
    if not os.path.lexists(path):
        return None
    return read_text(path)


def new_profile(name: str, base: str | None, values: Sequence[str], place: Place) -> Changed:
    """Write a small profile that extends another, with values as ``set_values`` takes them.

    Raises:
        UsageError: the file of the profile exists already.
    """
    path = place.user / f"{check_name(name)}{SUFFIX}"
    assignments = [_parse_assignment(value) for value in values]
    keys = [key for key, _ in assignments]
    with locked(place.lock):
        if os.path.lexists(path):
            raise UsageError(
                f"{path} already exists", hint=f"hpcrun profile edit {name} changes it"
            )
        if base is not None:
            load_profile(base, place.folders)
        text, _ = _assigned(new_text(name, base), assignments, path, place)
        text += unsaid(keys)
        _check(text, path, place, keys)
        replace_text(path, text)
    return _changed(name, path, place, made=True)


def set_values(name: str, words: Sequence[str], place: Place) -> Changed:
    """Set values in the user's copy of a profile; refuse an invalid result.

    The copy is made if it does not exist.

    Args:
        name: the name or the path of the profile.
        words: ``KEY=VALUE``; ``KEY+=VALUE`` adds to a list; ``null`` removes the inherited value.
        place: the folder of the user's profiles, and every folder of profiles.
    """
    assignments = [_parse_assignment(each) for each in words]
    replaced: dict[str, list[str]] = {}

    def change(text: str, path: Path) -> str:
        assigned, types = _assigned(text, assignments, path, place)
        replaced.update(types)
        return assigned

    changed = _change(name, change, [key for key, _ in assignments], place)
    return replace(changed, replaced=replaced)


def unset_values(name: str, keys: Sequence[str], place: Place) -> Changed:
    """Remove keys from the user's copy of a profile: the inherited values apply again.

    Raises:
        ProfileError: the user has no copy of the profile.
    """
    wanted = [tuple(key.split(".")) for key in keys]

    def change(text: str, path: Path) -> str:
        for key in wanted:
            text = unset_value(text, key, path)
            for inner, value in values_in(parse_yaml(text, path).data):
                # as _assigned left it
                if value is None and inner[:2] == TYPES and inner[3 : 3 + len(key)] == key:
                    text = unset_value(text, inner, path)
        return text

    copy = _open_copy(name, place)
    if copy.before is None:
        raise ProfileError(
            f"you have no {copy.path}, nothing to remove",
            hint=f"hpcrun profile set {name} {keys[0]}=null removes the inherited value",
        )
    return _change(name, change, wanted, place)


def use_profile(name: str, place: Place, config: Path) -> Changed:
    """Make a profile the default in the user's config.yaml; every other line stays.

    The profile is given by its name or its path.
    """
    load_profile(name, place.folders)
    used = os.path.abspath(name) if is_path(name) else name
    change, _ = plan_config(used, config)
    if change.changed:
        change.write(place.lock, hint=f"run hpcrun profile use {name} again")
    return Changed(config, made=change.before is None, changed=change.changed)


def plan_config(name: str, config: Path, runs: str | None = None) -> tuple[FileChange, str | None]:
    """Return the change of the user's config.yaml that makes a profile the default.

    The result also has the default until now.

    Args:
        name: the profile to use: a name, or an absolute path.
        config: the path of the user's config.yaml.
        runs: the runs folder to set; None leaves it as it is.
    """
    before = text_at(config)
    text = before or ""
    default = parse_yaml(text, config).data.get("profile")
    values = {"profile": name}
    if runs:
        values["runs"] = runs
    for key, value in values.items():
        if parse_yaml(text, config).data.get(key) != value:
            text = set_value(text, (key,), value, config)
    check_config(text, config)
    if default == name:
        default = None
    return FileChange(config, before, text), default


def edit_profile(name: str, place: Place, run_editor: RunEditor, again: AskAgain) -> Changed:
    """Open the user's copy of a profile in an editor; replace the file only with a valid one.

    Args:
        name: the name or the path of the profile.
        place: the folder of the user's profiles, and every folder of profiles.
        run_editor: opens a file in the user's editor, waits, and returns the exit status.
        again: gets the mistakes; returns whether to go back to the editor, which shows each at its
            line.

    Raises:
        ProfileError: another program changed the file; the user's text is saved elsewhere.
    """
    copy = _open_copy(name, place, commented=True)
    with tempfile.TemporaryDirectory(prefix="hpcrun-edit-") as folder:
        draft = Path(folder) / copy.path.name
        with saving(draft):
            draft.write_bytes(copy.after.encode())
        text = _edited(draft, copy, place, run_editor, again)
        if text == copy.after:
            return _changed(name, copy.path, place, made=False, changed=False)
        try:
            replace(copy, after=text).write(place.lock, during=" while you edited it")
        except ProfileError as error:  # the text is valid, and the work must not be lost
            kept = draft.rename(Path(tempfile.mkdtemp(prefix="hpcrun-edit-")) / draft.name)
            raise ProfileError(error.message, hint=f"your text is saved in {kept}") from None
    return _changed(name, copy.path, place, made=copy.before is None)


def _edited(
    draft: Path, copy: FileChange, place: Place, run_editor: RunEditor, again: AskAgain
) -> str:
    """Return the edited draft once it is valid, or unchanged.

    Raises:
        ProfileError: the editor failed or removed the file.
        MistakesError: the user does not go back to the editor to correct the mistakes.
    """
    if copy.before is not None:
        as_it_was = f"{copy.path} is unchanged"
    else:
        as_it_was = "nothing was saved"
    while True:
        status = run_editor(draft)
        if status != 0:
            raise ProfileError(f"the editor ended with exit status {status}; {as_it_was}")
        if not os.path.isfile(draft):
            raise ProfileError(f"the editor removed the file; {as_it_was}")
        text = without_remarks(read_text(draft))
        if text == copy.after:
            return text
        mistakes, hint = _mistakes(text, copy.path, place)
        if not mistakes:
            return text
        if not again(mistakes):
            if hint:
                as_it_was += f"; {hint}"
            raise MistakesError(mistakes, hint=as_it_was)
        with saving(draft):
            draft.write_bytes(with_remarks(text, mistakes, copy.path).encode())


def _mistakes(text: str, path: Path, place: Place) -> tuple[tuple[Mistake, ...], str | None]:
    try:
        load_text(text, path, place.folders)
    except MistakesError as error:
        return error.mistakes, error.hint
    return (), None


# --- which file ----------------------------------------------------------------------------------


def check_name(name: str) -> str:
    """Return the name of a profile that may be written; refuse any other name.

    Raises:
        UsageError: the name has other characters, or ends as a file of YAML does.
    """
    if _NAME.fullmatch(name) and not name.endswith((SUFFIX, ".yml")):
        return name
    raise UsageError(
        f"{name!r} cannot be a profile's name",
        hint="use letters, digits, '-', '_' and '.', as my-cluster",
    )


def new_profile_path(name: str, folder: Path, *, force: bool) -> Path:
    """Return the file for a new profile.

    Raises:
        UsageError: hpcrun itself uses a profile of this name.
        ProfileError: the file exists, and it is not to be replaced (``force``).
    """
    if name in ("local", DETECTED):  # a file of that name would hide the profile
        raise UsageError(
            f"hpcrun itself uses the profile {name}", hint="choose another name, as mysite"
        )
    path = folder / f"{check_name(name)}{SUFFIX}"
    if os.path.lexists(path) and not force:
        raise ProfileError(
            f"{path} already exists", hint="choose another name, or replace the file with --force"
        )
    return path


def _open_copy(name: str, place: Place, *, commented: bool = False) -> FileChange:
    """Return the user's copy of a profile, or the text with which a new copy begins.

    Raises:
        ProfileError: the profile is the project's own.
    """
    if is_path(name):
        path = find_profile(name, place.folders).absolute()
    else:
        path = place.user / f"{name}{SUFFIX}"
    if is_path(name) or os.path.lexists(path):
        text = read_text(path)
        return FileChange(path, text, text)
    used = find_profile(name, place.folders)
    below = folders_of(place.folders)
    paths = [folder.path for folder in below]
    if place.user in paths:
        first = paths.index(place.user) + 1
        below = below[first:]
        paths = paths[first:]
    if used.parent not in paths and name not in profile_names(below):
        raise ProfileError(
            f"profile {name!r} is the project's own: {used}",
            hint="give the path of that file to change it",
        )
    used = find_profile(name, below)
    text = f"# Your own {name!r}, over the one in {used.parent}.\nextends: {name}\n"
    if commented:
        text = copy_text(name, used, load_profile(name, below).data)
    return FileChange(path, None, text)


def _change(
    name: str, change: Callable[[str, Path], str], keys: Sequence[Key], place: Place
) -> Changed:
    path = _open_copy(name, place).path
    with locked(place.lock):
        copy = _open_copy(name, place)  # read again: now nobody else can change it
        text = change(copy.after, path)
        if text == copy.before:
            return _changed(name, path, place, made=False, changed=False)
        _check(text, path, place, keys)
        replace_text(path, text)
    return _changed(name, path, place, made=copy.before is None)


def _check(text: str, path: Path, place: Place, keys: Sequence[Key]) -> None:
    """Raise the mistakes in a text.

    A value that was just typed has no line yet. The message names the value's key instead.

    Raises:
        ProfileError: the text has mistakes; nothing is changed.
    """
    mistakes, hint = _mistakes(text, path, place)
    if not mistakes:
        return
    problems = []
    for mistake in mistakes:
        if mistake.path == path and any(_is_below(mistake.key, key) for key in keys):
            problems.append(mistake.text)
        else:
            problems.append(str(mistake))
    raise ProfileError("\n".join([*problems, f"nothing is changed in {path}"]), hint=hint)


def _is_below(key: Key, typed: Key) -> bool:
    """Whether a key is a typed one, with or without its ``+``, or lies in a typed section."""
    return key == typed or key[: len(typed)] == _plain(typed)


def _plain(key: Key) -> Key:
    """Return a key without the ``+`` that adds to a list."""
    return (*key[:-1], key[-1].removesuffix(EXTEND))


def _changed(name: str, path: Path, place: Place, *, made: bool, changed: bool = True) -> Changed:
    """Return the result of a change, with the file that hides the changed one."""
    hidden_by = None
    if not is_path(name) and os.path.exists(path):
        with suppress(ProfileError):
            used = find_profile(name, place.folders)
            if used != path:
                hidden_by = used
    return Changed(path, made, changed, hidden_by)


# --- KEY=VALUE -----------------------------------------------------------------------------------


def _parse_assignment(assignment: str) -> tuple[Key, Any]:
    name, equals, value = assignment.partition("=")
    key = tuple(name.strip().split("."))
    if not equals or not all(key):
        raise UsageError(
            f"{assignment!r} is not KEY=VALUE", hint="such as partition=gpu or gpu.per_node=8"
        )
    return key, _parse_value(key, value)


def _parse_value(key: Key, text: str) -> Any:
    """Return the value of a typed word: a list if the key takes one, else the text unchanged.

    Raises:
        UsageError: a time has no unit, or a bracket does not begin a list or a mapping.
    """
    if text == "null":
        return None
    if _plain(key)[-2:] in _TIMES and text.isdecimal():
        raise UsageError(
            f"{dotted(key)}={text} has no unit",
            hint=f"write {text}m for minutes, or {text}s, {text}h",
        )
    kinds = value_kinds(_plain(key))
    if text in ("true", "false") and "bool" in kinds:
        return text == "true"
    if not text.startswith(("[", "{")) or kinds.isdisjoint({"list", "mapping"}):
        return text
    try:
        return parse_yaml(f"value: {text}", Path("value")).data["value"]
    except ProfileError:
        if key[-1].endswith(EXTEND):  # a shell command may begin with a bracket
            return text
        raise UsageError(
            f"{dotted(key)}={text}: not a list or mapping", hint="such as [one, two]"
        ) from None


def _assigned(
    text: str, assignments: Sequence[tuple[Key, Any]], path: Path, place: Place
) -> tuple[str, dict[str, list[str]]]:
    """Return a text with values that take effect, and the GPU types whose values give way.

    For each value, the result names the GPU types that no longer override the value. A GPU type's
    value has priority over the profile's: ``null`` removes it, unless it is set here, too.
    """
    leaves: list[Key] = []
    for key, value in assignments:
        text = _assign(text, key, value, path)
        items = values_in(value, key)
        leaves += [leaf for leaf, item in items if not isinstance(item, dict)]
    replaced: dict[str, list[str]] = {}
    with suppress(ProfileError):  # _check says what is wrong
        loaded = load_text(text, path, place.folders)
        for key, name in product(leaves, loaded.profile.gpu.types):
            of_type = (*TYPES, name, *key)
            if of_type in loaded.origins and of_type not in leaves:
                text = set_value(text, of_type, None, path)
                replaced.setdefault(dotted(key), []).append(name)
    return text, replaced


def _assign(text: str, key: Key, value: Any, path: Path) -> str:
    """Set one value in a text.

    ``modules+`` adds to the file's own list, or begins a list that adds to the inherited one.
    """
    if not key[-1].endswith(EXTEND) or value is None:
        return set_value(text, key, value, path)
    added = value if isinstance(value, list) else [value]
    section: Any = parse_yaml(text, path).data
    for step in key[:-1]:
        if not isinstance(section, dict):
            break
        section = section.get(step)
    if isinstance(section, dict):
        for name in (key[-1].removesuffix(EXTEND), key[-1]):
            present = section.get(name)
            if isinstance(present, list):
                return set_value(text, (*key[:-1], name), [*present, *added], path)
    return set_value(text, key, added, path)
