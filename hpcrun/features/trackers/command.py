"""hpcrun open: the page of a run in its tracker, TensorBoard, and the upload of offline runs.

TensorBoard can show several runs.
"""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hpcrun.actions.runs.find import FoundRun
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import argument, check_one_of, flag, option
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, note, printed, stderr, stdout
from hpcrun.errors import NotFoundError, PlanError, UsageError
from hpcrun.features.trackers.tensorboard import (
    ChosenRun,
    LinkedRuns,
    chosen_runs,
    event_files,
    free_port,
    run_tensorboard,
    tensorboard_arguments,
    tensorboard_url,
)
from hpcrun.features.trackers.tracker_files import (
    SyncResult,
    TrackerRun,
    env_of,
    is_local,
    page_url,
    python_with,
    sync_wandb,
    tracker_runs,
)
from hpcrun.machine.process import open_in_browser, user_name
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.elements import all_elements
from hpcrun.views.text import count, fields_of, visible

_LAST_PORT = 65535
_SHOWN = 20


def open_(
    runs: list[str] | None = argument(
        "RUN",
        "Job ids, run ids, names, or 'last', the default. RUN/3 is element 3 of a sweep.",
        complete=run_name,
    ),
    url_only: bool = flag("--url", "Print only the address of the page, and open no browser."),
    tensorboard: bool = flag("--tensorboard", "Start TensorBoard over the runs, until Ctrl-C."),
    port: int | None = option("--port N", "Port of TensorBoard. Default: 6006, or a free one."),
    logdir: list[Path] | None = option(
        "--logdir DIR", "Search DIR in place of the runs' working folders. Repeatable."
    ),
    upload: bool = flag(
        "--upload", "Upload the offline wandb runs of runs that have ended (wandb sync)."
    ),
    as_json: JsonOption = False,
) -> Outcomes:
    """Open the page of a run in wandb, MLflow or another tracker.

    Without a display it prints the address. What trackers wrote on disk is shown with the command
    that displays it. TensorBoard shows the event files that the runs began to write, each run under
    its name.
    """
    check_one_of(url=url_only, tensorboard=tensorboard, upload=upload)
    if tensorboard:
        _check_served(port, logdir or [])
    elif port is not None or logdir:
        unused = "--logdir" if logdir else "--port"
        raise UsageError(f"{unused} has no effect without --tensorboard")
    context = make_context()
    typed = runs or ["last"]
    named = yield from context.named(typed)
    if upload:
        yield from _upload(named, context, as_json=as_json)
    elif tensorboard:
        yield from _serve(named, context, port, logdir or [])
    elif len(named) > 1:
        raise UsageError(
            f"open shows the page of one run; unexpected: {typed[1]!r}",
            hint="several runs beside each other: --tensorboard",
        )
    else:
        yield from _page(named[0], typed[0], context, url_only=url_only, as_json=as_json)


def _check_served(port: int | None, logdir: Sequence[Path]) -> None:
    if port is not None and not 0 < port <= _LAST_PORT:
        raise UsageError(f"--port {port}: must be from 1 to {_LAST_PORT}")
    for folder in logdir:
        if not folder.is_dir():
            raise UsageError(f"--logdir {folder}: there is no such folder")


# --- a page --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tracked:
    """What the trackers of a run or an element have: runs, and event files for TensorBoard."""

    runs: Sequence[TrackerRun]
    event_files: Sequence[Path]
    server: str | None  # the MLflow server of the job, where no page of a run of it is known
    # the page to open: of the newest attempt and the lowest rank, else the server's
    page: str | None


def tracked(named: FoundRun, context: Context) -> Tracked:
    """Return what the trackers of a run, or of a named element of a sweep, have.

    The run must have started.

    Raises:
        NotFoundError: the run is a sweep and no element is named, or the run has not started yet.
    """
    run = named.run
    folder = context.store.folder(run.run_id)
    elements = all_elements(run).parameters
    if named.element is None and len(elements) > 1:
        raise NotFoundError(
            f"{run.name} is a sweep of {len(elements)} elements, each with its own pages",
            hint=f"name one: hpcrun open {run.job_id or run.run_id}/{min(elements)}",
        )
    index = min(elements) if named.element is None else named.element
    if last_attempt(folder, index) is None:
        raise NotFoundError(
            f"{run.name} has not started yet", hint="hpcrun status shows when it starts"
        )
    runs = tracker_runs(run, folder, index)
    uri = dict(env_of(run)).get("MLFLOW_TRACKING_URI")
    has_page = any(each.url for each in runs if each.tracker == "MLflow")
    server = page_url(uri) if uri and not has_page else None
    page = next((each.url for each in runs if each.url), server)
    paths = [file.path for file in event_files(run, folder, index, {})]
    return Tracked(runs, paths, server, page)


def _page(
    named: FoundRun, typed: str, context: Context, *, url_only: bool, as_json: bool
) -> Outcomes:
    result = tracked(named, context)
    page = result.page
    hints = display_hints(result, typed)
    if page is None and not hints:
        raise NotFoundError(
            f"run {named.run.name} has no wandb or MLflow page",
            hint="hpcrun reads what wandb and MLflow print, and looks for files in the folder "
            "where the run started",
        )
    if url_only:
        if page is None:
            raise NotFoundError(f"{named.run.name} has no page, only files on disk", hint=hints[0])
        yield Outcome(lambda: [stdout([page])], lambda: _tracked_json(result, named))
        return
    shown = [stdout(tracked_lines(result)), stderr(f"hint: {hint}" for hint in hints)]
    yield Outcome(lambda: shown, lambda: _tracked_json(result, named))
    if page and not as_json and not _show_page(page, context.env) and is_local(page):
        default_port = 443 if page.startswith("https") else 80
        yield _tunnel(urlsplit(page).port or default_port, context)


def tracked_lines(result: Tracked) -> list[str]:
    """Return the trackers' runs, a line each: the page, or what is on disk."""
    rows = [_Line(each.tracker, each.place, _owner(each)) for each in result.runs[:_SHOWN]]
    if result.server:
        rows.append(_Line("MLflow", result.server, "the server of the job"))
    if result.event_files:
        folders = sorted({str(path.parent) for path in result.event_files})
        place = f"{count(len(result.event_files), 'event file')} in {folders[0]}"
        if len(folders) > 1:
            place += f" and {len(folders) - 1} more"
        rows.append(_Line("TensorBoard", place))
    wide = max((len(row.tracker) for row in rows), default=0)
    lines = []
    for row in rows:
        line = f"{row.tracker:{wide}}  {visible(row.place)}"
        if row.owner:
            line += f"  ({row.owner})"
        lines.append(line)
    left = len(result.runs) - _SHOWN
    if left > 0:
        lines.append(f"and {left} more: --json has all")
    return lines


@dataclass(frozen=True, slots=True)
class _Line:
    """A run of a tracker, or its files, as a line."""

    tracker: str
    place: str
    owner: str = ""  # the rank and the attempt that made it, or what it belongs to


def _owner(each: TrackerRun) -> str:
    parts = []
    if each.rank:
        parts.append(f"rank {each.rank}")
    if each.attempt:
        parts.append(f"attempt {each.attempt + 1}")
    return ", ".join(parts)


def display_hints(result: Tracked, typed: str) -> list[str]:
    """Return the commands that show or upload what trackers wrote only on disk.

    The commands name the run as the user typed its name.
    """
    run = shlex.quote(typed)
    hints = []
    if any(each.offline and not each.synced for each in result.runs):
        hints.append(
            f"when the job has ended, upload the offline wandb runs: hpcrun open --upload {run}"
        )
    if result.event_files:
        hints.append(f"hpcrun open --tensorboard {run} shows the event files")
    without_page = [each for each in result.runs if each.folder and not each.url]
    places = [(each.tracker, str(each.folder)) for each in without_page]
    for tracker, place in dict.fromkeys(places):
        if tracker == "MLflow" and not result.server:
            store = f"sqlite:///{place}" if place.endswith(".db") else place
            hints.append(f"mlflow ui --host 127.0.0.1 --backend-store-uri {shlex.quote(store)}")
        elif tracker == "Aim":
            hints.append(f"aim up --host 127.0.0.1 --repo {shlex.quote(place)}")
    return [visible(hint) for hint in hints]


def _tracked_json(result: Tracked, named: FoundRun) -> dict[str, Any]:
    runs = []
    for each in result.runs:
        runs.append({**asdict(each), "folder": str(each.folder) if each.folder else None})
    return {
        "kind": "trackers",
        "run_id": named.run.run_id,
        "element": named.element,
        "page": result.page,
        "runs": runs,
        "event_files": [str(path) for path in result.event_files],
    }


def _show_page(url: str, env: Mapping[str, str]) -> bool:
    """Open a page in a browser if there is a display; return whether it was opened."""
    has_display = sys.platform == "darwin" or bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY"))
    return has_display and open_in_browser(url)


def _tunnel(port: int, context: Context) -> Outcome:
    """Print the ssh command that forwards a port of this machine's own address.

    Not of ``localhost``: as that is often ``[::1]`` first, where another user may listen on the
    same port.
    """
    command = f"ssh -N -L {port}:127.0.0.1:{port} {user_name()}@{context.host}"
    return note(["on your own computer, first run this and leave it open:", f"  {command}"])


# --- the upload of offline runs, and TensorBoard -------------------------------------------------


def _upload(named: Sequence[FoundRun], context: Context, *, as_json: bool) -> Outcomes:
    """Call `wandb sync` of the run's own Python, with the user's own login of wandb."""
    results: list[SyncResult] = []
    for each in named:
        result = sync_wandb(each.run, context.store, each.element, context.env)
        results.append(result)
        if not as_json:
            yield printed(_sync_lines(result))
    problem = next((result.failure for result in results if result.failure), None)
    hint = "again: hpcrun open --upload"
    if problem and "API key" in problem:
        hint = f"log in with `wandb login`, then {hint}"
    failure = PlanError(problem, hint=hint) if problem else None
    documents = [_sync_json(result) for result in results]
    yield Outcome(document=lambda: {"kind": "sync", "runs": documents}, failure=failure)


def _sync_json(result: SyncResult) -> dict[str, Any]:
    return {
        "run_id": result.run.run_id,
        "uploaded": [str(path) for path in result.uploaded],
        "uploaded_before": [str(path) for path in result.before],
        "running_elements": list(result.running),
        **fields_of(result, "pages failure"),
    }


def _sync_lines(result: SyncResult) -> list[str]:
    """Return what became of a run's offline wandb runs."""
    lines = [f"uploaded  {visible(str(path))}" for path in result.uploaded]
    lines += [f"page      {page}" for page in result.pages]
    if result.before:
        lines.append(
            f"{count(len(result.before), 'wandb run')} of {result.run.name} uploaded before"
        )
    if result.running:
        number = len(result.running)
        which = count(number, "element") if number > 1 else "it"
        lines.append(f"{result.run.name}: left out what {which} wrote, since the job has not ended")
    if not lines and result.failure is None:
        lines.append(f"{result.run.name} has no offline wandb runs")
    return lines


def _serve(
    named: Sequence[FoundRun], context: Context, port: int | None, logdir: Sequence[Path]
) -> Outcomes:
    chosen: list[ChosenRun] = []
    for each in named:
        chosen += chosen_runs(each.run, each.element)
    with tempfile.TemporaryDirectory(
        prefix="hpcrun-tensorboard-", ignore_cleanup_errors=True
    ) as folder:
        links = LinkedRuns(
            Path(folder, "runs"), chosen, context.store, [context.cwd / each for each in logdir]
        )
        links.update()
        if not links.counts:
            places = ", ".join(sorted(visible(str(path)) for path in links.searched)[:6])
            raise NotFoundError(
                f"no event files of TensorBoard that were begun while these runs ran, in {places}",
                hint="if the program writes them elsewhere, name the folder: --logdir DIR",
            )
        free = free_port(port)
        if free is None:
            raise PlanError(
                f"port {port} is in use on {context.host}",
                hint="leave --port out to get a free one",
            )
        python = python_with("tensorboard", chosen[0].run, context.env)
        secret = secrets.token_urlsafe(12)
        url = tensorboard_url(free, secret)
        yield printed([*_linked_lines(links), url])
        if not _show_page(url, context.env):
            yield _tunnel(free, context)
        yield note(["Ctrl-C ends TensorBoard; jobs are not affected"])
        ended = threading.Event()
        threading.Thread(target=links.keep_searching, args=(ended,), daemon=True).start()
        try:
            arguments = tensorboard_arguments(links.links, free, secret)
            status = run_tensorboard(python, arguments, Path(folder), context.env)
        except OSError as error:
            raise PlanError(f"cannot start {python}: {os.strerror(error.errno or 0)}") from None
        finally:
            ended.set()
    yield Outcome(status=0 if status in (0, -2) else abs(status))


def _linked_lines(links: LinkedRuns) -> list[str]:
    """Return what TensorBoard shows: the runs with the number of their event files.

    Further lines name the folders that were not searched to the end.
    """
    names = sorted(links.counts)
    lines = [f"{name}  {count(links.counts[name], 'event file')}" for name in names[:_SHOWN]]
    if len(names) > _SHOWN:
        lines.append(f"and {len(names) - _SHOWN} more")
    for path, (_, is_whole) in links.searched.items():
        if not is_whole:
            shown = visible(str(path))
            lines.append(f"{shown} is too large to search all of it: --logdir DIR names a folder")
    return lines
