"""The text in the editor: a first version of a file, and remarks at the lines of mistakes. Text → text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcrun.profiles.edit import flow
from hpcrun.profiles.mistakes import Key, Mistake

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
    ]
    return "\n".join([*lines, *([f"extends: {base}"] if base else ["scheduler: slurm"]), ""])


def unsaid(given: Sequence[Key]) -> str:
    """Return comments for the usual keys without a value."""
    left = [key for key in USUAL if key not in given]
    if not left:
        return ""
    width = max(len(".".join(key)) for key in left)
    lines = [f"#   {'.'.join(key):<{width}}  {USUAL[key]}" for key in left]
    return "\n".join(["# Inherited:", *lines, ""])


def copy_text(name: str, source: Path, data: Mapping[str, Any]) -> str:
    """Return the text for the first edit of a profile: it extends the profile of the same name.

    Args:
        source: file of the extended profile.
        data: its merged values, which follow as comments.
    """
    lines = [
        f"# Your own {name!r}. It extends {source},",
        "# and values set here override it. To change an inherited value below, remove its '# '.",
        f"extends: {name}",
        *(f"# {line}" for line in _shown(data)),
    ]
    return "\n".join([*lines, ""])


def _shown(data: Mapping[str, Any], indent: str = "") -> list[str]:
    lines = []
    for name, value in data.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{flow(name)}:", *_shown(value, indent + "  ")]
        else:
            lines.append(f"{indent}{flow(name)}: {flow(value)}")
    return lines


def with_remarks(text: str, mistakes: Sequence[Mistake], path: Path) -> str:
    """Return the text with each mistake as a comment above its line; those of other files come first."""
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    above: dict[int, list[str]] = {}
    for mistake in mistakes:
        here = mistake.line is not None and mistake.path == path
        number = min(mistake.line or 1, len(lines) + 1) if here else 1
        words = mistake.text if here else str(mistake)
        above.setdefault(number, []).extend(f"{REMARK}{line}\n" for line in words.splitlines())
    return "".join("".join([*above.get(number, []), line]) for number, line in enumerate([*lines, ""], start=1))


def without_remarks(text: str) -> str:
    """Return the text without the comments of ``with_remarks``."""
    return _REMARK_LINE.sub("", text)
