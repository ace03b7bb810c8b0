"""What hpcrun makes of an sbatch script: the command, the changed lines, and what is different."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpcrun.job.batch_script import BatchScript, changed_lines
from hpcrun.job.quoting import quote_bash
from hpcrun.job.secret_hider import HIDER
from hpcrun.views.text import count, one_line


def import_lines(script: BatchScript, command: Sequence[str]) -> Iterator[str]:
    """Yield what becomes of a script.

    Args:
        command: submits it.
    """
    if script.is_complete:
        yield f"{one_line(script.name)}: complete: bash runs it as it is, and hpcrun starts its ranks"
    if not script.options.problems:
        yield from ("", _line(command))
        yield from ("", f"{_size(script)}; --dry-run shows the whole script")
    for heading, lines in (
        ("cannot be submitted by hpcrun", script.options.problems),
        ("not taken over: bash runs it as sbatch would, without logs per rank", script.missing),
        ("changed lines", [f"{number:>5}  {text}" for number, text in changed_lines(script)]),
        ("different from sbatch", script.remarks),
    ):
        if lines:
            yield from ("", f"{heading}:", *(f"  {one_line(HIDER.hide(line))}" for line in lines))


def import_json(script: BatchScript, command: Sequence[str]) -> dict[str, Any]:
    """Return the document of ``hpcrun import --json``."""
    return {
        "script": script.name,
        "complete": script.is_complete,
        "command_line": None if script.options.problems else _line(command),
        "launcher": script.ranks(script.sizes)[0],
        "changed": [{"line": number, "text": text} for number, text in changed_lines(script)],
        "problems": list(script.options.problems),
        "not_taken_over": list(script.missing),
        "remarks": list(script.remarks),
    }


def _line(command: Sequence[str]) -> str:
    return " ".join(quote_bash(word) for word in command)


def _size(script: BatchScript) -> str:
    gpus = count(script.sizes.gpus, f"{script.sizes.gpu_type or ''} GPU".strip())
    launcher, per_node = script.ranks(script.sizes)
    ranks = f", {count(per_node, 'rank')} by {launcher} on each" if not script.missing else ""
    return f"{count(script.sizes.nodes, 'node')} × {gpus}{ranks}"
