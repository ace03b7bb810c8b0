"""What ``hpcrun top`` does to runs: it runs the same commands as a person would, and shows what they print.

Each runs in a process of its own, so that its questions, messages and errors cannot disturb the screen, and keys work
while it imports modules.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.features.top.rows import TopRow, job_id_of
from hpcrun.job import state
from hpcrun.job.parameters import index_ranges
from hpcrun.schedulers.process import run_command
from hpcrun.views.text import count, harmless, without_colours

WITHIN_S = 300.0
"""After this time a command is killed. It is long, since resubmit copies the code first."""
# Nothing is imported from the folder in which top was called: a project may have a typer.py.
_PROGRAM = (
    "import sys; root = sys.argv.pop(1); sys.path[:] = [*filter(None, sys.path), root]; "
    "from hpcrun.__main__ import main; main()"
)


@dataclass(frozen=True, slots=True)
class Verb:
    """Something that can be done to runs.

    Attributes:
        about: what it does, for the question.
        one, many: why it cannot be done to a run, or to several.
    """

    about: str
    one: str
    many: str


VERBS = {
    "cancel": Verb("Running jobs are terminated, pending ones are removed.", "has already ended", "have already ended"),
    "resubmit": Verb(
        "Each continues from its checkpoints, with the same options.", "has not ended yet", "have not ended yet"
    ),
    "hold": Verb("They stay pending until they are released.", "is not pending", "are not pending"),
    "release": Verb("Slurm may start them.", "is not pending", "are not pending"),
}
"""The command that does it → what to say of it."""


def possible(verb: str, rows: Sequence[TopRow]) -> list[TopRow]:
    """Return those of some rows to which a verb can be done."""

    def can(row: TopRow) -> bool:
        if row.run is None or row.status is None:
            return False
        if verb in ("cancel", "resubmit"):
            return row.status.final == (verb == "resubmit")
        going = [child.state for child in row.children] or [row.state]
        return state.PENDING in going

    # an element and its whole sweep: the element would be cancelled twice
    whole = {row.key for row in rows if not row.element}
    return [row for row in rows if can(row) and not (row.element and row.run and row.run.run.run_id in whole)]


def commands(verb: str, rows: Sequence[TopRow]) -> list[list[str]]:
    """Return the commands of hpcrun that do it, as a person would type them."""
    if verb != "resubmit":
        return [[verb, *(row.key for row in rows)]]
    elements: dict[str, list[int]] = {}
    for row in rows:
        chosen = elements.setdefault(row.key.partition("/")[0], [])
        if row.element:
            chosen.append(row.element.index)
    return [
        [verb, run_id, *(["--elements", index_ranges(sorted(chosen))] if chosen else [])]
        for run_id, chosen in elements.items()
    ]


def question(verb: str, rows: Sequence[TopRow], others: int, most: int) -> tuple[str, list[str]]:
    """Return a title that says what and how many, and the lines below it.

    Args:
        others: how many more were chosen, to which it cannot be done.
        most: how many runs are named.
    """
    elements = sum(row.element is not None for row in rows)
    nouns = [*([count(len(rows) - elements, "run")] if len(rows) > elements else []),
             *([count(elements, "element")] if elements else [])]  # fmt: skip
    lines = [_named(row) for row in rows[:most]]
    if len(rows) > most:
        lines.append(f"... and {len(rows) - most} more")
    lines += ["", VERBS[verb].about]
    impossible = f"it {VERBS[verb].one}" if others == 1 else f"they {VERBS[verb].many}"
    if others:
        lines.append(f"{count(others, 'other')} chosen: {impossible}.")
    return f"{verb.capitalize()} {' and '.join(nouns)}?", lines


def nothing_to_do(verb: str, rows: Sequence[TopRow]) -> str:
    """Return why a verb can be done to none of some rows."""
    if len(rows) < 2:
        return f"nothing to {verb}: {f'{rows[0].name} {VERBS[verb].one}' if rows else 'there is no run'}"
    noun = "elements" if all(row.element for row in rows) else "runs"
    who = f"both {noun}" if len(rows) == 2 else f"all {len(rows)} {noun}"
    return f"nothing to {verb}: {who} {VERBS[verb].many}"


def _named(row: TopRow) -> str:
    number = len(row.children)
    elements = f"  all {number} elements" if number > 1 else f"  {count(number, 'element')}" if number else ""
    return f"{row.name}  job {job_id_of(row)}  {row.state}{elements}"


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed.

    Attributes:
        line: as a person types it.
        lines: what it printed.
        ok: its exit status is 0.
    """

    line: str
    lines: tuple[str, ...]
    ok: bool


def run_hpcrun(argv: Sequence[str], env: Mapping[str, str]) -> Done:
    """Run a command of hpcrun, without a terminal, to its end."""
    root = str(Path(__file__).parents[3])
    done = run_command([sys.executable, "-c", _PROGRAM, root, *argv], timeout_s=WITHIN_S, env=env)
    text = without_colours(harmless(f"{done.stdout}\n{done.stderr}"))
    lines = tuple(line.rstrip() for line in text.splitlines() if line.strip())
    return Done(" ".join(["hpcrun", *argv]), lines or ("it printed nothing",), done.ok)
