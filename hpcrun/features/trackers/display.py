"""open, sync and tensorboard: pages of trackers, uploads, and what TensorBoard shows; and a row of status --verbose."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcrun.features.trackers.open_and_sync import SyncResult, Tracked
from hpcrun.features.trackers.tracker_files import TrackerRun
from hpcrun.views.text import count, visible

_SHOWN = 20


def tracked_lines(result: Tracked) -> list[str]:
    """Return the trackers' runs, a line each: the page, or what is on disk."""
    rows = [(each.tracker, _place(each), _owner(each)) for each in result.runs[:_SHOWN]]
    rows += [("MLflow", result.server, "the server of the job")] if result.server else []
    if result.events.files:
        folders = {file.path.parent for file in result.events.files}
        rows.append(("TensorBoard", f"{count(len(result.events.files), 'event file')} in {_some(folders)}", ""))
    wide = max((len(name) for name, _, _ in rows), default=0)
    lines = [f"{name:{wide}}  {visible(place)}" + (f"  ({owner})" if owner else "") for name, place, owner in rows]
    more = len(result.runs) - _SHOWN
    return [*lines, f"and {more} more: --json has all"] if more > 0 else lines


def _place(each: TrackerRun) -> str:
    if each.url:
        return each.url
    offline = ", offline, uploaded" if each.synced else ", offline" if each.offline else ""
    # the name of wandb's folder ends with the id, which stands beside it
    folder = each.folder.parent if each.folder and each.tracker == "wandb" else each.folder
    return f"run {each.id}{offline} in {folder}" if folder else f"run {each.id}"


def _owner(each: TrackerRun) -> str:
    parts = [f"rank {each.rank}"] if each.rank else []
    return ", ".join([*parts, *([f"attempt {each.attempt + 1}"] if each.attempt else [])])


def _some(folders: Collection[Path]) -> str:
    first = min(folders, key=str)
    return str(first) if len(folders) == 1 else f"{first} and {len(folders) - 1} more"


def display_hints(result: Tracked, word: str) -> list[str]:
    """Return the commands that show or upload what trackers wrote on disk only.

    Args:
        word: the run, as it was named.
    """
    run = shlex.quote(word)
    hints = []
    if any(each.offline and not each.synced for each in result.runs):
        hints.append(f"when the job has ended, upload the offline wandb runs: hpcrun open --upload {run}")
    if result.events.files:
        hints.append(f"hpcrun open --tensorboard {run} shows the event files")
    places = dict.fromkeys((each.tracker, str(each.folder)) for each in result.runs if each.folder and not each.url)
    for tracker, place in places:
        if tracker == "MLflow" and not result.server:
            store = f"sqlite:///{place}" if place.endswith(".db") else place
            hints.append(f"mlflow ui --host 127.0.0.1 --backend-store-uri {shlex.quote(store)}")
        elif tracker == "Aim":
            hints.append(f"aim up --host 127.0.0.1 --repo {shlex.quote(place)}")
    return [visible(hint) for hint in hints]


def tracked_json(result: Tracked) -> dict[str, Any]:
    """Return the same as JSON."""
    return {
        "kind": "trackers",
        "run_id": result.run.run_id,
        "element": result.element,
        "page": result.page,
        "runs": [
            {
                "tracker": each.tracker,
                "id": each.id,
                "url": each.url,
                "folder": None if each.folder is None else str(each.folder),
                "rank": each.rank,
                "attempt": each.attempt,
                "offline": each.offline,
                "synced": each.synced,
            }
            for each in result.runs
        ],
        "event_files": [str(file.path) for file in result.events.files],
    }


def tracker_rows(runs: Sequence[TrackerRun]) -> list[tuple[str, str]]:
    """Return the rows of status --verbose: label and page, each page once."""
    return list(dict.fromkeys((each.tracker.lower(), _place(each)) for each in runs))[:4]


def sync_lines(result: SyncResult) -> list[str]:
    """Return what became of a run's offline wandb runs."""
    lines = [f"uploaded  {visible(str(path))}" for path in result.uploaded]
    lines += [f"page      {page}" for page in result.pages]
    if result.before:
        lines.append(f"{count(len(result.before), 'wandb run')} of {result.run.name} uploaded before")
    if result.running:
        which = count(len(result.running), "element") if len(result.running) > 1 else "it"
        lines.append(f"{result.run.name}: left out what {which} wrote, since the job has not ended")
    if not lines and result.failure is None:
        lines.append(f"{result.run.name} has no offline wandb runs")
    return lines


def sync_json(result: SyncResult) -> dict[str, Any]:
    """Return the same as JSON."""
    return {
        "run_id": result.run.run_id,
        "uploaded": [str(path) for path in result.uploaded],
        "uploaded_before": [str(path) for path in result.before],
        "running_elements": list(result.running),
        "pages": list(result.pages),
        "failure": result.failure,
    }


def found_lines(found: Mapping[str, int], cut_short: Collection[Path]) -> list[str]:
    """Return what TensorBoard shows: the runs with their event files, and folders that were not searched to the end."""
    names = sorted(found)
    lines = [f"{name}  {count(found[name], 'event file')}" for name in names[:_SHOWN]]
    lines += [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return [
        *lines,
        *(f"{visible(str(path))} is too large to search all of it: --logdir DIR names a folder" for path in cut_short),
    ]
