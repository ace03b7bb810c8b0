"""The files of a folder that a user may trust, and the trusted folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hpcrun.actions.jobs.trust import FileToTrust, Question, TrustRow
from hpcrun.views.text import count, one_line, text_table, visible

if TYPE_CHECKING:
    from rich.table import Table

_MOST_KEYS = 8
WHAT_IT_MEANS = "Trusted files run code as you, here and on the nodes of your jobs. Read them first."


def question_table(question: Question) -> Table:
    """Return the files of a folder, what is new of them, and what each can do."""
    rows = (
        (file.name, file.state, "" if file.state == "removed" else str(file.size_bytes), _power(file))
        for file in question.files
    )
    return text_table(("FILE", "STATE", "BYTES", "EFFECT"), rows, right=("BYTES",))


def _power(file: FileToTrust) -> str:
    keys = ", ".join(file.keys[:_MOST_KEYS]) + (", ..." if file.keys[_MOST_KEYS:] else "")
    return f"{file.power}: {keys}" if keys else file.power


def content_lines(question: Question) -> Iterator[str]:
    """Return the text of the files that are new or changed; of all files of a folder that is trusted as it is."""
    for file in question.files:
        if file.state == "removed" or (file.state == "trusted" and not question.trusted):
            continue
        yield f"{one_line(file.name)}:"
        text = question.contents.files[file.name].decode(errors="surrogateescape").removesuffix("\n")
        yield from (f"    {visible(line.expandtabs())}".rstrip() for line in text.split("\n"))
        yield ""


def question_lines(question: Question) -> list[str]:
    """Return the lines below the files."""
    lines = [f"not read: {one_line(name)}" for name in question.contents.skipped]
    if question.dangers:
        lines.append(f"{one_line(question.dangers[0])}: hpcrun ignores a later change until you trust it")
    return [*lines, WHAT_IT_MEANS]


def trust_table(rows: Sequence[TrustRow]) -> Table:
    """Return what was trusted, by folder."""
    cells = ((str(row.path), row.state, str(row.files)) for row in rows)
    return text_table(("FOLDER", "STATE", "FILES"), cells, right=("FILES",))


def trust_json(rows: Sequence[TrustRow]) -> dict[str, Any]:
    """Return the trusted folders as a JSON document."""
    folders = [{"path": str(row.path), "state": row.state, "files": row.files} for row in rows]
    return {"kind": "trust", "folders": folders}


def trusted_line(question: Question) -> str:
    """Return the message about a trusted folder."""
    return f"trusted  {one_line(str(question.path))}, {count(len(question.contents.files), 'file')}"
