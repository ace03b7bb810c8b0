"""The files of a folder that a user may trust, and the trusted folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.actions.jobs.trust import FileToTrust, Question, TrustRow
from hpcrun.views.text import count, one_line

if TYPE_CHECKING:
    from rich.table import Table

_MOST_KEYS = 8
WHAT_IT_MEANS = "Trusted files run code as you, here and on the nodes of your jobs. Read them first."


def question_table(question: Question) -> Table:
    """Return the files of a folder, which of them are new, and what each can do."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("FILE", "STATE", "BYTES", "EFFECT"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "BYTES" else "left")
    for file in question.files:
        size = "" if file.state == "removed" else str(file.size_bytes)
        table.add_row(Text(one_line(file.name)), file.state, size, Text(_power(file)))
    return table


def _power(file: FileToTrust) -> str:
    keys = ", ".join(one_line(key) for key in file.keys[:_MOST_KEYS]) + (", ..." if file.keys[_MOST_KEYS:] else "")
    return f"{file.power}: {keys}" if keys else file.power


def question_lines(question: Question) -> list[str]:
    """Return the lines below the files."""
    lines = [f"not read: {one_line(name)}" for name in question.contents.skipped]
    if question.dangers:
        lines.append(f"{one_line(question.dangers[0])}: hpcrun ignores a later change until you trust it")
    return [*lines, WHAT_IT_MEANS]


def trust_table(rows: Sequence[TrustRow]) -> Table:
    """Return the trusted folders."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("FOLDER", "STATE", "FILES"):
        table.add_column(heading, overflow="fold", justify="right" if heading == "FILES" else "left")
    for row in rows:
        table.add_row(Text(one_line(str(row.path))), row.state, str(row.files))
    return table


def trust_json(rows: Sequence[TrustRow]) -> dict[str, Any]:
    """Return the trusted folders as a JSON document."""
    return {
        "kind": "trust",
        "folders": [{"path": str(row.path), "state": row.state, "files": row.files} for row in rows],
    }


def trusted_line(question: Question) -> str:
    """Return the message about a trusted folder."""
    return f"trusted  {one_line(str(question.path))}, {count(len(question.contents.files), 'file')}"
