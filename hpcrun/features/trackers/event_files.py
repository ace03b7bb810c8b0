"""TensorBoard's event files of a run: those that its nodes began to write while it ran.

TensorBoard reads no variable of the environment: a program chooses the folder. The name of an event file has the time
at which it was begun, and the host: ``events.out.tfevents.1700000000.node7.4711.0``.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hpcrun.features.trackers.tracker_files import working_folder
from hpcrun.job.layout import RUN_ID, WITHIN, RunFolder
from hpcrun.runs.attempt import Attempt, attempts, hosts
from hpcrun.runs.record import Run

MOST_ENTRIES, DEEPEST, LONGEST_S = 50_000, 8, 10.0
"""Where a search ends: entries of folders, levels below the first folder, seconds."""
_NOT_SEARCHED = {".git", ".hg", ".svn", "node_modules", "__pycache__", "site-packages", ".aim", "conda-meta"}
_EVENTS = re.compile(r"events\.out\.tfevents\.(?P<began>\d{10})\.(?P<host>[^/]{1,255})", re.ASCII)
_SLACK_S = 2.0


@dataclass(frozen=True, slots=True)
class EventFile:
    """An event file.

    Attributes:
        root: the folder that was searched.
    """

    path: Path
    root: Path
    began_s: float
    host: str


@dataclass(frozen=True, slots=True)
class EventFiles:
    """The event files of an element of a run.

    Attributes:
        searched: the folders that were searched.
        cut_short: those of them that are too large to search all of them.
    """

    files: tuple[EventFile, ...]
    searched: tuple[Path, ...]
    cut_short: tuple[Path, ...] = ()


Search = Callable[[Path], tuple[list[EventFile], bool]]


def event_files(
    run: Run, folder: Path, element: int = 0, *, others: Sequence[Path] = (), look: Search | None = None
) -> EventFiles:
    """Find the event files of an element of a run, in its own folder and in its working folder.

    Args:
        others: folders to search in place of the working folder.
        look: ``search``, or one that remembers what it has searched: the elements of a sweep share a working folder.
    """
    look = look or search
    begun = list(attempts(folder, element))
    own = RunFolder(folder).element(element).path
    places = tuple(dict.fromkeys((own, *(others or (working_folder(run, folder),)))))
    found: dict[Path, EventFile] = {}
    cut_short = []
    if begun:
        for place in places:
            files, is_whole = look(place)
            cut_short += [] if is_whole else [place]
            # what lies in an element's own folder is of no other run
            found |= {file.path: file for file in files if place == own or is_of(file, begun)}
    return EventFiles(tuple(sorted(found.values(), key=lambda file: file.path)), places, tuple(cut_short))


def is_of(file: EventFile, begun: Iterable[Attempt]) -> bool:
    """Whether a file was begun during one of the attempts, on one of its nodes."""
    now_s = time.time()
    for attempt in begun:
        end_s = attempt.exit.ended_s if attempt.exit else now_s
        if attempt.started_s - _SLACK_S <= file.began_s <= end_s + _SLACK_S:
            return _is_on(file.host, {attempt.host, *hosts(attempt.folder)})
    return False


def _is_on(name: str, nodes: Collection[str]) -> bool:
    """Whether the rest of a file's name begins with a host; nodes have their names with and without a domain."""
    short = {node.partition(".")[0] for node in nodes if node}
    return name.partition(".")[0] in short


def search(root: Path) -> tuple[list[EventFile], bool]:
    """Return the event files below a folder, and whether all of the folder was searched. Links are not followed."""
    found: list[EventFile] = []
    left, until = MOST_ENTRIES, time.monotonic() + LONGEST_S
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop(0)
        for entry in _entries(folder):
            left -= 1
            if left < 0 or time.monotonic() > until:
                return found, False
            if match := _EVENTS.fullmatch(entry.name):
                if entry.is_file(follow_symlinks=False):
                    found.append(EventFile(Path(entry.path), root, float(match["began"]), match["host"]))
            elif depth < DEEPEST and _is_searched(entry):
                waiting.append((Path(entry.path), depth + 1))
    return found, True


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _is_searched(entry: os.DirEntry[str]) -> bool:
    if entry.name in _NOT_SEARCHED or not entry.is_dir(follow_symlinks=False):
        return False
    if RUN_ID.fullmatch(entry.name) and os.path.lexists(os.path.join(entry.path, WITHIN.record)):
        return False  # the folder of a run: a run's own element is searched by itself
    return not os.path.lexists(os.path.join(entry.path, "pyvenv.cfg"))
