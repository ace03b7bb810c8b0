"""hpcrun import: show what hpcrun makes of an sbatch script.

That is the command, the changed lines, and what is different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument
from hpcrun.cli.output import JsonOption, Outcome, stdout
from hpcrun.errors import PlanError
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.quoting import bash_line, quote_bash
from hpcrun.views.text import count, one_line

if TYPE_CHECKING:
    from hpcrun.job.batch.batch_script import BatchScript


def import_(
    script: Path = argument("SCRIPT", "A batch script with #SBATCH lines.", default=...),
    args: list[str] | None = argument("ARGS", "The script's own arguments, $1 and so on."),
    _json: JsonOption = False,
) -> Outcome:
    """Show what `hpcrun submit` makes of an sbatch script.

    Shows the command, the lines that are changed, and what is different from
    sbatch. The script is only read, never run. Exit status 0 if hpcrun takes
    over its launch, else 4.
    """
    from hpcrun.actions.jobs.program import read_script
    from hpcrun.job.batch.batch_script import changed_lines

    own_args = tuple(args or ())
    batch = read_script(make_context().cwd / script, own_args)
    command = bash_line(("hpcrun", "submit", str(script), *own_args))
    changed = list(changed_lines(batch))
    failure = None
    if not batch.is_complete:
        hint = "its ranks have no logs of their own"
        if batch.options.problems:
            hint = f"sbatch {quote_bash(str(script))}"
        failure = PlanError(f"{script.name}: not complete", hint=hint)
    return Outcome(
        lambda: [stdout(_lines(batch, command, changed))],
        lambda: _document(batch, command, changed),
        failure=failure,
    )


def _lines(script: BatchScript, command: str, changed: Sequence[tuple[int, str]]) -> Iterator[str]:
    if script.is_complete:
        name = one_line(script.name)
        yield f"{name}: complete: bash runs it as it is, and hpcrun starts its ranks"
    if not script.options.problems:
        yield from ("", command)
        yield from ("", f"{_size(script)}; --dry-run shows the whole script")
    sections = {
        "cannot be submitted by hpcrun": script.options.problems,
        "not taken over: bash runs it as sbatch would, without logs per rank": script.missing,
        "changed lines": [f"{number:>5}  {text}" for number, text in changed],
        "different from sbatch": script.remarks,
    }
    for heading, lines in sections.items():
        if lines:
            yield from ("", f"{heading}:")
            for line in lines:
                yield f"  {one_line(HIDER.hide(line))}"


def _document(
    script: BatchScript, command: str, changed: Sequence[tuple[int, str]]
) -> dict[str, Any]:
    return {
        "script": script.name,
        "complete": script.is_complete,
        "command_line": None if script.options.problems else command,
        "launcher": script.ranks(script.sizes)[0],
        "changed": [{"line": number, "text": text} for number, text in changed],
        "problems": list(script.options.problems),
        "not_taken_over": list(script.missing),
        "remarks": list(script.remarks),
    }


def _size(script: BatchScript) -> str:
    sizes = script.sizes
    gpu = f"{sizes.gpu_type} GPU" if sizes.gpu_type else "GPU"
    text = f"{count(sizes.nodes, 'node')} × {count(sizes.gpus, gpu)}"
    if script.missing:
        return text
    launcher, per_node = script.ranks(sizes)
    return f"{text}, {count(per_node, 'rank')} by {launcher} on each"
