"""hpcrun tensorboard."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import RunsArgument
from hpcrun.cli.context import make_context
from hpcrun.cli.outcome import Outcome, Outcomes, note, printed
from hpcrun.errors import NotFoundError, PlanError

if TYPE_CHECKING:
    from hpcrun.features.trackers.tensorboard import LinkedRuns

SEARCH_EVERY_S = 60.0
"""How often new event files are looked for: of attempts and elements that start later."""


def tensorboard(
    runs: RunsArgument = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", min=1, max=65535, help="Port. Default: 6006, or a free one.", show_default=False
        ),
    ] = None,
    logdir: Annotated[
        list[Path] | None,
        typer.Option(
            "--logdir",
            metavar="DIR",
            help="Search DIR in place of the runs' working folders. Repeatable.",
            show_default=False,
            exists=True,
            file_okay=False,
        ),
    ] = None,
) -> Outcomes:
    """Start TensorBoard over some runs, until Ctrl-C.

    It shows the event files that the runs began to write, each run under its name.
    """
    import os
    import tempfile

    from hpcrun.actions.runs.find import find_element
    from hpcrun.features.trackers.display import found_lines
    from hpcrun.features.trackers.open_and_sync import show_page, tunnel
    from hpcrun.features.trackers.tensorboard import LinkedRuns, chosen_runs, free_port, plan_tensorboard

    context = make_context()
    found = [find_element(word, context.store) for word in runs or ["last"]]
    yield note(each.note for each in found)
    chosen = [one for each in found for one in chosen_runs(each.run, each.element)]
    with tempfile.TemporaryDirectory(prefix="hpcrun-tensorboard-", ignore_cleanup_errors=True) as folder:
        links = LinkedRuns(Path(folder, "runs"), chosen, context.store, [context.cwd / each for each in logdir or ()])
        links.update()
        if not links.found:
            raise _nothing(links)
        if (free := free_port(port)) is None:
            raise PlanError(f"port {port} is in use on {context.host}", hint="leave --port out to get a free one")
        server = plan_tensorboard(chosen, free, context.env)
        yield printed([*found_lines(links.found, links.cut_short), server.url])
        if not show_page(server.url, context.env):
            yield note(["on your own computer, first run this and leave it open:", f"  {tunnel(free, context.host)}"])
        yield note(["Ctrl-C ends TensorBoard; jobs are not affected"])
        ended = threading.Event()
        threading.Thread(target=_keep_searching, args=(links, ended), daemon=True).start()
        try:
            status = server.run(links.links, context.env)
        except OSError as error:
            raise PlanError(f"cannot start {server.python}: {os.strerror(error.errno or 0)}") from None
        finally:
            ended.set()
    yield Outcome(status=0 if status in (0, -2) else abs(status))


def _keep_searching(links: LinkedRuns, ended: threading.Event) -> None:
    while not ended.wait(SEARCH_EVERY_S):
        links.update()


def _nothing(links: LinkedRuns) -> NotFoundError:
    from hpcrun.views.text import visible

    places = ", ".join(sorted(visible(str(path)) for path in links.searched)[:6])
    return NotFoundError(
        f"no event files of TensorBoard that were begun while these runs ran, in {places}",
        hint="if the program writes them elsewhere, name the folder: --logdir DIR",
    )
