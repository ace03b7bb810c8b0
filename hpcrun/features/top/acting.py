"""Doing something to runs from a screen: it asks once, runs the command in the background, and shows its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual.app import App

from hpcrun.features.top.commands import Done, commands, nothing_to_do, possible, question, run_hpcrun
from hpcrun.features.top.reader import Reader
from hpcrun.features.top.rows import TopRow
from hpcrun.features.top.screen import BOLD, PLAIN, Confirmation, Dialog, TopScreen
from hpcrun.views.text import count

_MOST_NAMED = 10
_TELLING = ("submitted", "cancelled", "held", "released")


def act(screen: TopScreen, reader: Reader, verb: str, rows: Sequence[TopRow], then: Callable[[], object]) -> None:
    """Ask once, do it, and show what the command says.

    Args:
        verb: one of ``VERBS``.
        then: is called when it has been done.
    """
    chosen = possible(verb, rows)
    if not chosen:
        screen.say(nothing_to_do(verb, rows))
        return
    title, lines = question(verb, chosen, len(rows) - len(chosen), _MOST_NAMED)
    text = [[(line, PLAIN)] for line in lines]
    keys = [("y", BOLD), (" yes   ", PLAIN), ("n", BOLD), (" no", PLAIN)]

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

    screen.app.push_screen(Confirmation([*text, [], keys], title), answered)


def _say(screen: TopScreen, text: str) -> None:
    """Say it on the screen that is shown now; the one that asked may have been left."""
    app: App[object] = screen.app
    shown = next((each for each in reversed(app.screen_stack) if isinstance(each, TopScreen)), screen)
    shown.say(text, BOLD)


def summary(results: Sequence[Done]) -> str:
    """Return in one line what commands printed: what failed, else what was submitted, cancelled, held or released."""
    first = next((done for done in results if not done.ok), results[0])
    if first.ok and (together := _together([line for done in results for line in done.lines])):
        return f"{together}   (m: details)"
    telling = next((line for line in first.lines if line.startswith(_TELLING if first.ok else "hpcrun: ")), None)
    lines = sum(len(done.lines) for done in results)
    return (telling or first.lines[0]) + (f"   ({count(lines - 1, 'more line')}: m)" if lines > 1 else "")


def _together(lines: Sequence[str]) -> str:
    """Return ``cancelled 3 elements of job 31`` for lines of several runs or elements; empty of one."""
    told = [words for line in lines if len(words := line.split()) > 1 and words[0] in _TELLING]
    if len(told) < 2 or len({words[0] for words in told}) > 1:
        return ""
    elements = [words for words in told if words[1] == "element"]
    runs = len(told) - len(elements)
    jobs = {words[5].rstrip(",") for words in elements if words[3:5] == ["of", "job"]}
    of = f" of job {jobs.pop()}" if len(jobs) == 1 else ""
    nouns = [*([count(runs, "run")] if runs else []),
             *([count(len(elements), "element") + of] if elements else [])]  # fmt: skip
    return f"{told[0][0]} {' and '.join(nouns)}"


def show_done(screen: TopScreen, results: Sequence[Done]) -> None:
    """Show what was done since the start, each command with what it printed."""
    if not results:
        screen.say("nothing was done so far")
        return
    lines = [
        [(f"{'  ' if number else '$ '}{text}", PLAIN if number else BOLD)]
        for done in results
        for number, text in enumerate((done.line, *done.lines))
    ]
    screen.app.push_screen(Dialog(lines, "what was done (j/k scroll, esc closes)"))
