"""What an sbatch script becomes: the command, the lines that were not understood, the profile, the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpcrun.actions.jobs.import_script import ImportResult
from hpcrun.job.importing.judge import JudgedLines
from hpcrun.job.importing.source import without_secrets
from hpcrun.job.secrets import hide_secrets
from hpcrun.views.text import count, one_line

_ROOM = 44
_LINE = 96
_HEADINGS = (("unknown", "not understood"), ("converted", "converted"), ("hpcrun", "hpcrun does this itself"))


def summary_line(result: ImportResult, *, whole: bool) -> str:
    """Return how much of a script is converted.

    Args:
        whole: whether the lines that hpcrun does not need are shown too.
    """
    lines = result.script.lines
    unknown = sum(each.verdict == "unknown" for each in lines)
    statements = count(len(lines), "statement")
    if result.verdict == "whole":
        own = sum(each.verdict == "hpcrun" for each in lines)
        left_out = f" ({own} left out, since hpcrun does the same itself: --lines)" if own and not whole else ""
        return f"{one_line(result.name)}: converted whole, {statements}{left_out}"
    if result.verdict == "none":
        return f"{one_line(result.name)}: no program was found for the ranks"
    if not unknown:
        return f"{one_line(result.name)}: every statement is converted, but hpcrun refuses the job"
    return f"{one_line(result.name)}: converted in part, {unknown} of {statements} not understood"


def command_lines(result: ImportResult) -> Iterator[str]:
    """Yield the command, divided between its words so that it can be pasted."""
    if not result.script.program:
        return
    line = ""
    for words in result.groups():
        text = " ".join(one_line(word) for word in words)
        if line and len(line) + len(text) > _LINE - 2:
            yield f"{line} \\"
            line = "   "
        line = f"{line} {text}" if line else text
    yield line


def judged_lines(result: ImportResult, *, whole: bool) -> Iterator[str]:
    """Yield the lines of the script with what becomes of each.

    Args:
        whole: also those that are converted, and those that hpcrun does not need.
    """
    for verdict, heading in _HEADINGS:
        found = [each for each in result.script.lines if each.verdict == verdict]
        if found and (whole or verdict == "unknown"):
            yield ""
            yield f"{heading}:"
            for each in found:
                yield from _lines_of(each)


def _lines_of(judged: JudgedLines) -> Iterator[str]:
    """Yield the place and the text of a statement, and what becomes of it; the reason why not on a line of its own."""
    place = str(judged.first) if judged.first == judged.last else f"{judged.first}-{judged.last}"
    text, words = one_line(_shown_text(judged)), one_line(hide_secrets(judged.words))
    if judged.verdict == "unknown":
        yield f"  {place:>7}  {text}"
        yield f"  {'':>7}  -> {words}"
    else:
        text = text if len(text) <= _ROOM else f"{text[: _ROOM - 3]}..."
        yield f"  {place:>7}  {text:<{_ROOM}}  {words}"


def note_lines(result: ImportResult) -> Iterator[str]:
    """Yield what is different, the file of the sweep, and the profile."""
    if result.script.notes:
        yield ""
    yield from (f"note: {one_line(note)}" for note in result.script.notes)
    if result.script.sweep_file:
        yield ""
        yield "sweep.csv, to be saved beside it:"
        yield from (f"  {one_line(line)}" for line in result.script.sweep_file.splitlines())


def profile_lines(result: ImportResult) -> Iterator[str]:
    """Yield the profile that holds what is the same for all jobs of the site."""
    if result.profile_path is not None:
        yield ""
        yield f"written  {one_line(str(result.profile_path))}"
        return
    rows = [line for line in result.profile_text.splitlines() if not line.startswith(("#", "extends"))]
    if rows:
        yield ""
        yield "the same for all jobs here, as a profile (hpcrun import --write NAME):"
        yield from (f"  {one_line(line)}" for line in rows)


def directive_lines(result: ImportResult) -> Iterator[str]:
    """Yield the #SBATCH options that differ."""
    if result.directives:
        yield ""
        yield "#SBATCH options that differ (the whole of both scripts: --diff):"
        yield from (f"  {one_line(hide_secrets(line))}" for line in result.directives)


def diff_lines(result: ImportResult) -> Sequence[str]:
    """Return the difference of the two scripts."""
    return [one_line(without_secrets(line)) for line in result.diff]


def import_json(result: ImportResult) -> dict[str, Any]:
    """Return the document of ``hpcrun import --json``."""
    return {
        "script": result.name,
        "verdict": result.verdict,
        "command_line": " ".join(result.words()) if result.script.program else None,
        "lines": [
            {
                "first": one.first,
                "last": one.last,
                "text": without_secrets(one.text),
                "verdict": one.verdict,
                "words": one.words,
            }
            for one in result.script.lines
        ],
        "notes": list(result.script.notes),
        "refusal": result.refusal.message if result.refusal else None,
        "profile": result.profile_text,
        "profile_path": None if result.profile_path is None else str(result.profile_path),
        "sweep_file": result.script.sweep_file,
        "directives": [hide_secrets(line) for line in result.directives],
        "diff": [without_secrets(line) for line in result.diff],
    }


def _shown_text(judged: JudgedLines) -> str:
    """Return the first of some judged lines, without secrets."""
    first, *others = without_secrets(judged.text).splitlines() or [""]
    return first.strip() + (" ..." if others else "")
