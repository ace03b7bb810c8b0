"""What ``hpcrun top`` does to runs: ask once, run a command, and show what the command prints.

The command is the one that a person would type. Each command runs in a process of its own, so that
its questions, messages and errors cannot disturb the screen, and keys work while the process
imports modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.text import Text
from textual.app import App

from hpcrun.features.top.reader import Done
from hpcrun.features.top.rows import TopRow, job_id_of
from hpcrun.features.top.screen import Confirmation, Dialog, TopScreen
from hpcrun.job import job_states as state
from hpcrun.job.text.units import index_ranges
from hpcrun.machine.process import run_command
from hpcrun.views.text import count, harmless, visible, without_colours

# after this time a command is killed. It is long, since resubmit copies the code first
WITHIN_S = 300.0
# Nothing is imported from the folder in which top was called: a project may have a typer.py.
_PROGRAM = (
    "import sys; sys.argv[0] = 'hpcrun'; root = sys.argv.pop(1); "
    "sys.path[:] = [*filter(None, sys.path), root]; "
    "from hpcrun.__main__ import main; main()"
)
_MOST_NAMED = 10
_TELLING = ("submitted", "cancelled", "being cancelled", "held", "released")
# command → what it does, for the question; why it cannot be done to a run
VERBS = {
    "cancel": ("Running jobs are terminated, pending ones are removed.", "already ended"),
    "resubmit": (
        "Each has the same options, and its checkpoints if it wrote any.",
        "not ended yet",
    ),
    "hold": ("They stay pending until they are released.", "not pending"),
    "release": ("Slurm may start them.", "not pending"),
}


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
    todo = []
    for row in rows:
        is_in_sweep = row.element and row.run and row.run.run.run_id in whole
        if can(row) and not is_in_sweep:
            todo.append(row)
    return todo


def commands(verb: str, rows: Sequence[TopRow]) -> list[list[str]]:
    """Return the commands of hpcrun that do it, once the person has agreed."""
    if verb != "resubmit":
        return [[verb, "--yes", *(row.key for row in rows)]]
    elements: dict[str, list[int]] = {}
    for row in rows:
        chosen = elements.setdefault(row.key.partition("/")[0], [])
        if row.element:
            chosen.append(row.element.index)
    lines = []
    for run_id, chosen in elements.items():
        line = [verb, run_id]
        if chosen:
            line += ["--elements", index_ranges(sorted(chosen))]
        lines.append(line)
    return lines


def question(verb: str, rows: Sequence[TopRow], others: int) -> tuple[str, list[str]]:
    """Return a title that says what to do and with how many runs, and the lines below the title.

    ``others`` is the number of further chosen runs for which the action is impossible.
    """
    about, why_not = VERBS[verb]
    lines = []
    for row in rows[:_MOST_NAMED]:
        number = len(row.children)
        line = f"{row.name}  job {job_id_of(row)}  {row.state}"
        if number > 1:
            line += f"  all {number} elements"
        elif number:
            line += f"  {count(number, 'element')}"
        lines.append(line)
    if len(rows) > _MOST_NAMED:
        lines.append(f"... and {len(rows) - _MOST_NAMED} more")
    lines += ["", about]
    if others:
        lines.append(f"{count(others, 'other')} chosen: {why_not}.")
    return f"{verb.capitalize()} {_counted(rows)}?", lines


def _counted(rows: Sequence[TopRow]) -> str:
    """Return ``1 run and 3 elements``."""
    elements = sum(row.element is not None for row in rows)
    numbers = ((len(rows) - elements, "run"), (elements, "element"))
    return " and ".join(count(number, noun) for number, noun in numbers if number)


def nothing_to_do(verb: str, rows: Sequence[TopRow]) -> str:
    """Return why a verb can be done to none of some rows."""
    if not rows:
        return f"nothing to {verb}: there is no run"
    about = rows[0].name if len(rows) == 1 else _counted(rows)
    return f"nothing to {verb}: {about} ({VERBS[verb][1]})"


def run_hpcrun(argv: Sequence[str], env: Mapping[str, str]) -> Done:
    """Run a command of hpcrun, without a terminal, to its end."""
    root = str(Path(__file__).parents[3])
    done = run_command([sys.executable, "-c", _PROGRAM, root, *argv], timeout_s=WITHIN_S, env=env)
    text = without_colours(harmless(f"{done.stdout}\n{done.stderr}"))
    lines = tuple(line.rstrip() for line in text.splitlines() if line.strip())
    return Done(" ".join(["hpcrun", *argv]), lines or ("it printed nothing",), done.ok)


def act(screen: TopScreen, verb: str, rows: Sequence[TopRow], then: Callable[[], object]) -> None:
    """Ask once, do it in the background, show what the command printed, and call ``then``."""
    reader = screen.reader
    chosen = possible(verb, rows)
    if not chosen:
        screen.say(nothing_to_do(verb, rows))
        return
    title, lines = question(verb, chosen, len(rows) - len(chosen))
    text = Text("\n".join(visible(line) for line in (*lines, "", "y yes   n no")))

    def answered(yes: bool | None) -> None:
        if not yes:
            screen.say("nothing was done")
            return
        todo = commands(verb, chosen)
        screen.say(f"hpcrun {verb} ... ({count(len(chosen), 'job')})")
        reader.in_background(lambda: [run_hpcrun(argv, reader.env) for argv in todo], done, failed)

    def done(results: list[Done]) -> None:
        reader.done += results
        reader.refresh()
        _say(screen, summary(results))
        then()

    def failed(error: Exception) -> None:
        _say(screen, f"hpcrun {verb}: {error}")

    screen.app.push_screen(Confirmation(text, title), answered)


def _say(screen: TopScreen, text: str) -> None:
    """Say it on the screen that is shown now; the one that asked may have been left."""
    app: App[object] = screen.app
    shown = screen
    for each in app.screen_stack:  # the screen that is shown is the last
        if isinstance(each, TopScreen):
            shown = each
    shown.say(text, "bold")


def summary(results: Sequence[Done]) -> str:
    """Return in one line what commands printed.

    The line says what failed, else what was submitted, cancelled, held or released.
    """
    first = next((done for done in results if not done.ok), results[0])
    beginnings = _TELLING if first.ok else ("hpcrun: ",)
    telling = [line for line in first.lines if line.startswith(beginnings)]
    text = telling[0] if telling else first.lines[0]
    lines = sum(len(done.lines) for done in results)
    if lines > 1:
        text += f"   ({count(lines - 1, 'more line')}: m)"
    return text


def show_done(screen: TopScreen) -> None:
    """Show what was done since the start, each command with what it printed."""
    if not screen.reader.done:
        screen.say("nothing was done so far")
        return
    text = Text()
    for done in screen.reader.done:
        text.append(f"$ {done.line}\n", "bold")
        for line in done.lines:
            text.append(f"  {line}\n")
    text.rstrip()
    screen.app.push_screen(Dialog(text, "what was done (j/k scroll, esc closes)"))
