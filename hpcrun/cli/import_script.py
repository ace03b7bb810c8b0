"""hpcrun import: show what hpcrun makes of an sbatch script.

That is the command, the changed lines, and what is different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.job_variables import notes_on_script
from hpcrun.actions.jobs.program import read_calls, read_script, read_stdin_script
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument
from hpcrun.cli.output import JsonOption, Outcome, stdout
from hpcrun.cli.stdin_script import read_stdin
from hpcrun.errors import PlanError
from hpcrun.job.batch.batch_script import BatchScript, changed_lines
from hpcrun.job.batch.launcher_script import SbatchCall
from hpcrun.job.request.job_request import STDIN
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.quoting import bash_line, quote_bash
from hpcrun.views.plan_text import script_size_text
from hpcrun.views.text import count, one_line


def import_(
    script: Path = argument(
        "SCRIPT",
        "A batch script with #SBATCH lines, or a script that calls sbatch; - reads stdin.",
        default=...,
    ),
    args: list[str] | None = argument("ARGS", "The script's own arguments, $1 and so on."),
    _json: JsonOption = False,
) -> Outcome:
    """Show what `hpcrun submit` makes of an sbatch script.

    Shows the command, the lines that are changed, and what is different from
    sbatch. Of a script that calls sbatch, shows what takes the place of each
    call. The script is only read, never run. Exit status 0 if hpcrun takes over
    its launch, or all calls, else 4.
    """
    own_args = tuple(args or ())
    is_stdin = str(script) == STDIN
    if is_stdin:
        batch = read_stdin_script(read_stdin(), own_args)
    else:
        path = make_context().cwd / script
        calls = read_calls(path)
        if calls:
            return _of_launcher(script.name, calls)
        batch = read_script(path, own_args)
    command = bash_line(("hpcrun", "submit", str(script), *own_args))
    changed = list(changed_lines(batch))
    notes = [*batch.habits, *notes_on_script(batch)]
    failure = None
    if not batch.is_complete:
        hint = "its ranks have no logs of their own"
        if batch.options.problems:
            hint = "sbatch reads stdin, too" if is_stdin else f"sbatch {quote_bash(str(script))}"
        failure = PlanError(f"{batch.name}: not complete", hint=hint)
    return Outcome(
        lambda: [stdout(_lines(batch, command, changed, notes))],
        lambda: _document(batch, command, changed, notes),
        failure=failure,
    )


def _of_launcher(name: str, calls: Sequence[SbatchCall]) -> Outcome:
    """Return what takes the place of the calls of sbatch in a script."""
    failure = None
    if any(call.problems for call in calls):
        hint = "change these options by hand: hpcrun submit --help has the options"
        failure = PlanError(f"{name}: not complete", hint=hint)
    return Outcome(
        lambda: [stdout(map(one_line, map(HIDER.hide, _launcher_lines(name, calls))))],
        lambda: {
            "script": name,
            "complete": failure is None,
            "sbatch_calls": [asdict(call) for call in calls],
        },
        failure=failure,
    )


def _launcher_lines(name: str, calls: Sequence[SbatchCall]) -> Iterator[str]:
    yield f"{name}: hpcrun submit takes the place of sbatch ({count(len(calls), 'call')})"
    for call in calls:
        yield ""
        yield f"line {call.line}:"
        yield f"  {call.command}"
        if call.sweep:
            yield "  or, in place of the loop, one job array:"
            yield f"  {call.sweep}"
        for problem in call.problems:
            yield f"  not taken over: {problem}"
        for remark in call.remarks:
            yield f"  {remark}"


def _lines(
    script: BatchScript, command: str, changed: Sequence[tuple[int, str]], notes: Sequence[str]
) -> Iterator[str]:
    if script.is_complete:
        name = one_line(script.name)
        yield f"{name}: complete: bash runs it as it is, and hpcrun starts its ranks"
    if not script.options.problems:
        yield from ("", command)
        yield from (
            "",
            f"{script_size_text(script, script.sizes)}; --dry-run shows the whole script",
        )
    sections = {
        "cannot be submitted by hpcrun": script.options.problems,
        "not taken over: bash runs it as sbatch would, without logs per rank": script.missing,
        "changed lines": [f"{number:>5}  {text}" for number, text in changed],
        "different from sbatch": script.differences,
        "as by sbatch, and probably not intended": notes,
    }
    for heading, lines in sections.items():
        if lines:
            yield from ("", f"{heading}:")
            for line in lines:
                yield f"  {one_line(HIDER.hide(line))}"


def _document(
    script: BatchScript, command: str, changed: Sequence[tuple[int, str]], notes: Sequence[str]
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
        "notes": list(notes),
    }
