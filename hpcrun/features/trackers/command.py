"""hpcrun open: the page of a run in its tracker, TensorBoard over several, and the upload of offline runs."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cli.complete import RunsArgument
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import flag, option
from hpcrun.cli.outcome import Outcome, Outcomes, note, printed, stderr, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import NotFoundError, PlanError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.runs.find import FoundElement
    from hpcrun.features.trackers.open_and_sync import SyncResult
    from hpcrun.features.trackers.tensorboard import LinkedRuns

SEARCH_EVERY_S = 60.0
"""How often new event files are looked for: of attempts and elements that start later."""
_LAST_PORT = 65535


def open_(
    runs: RunsArgument = None,
    url_only: bool = flag("--url", "Print only the address of the page, and open no browser."),
    tensorboard: bool = flag("--tensorboard", "Start TensorBoard over the runs, until Ctrl-C."),
    port: int | None = option("--port N", "Port of TensorBoard. Default: 6006, or a free one."),
    logdir: list[Path] | None = option("--logdir DIR", "Search DIR in place of the runs' working folders. Repeatable."),
    upload: bool = flag("--upload", "Upload the offline wandb runs of runs that have ended (wandb sync)."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Open the page of a run in wandb, MLflow or another tracker.

    Without a display it prints the address. What trackers wrote on disk is shown with the command that displays it.
    TensorBoard shows the event files that the runs began to write, each run under its name.
    """
    from hpcrun.actions.runs.find import find_element

    if url_only + tensorboard + upload > 1:
        raise UsageError("--url, --tensorboard and --upload cannot be combined", hint="choose one")
    if not tensorboard and (port is not None or logdir):
        raise UsageError(f"{'--logdir' if logdir else '--port'} has no effect without --tensorboard")
    if port is not None and not 0 < port <= _LAST_PORT:
        raise UsageError(f"--port {port}: must be from 1 to {_LAST_PORT}")
    if missing := [str(folder) for folder in logdir or () if not folder.is_dir()]:
        raise UsageError(f"--logdir {missing[0]}: there is no such folder")
    context = make_context()
    named = [find_element(word, context.store) for word in runs or ["last"]]
    yield note(each.note for each in named)
    if upload:
        yield from _upload(named, context, as_json=as_json)
    elif tensorboard:
        yield from _serve(named, context, port, logdir or [])
    elif len(named) > 1:
        raise UsageError(f"open shows the page of one run; unexpected: {(runs or [])[1]!r}",
                         hint="several runs beside each other: --tensorboard")  # fmt: skip
    else:
        yield from _page(named[0], (runs or ["last"])[0], context, url_only=url_only, as_json=as_json)


def _page(named: FoundElement, typed: str, context: Context, *, url_only: bool, as_json: bool) -> Outcomes:
    from hpcrun.features.trackers.display import display_hints, tracked_json, tracked_lines
    from hpcrun.features.trackers.open_and_sync import show_page, tracked, tunnel_to

    result = tracked(named.run, context.store.folder(named.run.run_id), named.element)
    hints = display_hints(result, typed)
    page = result.page
    if page is None and not hints:
        raise NotFoundError(
            f"run {named.run.name} has no wandb or MLflow page",
            hint="hpcrun reads what wandb and MLflow print, and looks for files in the folder where the run started",
        )
    if url_only:
        if page is None:
            raise NotFoundError(f"{named.run.name} has no page, only files on disk", hint=hints[0])
        yield Outcome(lambda: [stdout([page])], lambda: tracked_json(result))
        return
    shown = [stdout(tracked_lines(result)), stderr(f"hint: {hint}" for hint in hints)]
    yield Outcome(lambda: shown, lambda: tracked_json(result))
    if page and not as_json:
        opened = show_page(page, context.env)
        if not opened and (tunnel := tunnel_to(page, context.host)):
            yield note(["on your own computer, first run this and leave it open:", f"  {tunnel}"])


def _upload(named: Sequence[FoundElement], context: Context, *, as_json: bool) -> Outcomes:
    """Call `wandb sync` of the run's own Python, with the user's own login of wandb."""
    from hpcrun.features.trackers.display import sync_json, sync_lines
    from hpcrun.features.trackers.open_and_sync import sync_wandb

    results: list[SyncResult] = []
    for each in named:
        results.append(result := sync_wandb(each.run, context.store, each.element, context.env))
        if not as_json:
            yield printed(sync_lines(result))
    failures = [result.failure for result in results if result.failure]
    failure = PlanError(failures[0], hint=_hint(failures[0])) if failures else None
    yield Outcome(document=lambda: {"kind": "sync", "runs": [sync_json(result) for result in results]}, failure=failure)


def _hint(failure: str) -> str:
    again = "again: hpcrun open --upload"
    return f"log in with `wandb login`, then {again}" if "API key" in failure else again


def _serve(named: Sequence[FoundElement], context: Context, port: int | None, logdir: Sequence[Path]) -> Outcomes:
    from hpcrun.features.trackers.display import found_lines
    from hpcrun.features.trackers.open_and_sync import show_page, tunnel
    from hpcrun.features.trackers.tensorboard import LinkedRuns, chosen_runs, free_port, plan_tensorboard

    chosen = [one for each in named for one in chosen_runs(each.run, each.element)]
    with tempfile.TemporaryDirectory(prefix="hpcrun-tensorboard-", ignore_cleanup_errors=True) as folder:
        links = LinkedRuns(Path(folder, "runs"), chosen, context.store, [context.cwd / each for each in logdir])
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
