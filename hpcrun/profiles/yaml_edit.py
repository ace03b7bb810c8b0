"""Changes single values in a file that users write: text → text; every other byte stays.

ruamel's parser finds the position of a value, and the text is changed there. Its own round trip
would change the indentation of lists, fold long lines, and remove the comment below a removed key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpcrun.errors import ProfileError
from hpcrun.profiles.yaml_file import Key, Mistake, dotted, flow, parse_yaml


def set_value(text: str, key: Key, value: Any, path: Path) -> str:
    """Return the text with one value set; its section is made if there is none.

    The value is text, True (a flag), None (removes the inherited value), or a list or mapping of
    these.
    """
    expected = _changed(parse_yaml(text, path).data, key, value)
    return _checked(lambda: _spliced(text, key, value), expected, key, path)


def unset_value(text: str, key: Key, path: Path) -> str:
    """Return the text without one key, and without a section that becomes empty.

    Raises:
        ProfileError: the key is not set in the text, or its removal would change other lines.
    """
    data = parse_yaml(text, path).data
    while True:
        section: Any = data
        for step in key[:-1]:
            section = section.get(step) if isinstance(section, dict) else None
        if not isinstance(section, dict) or key[-1] not in section:
            raise ProfileError(
                f"{path}: {dotted(key)!r} is not set here",
                hint=f"{dotted(key)}=null (hpcrun profile set) removes the inherited value",
            )
        if len(section) > 1 or len(key) == 1:
            break
        key = key[:-1]  # "gpu:" without keys would remove all inherited values
    del section[key[-1]]
    return _checked(lambda: _without(text, key), data, key, path)


def _changed(data: dict[str, Any], key: Key, value: Any) -> dict[str, Any]:
    section = data
    for step in key[:-1]:
        if not isinstance(section.get(step), dict):
            section[step] = {}
        section = section[step]
    section[key[-1]] = value
    return data


def _checked(change: Callable[[], str], expected: dict[str, Any], key: Key, path: Path) -> str:
    """Return a changed text if it has the expected values.

    A file with an unexpected layout is not changed.

    Raises:
        ProfileError: the key cannot be changed without a change of other lines.
    """
    with suppress(ProfileError, ValueError):
        text = change()
        if parse_yaml(text, path).data == expected:
            return text
    raise ProfileError(
        f"{path}: {dotted(key)!r} cannot be changed without changing other lines",
        hint="use hpcrun profile edit",
    )


def _root(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="rt", pure=True).compose(text)


def _is_mapping(node: Any) -> bool:
    return node is not None and node.id == "mapping"


def _entry(mapping: Any, name: str) -> Any:
    for pair in mapping.value:
        if pair[0].value == name:
            return pair
    return None


def _empty(node: Any) -> bool:
    return bool(node.id == "scalar" and node.start_mark.index == node.end_mark.index)


def _colon_after(text: str, key: Any) -> int:
    return text.index(":", key.end_mark.index) + 1


def _end(text: str, pair: Any) -> int:
    """Return the end of an entry's value.

    For the parser, a block ends only where the next one begins.
    """
    key, node = pair
    if _empty(node):
        return _colon_after(text, key)
    end: int = node.end_mark.index
    if node.id == "scalar" and node.style in ("|", ">"):
        return len(text[:end].rstrip())
    if node.id == "scalar" or node.flow_style:
        return end
    last = node.value[-1]
    if node.id == "mapping":
        return _end(text, last)
    return _end(text, (key, last))


def _line_end(text: str, index: int) -> int:
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


# --- splicing ------------------------------------------------------------------------------------


def _spliced(text: str, key: Key, value: Any) -> str:
    mapping = _root(text)
    newline = _newline(text)
    if not _is_mapping(mapping):  # nothing but comments
        return _with_newline(text, newline) + _block(key, value, "", newline)
    left = key
    pair = _entry(mapping, left[0])
    while pair:
        left = left[1:]
        if not left or not _is_mapping(pair[1]):
            return _replaced(text, pair, _nested(left, value))
        mapping = pair[1]
        pair = _entry(mapping, left[0])
    return _added(text, mapping, left, value)


def _with_newline(text: str, newline: str) -> str:
    """Return a text whose last line is complete."""
    if not text or text.endswith("\n"):
        return text
    return text + newline


def _nested(key: Sequence[str], value: Any) -> Any:
    for step in reversed(key):
        value = {step: value}
    return value


def _block(key: Key, value: Any, indent: str, newline: str) -> str:
    lines = []
    for step in key:
        lines.append(f"{indent}{flow(step)}:")
        indent += "  "
    return f"{newline.join(lines)} {flow(value)}{newline}"


def _replaced(text: str, pair: Any, value: Any) -> str:
    key, node = pair
    start = node.start_mark.index
    end = _end(text, pair)
    in_block = node.id != "scalar" and not node.flow_style
    if not in_block and not _empty(node):
        return text[:start] + flow(value) + text[end:]
    colon = _colon_after(text, key)
    rest = text[colon : _line_end(text, colon)].rstrip("\r\n")
    comment = rest if in_block and rest.lstrip().startswith("#") else ""
    return f"{text[:colon]} {flow(value)}{comment}{text[end:]}"


def _added(text: str, mapping: Any, key: Key, value: Any) -> str:
    if mapping.flow_style:
        entry = f"{flow(key[0])}: {flow(_nested(key[1:], value))}"
        if not mapping.value:
            start = mapping.start_mark.index + 1
            return text[:start] + entry + text[start:]
        at = _end(text, mapping.value[-1])
        return f"{text[:at]}, {entry}{text[at:]}"
    newline = _newline(text)
    at = _line_end(text, _end(text, mapping.value[-1]))
    before = _with_newline(text[:at], newline)
    indent = " " * mapping.value[0][0].start_mark.column
    return before + _block(key, value, indent, newline) + text[at:]


def _without(text: str, key: Key) -> str:
    mapping = _root(text)
    for step in key[:-1]:
        mapping = _entry(mapping, step)[1]
    pair = _entry(mapping, key[-1])
    place = mapping.value.index(pair)
    start = pair[0].start_mark.index
    end = _end(text, pair)
    if not mapping.flow_style:
        first = text.rfind("\n", 0, start) + 1
        return text[:first] + text[_line_end(text, end) :]
    if place + 1 < len(mapping.value):
        return text[:start] + text[mapping.value[place + 1][0].start_mark.index :]
    if place:
        start = _end(text, mapping.value[place - 1])
    return text[:start] + text[end:]


REMARK = "#!! hpcrun: "
_REMARK_LINE = re.compile(r"^[ \t]*#!! hpcrun:.*(?:\r?\n|$)", re.MULTILINE)

# The keys that sites set most often, in a readable order.
USUAL: Mapping[Key, str] = {
    ("description",): "shown in `hpcrun profile list`",
    ("partition",): "sinfo shows them",
    ("account",): "account to charge: sacctmgr show associations user=$USER",
    ("qos",): "quality of service",
    ("gpu", "type"): "the name in sinfo -o %G",
    ("gpu", "per_node"): "GPUs of one node",
    ("time", "default"): "default time limit of a job",
    ("time", "max"): "the partition's limit",
}


def new_text(name: str, base: str | None) -> str:
    """Return the first lines of a user's own profile."""
    lines = [
        f"# {name}: only the values that differ from the profile that it extends.",
        f"#   hpcrun profile show {name} --origin   all values with their sources",
        f"#   hpcrun profile set {name} KEY=VALUE   changes a value and keeps these comments",
        f"extends: {base}" if base else "scheduler: slurm",
        "",
    ]
    return "\n".join(lines)


def unsaid(given: Sequence[Key]) -> str:
    """Return comments for the usual keys without a value."""
    left = [key for key in USUAL if key not in given]
    if not left:
        return ""
    width = max(len(".".join(key)) for key in left)
    lines = ["# Inherited:\n"]
    for key in left:
        name = ".".join(key)
        lines.append(f"#   {name:<{width}}  {USUAL[key]}\n")
    return "".join(lines)


def copy_text(name: str, source: Path, data: Mapping[str, Any]) -> str:
    """Return the text for the first edit of a profile.

    The text extends the profile of the same name, whose values are comments in the text.
    """
    lines = [
        f"# Your own {name!r}. It extends {source},",
        "# and values set here override it. To change an inherited value below, remove its '# '.",
        f"extends: {name}",
    ]
    lines += [f"# {line}" for line in yaml_lines(data)]
    return "\n".join([*lines, ""])


def yaml_lines(data: Mapping[str, Any], indent: str = "") -> list[str]:
    """Return values as YAML: a line for each; invisible characters are quoted and escaped."""
    lines = []
    for name, value in data.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{flow(name)}:", *yaml_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{flow(name)}: {flow(value)}")
    return lines


def with_remarks(text: str, mistakes: Sequence[Mistake], path: Path) -> str:
    """Return the text with each mistake as a comment above its line.

    Mistakes of other files come first.
    """
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    lines.append("")  # for remarks below the last line
    above: dict[int, list[str]] = {}
    for mistake in mistakes:
        if mistake.line is not None and mistake.path == path:
            number = min(mistake.line or 1, len(lines))
            words = mistake.text
        else:
            number = 1
            words = str(mistake)
        remarks = above.setdefault(number, [])
        remarks += [f"{REMARK}{line}\n" for line in words.splitlines()]
    remarked = []
    for number, line in enumerate(lines, start=1):
        remarked += above.get(number, [])
        remarked.append(line)
    return "".join(remarked)


def without_remarks(text: str) -> str:
    """Return the text without the comments of ``with_remarks``."""
    return _REMARK_LINE.sub("", text)
