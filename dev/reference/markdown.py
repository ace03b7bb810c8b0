"""Text of the program as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from dev.size import GENERATED

_CODE = re.compile(r"(`[^`]+`)")


def head(title: str) -> list[str]:
    """Return the first lines of a page that is made from the program."""
    return [f"{GENERATED}make golden, from the program. -->", f"# {title}", ""]


def plain(text: str) -> str:
    """Return a text as Markdown that shows it, with its code in backticks."""
    parts = []
    for part in _CODE.split(" ".join(text.split())):
        is_code = part.startswith("`")
        parts.append(part if is_code else _escaped(part))
    return "".join(parts).replace("|", "&#124;")


def _escaped(text: str) -> str:
    return re.sub(r"([\\*\[\]~])", r"\\\1", text).replace("<", "&lt;")


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    if "|" not in text:
        return f"`{text}`"
    # a forge and mkdocs disagree about a bar in backticks
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")
    return f"<code>{escaped}</code>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table and an empty one."""
    lines = ["| " + " | ".join(headings) + " |", "|---" * len(headings) + "|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return [*lines, ""]
