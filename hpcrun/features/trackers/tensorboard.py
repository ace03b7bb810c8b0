"""TensorBoard over the event files of the chosen runs, each run under a name of its own.

TensorBoard reads no variable of the environment: a program chooses the folder. The name of an event
file has the time at which it was begun, and the host:
``events.out.tfevents.1700000000.node7.4711.0``. A run's files are those that its nodes began to
write while it ran.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from hpcrun.features.trackers.tracker_files import NOT_FROM_HERE, working_folder
from hpcrun.files.writing import make_folder
from hpcrun.job.request.parameters import Parameters, parameters_text
from hpcrun.job.run_paths import RUN_ID, WITHIN, RunFolder
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.runs.attempt import Attempt, attempts, hosts
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore

MOST_ENTRIES = 50_000
LONGEST_S = 10.0
"""Where a search ends, which goes level by level: entries of folders, seconds."""
_NOT_SEARCHED = {
    ".git",
    ".hg",
    ".svn",
    "node_modules",
    "__pycache__",
    "site-packages",
    ".aim",
    "conda-meta",
}
_EVENTS = re.compile(r"events\.out\.tfevents\.(?P<began>\d{10})\.(?P<host>[^/]{1,255})", re.ASCII)
_SLACK_S = 2.0
SEARCH_EVERY_S = 60.0
PORT = 6006  # tensorBoard's own default, taken if it is free: a tunnel of yesterday then still fits
SEVERAL = "several-runs"  # the name for files that may be of more than one of the chosen runs
_LONGEST_NAME = 120
_ARGUMENTS = "HPCRUN_TENSORBOARD"
# The arguments go through the environment, which other users cannot read as they can a command
# line: they have the secret part of the address.
_START = (
    f"{NOT_FROM_HERE}import json, os, runpy; "
    f"sys.argv[1:] = json.loads(os.environ.pop({_ARGUMENTS!r})); "
    "runpy.run_module('tensorboard.main', run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True, slots=True)
class EventFile:
    """An event file; ``root`` is the folder that was searched."""

    path: Path
    root: Path
    began_s: float
    host: str


Searched = dict[Path, tuple[list[EventFile], bool]]
"""Folder → the event files below it, and whether all of it was searched."""


def event_files(
    run: Run, folder: Path, element: int, searched: Searched, others: Sequence[Path] = ()
) -> list[EventFile]:
    """Return the event files of an element, in its own folder and in its working folder.

    If ``others`` names folders, these replace the working folder. A folder that is among the
    ``searched`` ones is not searched again.
    """
    begun = list(attempts(folder, element))
    inside = RunFolder(folder).element(element).path
    files: dict[Path, EventFile] = {}
    for place in (inside, *(others or (working_folder(run, folder),))):
        if place not in searched:
            searched[place] = search(place)
        below, _ = searched[place]
        for file in below:
            # what lies in an element's own folder is of no other run
            if place == inside or is_of(file, begun):
                files[file.path] = file
    return sorted(files.values(), key=lambda file: file.path)


def is_of(file: EventFile, begun: Iterable[Attempt]) -> bool:
    """Whether a file was begun during one of the attempts, on one of its nodes."""
    now_s = time.time()
    for attempt in begun:
        end_s = attempt.exit.ended_s if attempt.exit else now_s
        if attempt.started_s - _SLACK_S <= file.began_s <= end_s + _SLACK_S:
            # a node's name may have a domain, and may lack it
            nodes = [attempt.host, *hosts(attempt.folder)]
            names = {node.partition(".")[0] for node in nodes if node}
            return file.host.partition(".")[0] in names
    return False


def search(root: Path) -> tuple[list[EventFile], bool]:
    """Return the event files below a folder, and whether all of the folder was searched.

    Links are not followed.
    """
    files: list[EventFile] = []
    left = MOST_ENTRIES
    until = time.monotonic() + LONGEST_S
    waiting = [root]
    while waiting:
        for entry in _entries(waiting.pop(0)):
            left -= 1
            if left < 0 or time.monotonic() > until:
                return files, False
            match = _EVENTS.fullmatch(entry.name)
            if match:
                if entry.is_file(follow_symlinks=False):
                    files.append(
                        EventFile(Path(entry.path), root, float(match["began"]), match["host"])
                    )
            elif _is_searched(entry):
                waiting.append(Path(entry.path))
    return files, True


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _is_searched(entry: os.DirEntry[str]) -> bool:
    if entry.name in _NOT_SEARCHED or not entry.is_dir(follow_symlinks=False):
        return False
    if RUN_ID.fullmatch(entry.name) and os.path.lexists(os.path.join(entry.path, WITHIN.record)):
        return False  # the folder of a run: a run's own element is searched by itself
    return not os.path.lexists(os.path.join(entry.path, "pyvenv.cfg"))


@dataclass(frozen=True, slots=True)
class ChosenRun:
    """A run, or one element of a sweep."""

    run: Run
    element: int
    name: str  # under which TensorBoard shows it


@dataclass(slots=True)
class LinkedRuns:
    """A folder with a link to each event file of the chosen runs.

    Each run has a folder in this folder, and so has each of the run's log folders.
    """

    links: Path  # the folder
    runs: Sequence[ChosenRun]
    store: RunStore
    others: Sequence[Path] = ()  # folders to search in place of the runs' working folders
    # name of a run → the number of its event files
    counts: dict[str, int] = field(default_factory=dict)
    known: set[Path] = field(default_factory=set)  # the event files that have a link
    searched: Searched = field(default_factory=dict)  # by the last search

    def update(self) -> None:
        """Search the runs' folders, and link the event files that are new."""
        searched = Searched()
        owners = dict[EventFile, list[str]]()
        for chosen in self.runs:
            folder = self.store.folder(chosen.run.run_id)
            for file in event_files(chosen.run, folder, chosen.element, searched, self.others):
                owners.setdefault(file, []).append(chosen.name)
        self.searched = searched
        for file, names in owners.items():
            if file.path not in self.known:
                self.known.add(file.path)
                self._link(file, common_name(names))

    def _link(self, file: EventFile, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1
        parent = file.path.parent.relative_to(file.root).parts
        folder = self.links.joinpath(name, *(_safe(part) for part in parent))
        make_folder(folder, 0o700)
        with suppress(FileExistsError):
            os.symlink(file.path.absolute(), folder / file.path.name)

    def keep_searching(self, ended: threading.Event) -> None:
        """Search again and again, for the files of attempts and elements that start later."""
        while not ended.wait(SEARCH_EVERY_S):
            self.update()


def common_name(names: Sequence[str]) -> str:
    """Return the name for a file that may belong to several runs.

    Such runs are elements that ran at the same time on the same node.
    """
    if len(names) == 1:
        return names[0]
    return os.path.commonpath(names) or SEVERAL


def chosen_runs(run: Run, element: int | None) -> list[ChosenRun]:
    """Return the elements of a run to show: one element, or all elements of a sweep.

    Each element has its parameters in its name.
    """
    elements = all_elements(run)
    short = f"{run.name}-{run.run_id[-4:]}"
    if not elements.are_array:
        return [ChosenRun(run, 0, _safe(short))]
    wanted = elements.parameters if element is None else [element]
    chosen = []
    for index in wanted:
        name = element_name(index, elements.parameters[index])
        chosen.append(ChosenRun(run, index, os.path.join(_safe(short), name)))
    return chosen


def element_name(index: int, parameters: Parameters) -> str:
    """Return the name of a sweep's element: ``3-lr=0.1,bs=32``."""
    text = parameters_text(parameters).replace(" ", ",")
    return _safe(f"{index}-{text}" if text else str(index))


def _safe(name: str) -> str:
    """Return text as the name of a folder that TensorBoard and a terminal show as it is."""
    return re.sub(r"[^\w.,=+@-]", "_", name).lstrip(".")[:_LONGEST_NAME] or "_"


def free_port(wanted: int | None) -> int | None:
    """Return a free port of this machine's own address.

    With a wanted port, the result is that port, or None if another program uses the port. Otherwise
    the result is 6006, or any free port.
    """
    for port in (wanted,) if wanted is not None else (PORT, 0):
        with suppress(OSError), socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(("127.0.0.1", port))
            return int(tried.getsockname()[1])
    return None


def tensorboard_url(port: int, secret: str) -> str:
    """Return the address of the page.

    ``secret``: a part of it, as any user of this machine can reach its ports.
    """
    return f"http://127.0.0.1:{port}/{secret}/"


def tensorboard_arguments(links: Path, port: int, secret: str) -> list[str]:
    """Return TensorBoard's arguments."""
    return [
        f"--logdir={links}",
        "--host=127.0.0.1",
        f"--port={port}",
        f"--path_prefix=/{secret}",
        "--reload_interval=15",
        "--load_fast=false",  # its data server listens on a port of its own and asks for no secret
    ]


def run_tensorboard(
    python: str, arguments: Sequence[str], folder: Path, env: Mapping[str, str]
) -> int:
    """Run TensorBoard until Ctrl-C; return its exit status. OSError: it cannot be started."""
    # TMPDIR: TensorBoard notes its address, the secret included, in a folder there that all users
    # can read
    more = {_ARGUMENTS: json.dumps(arguments), "TMPDIR": str(folder)}
    return run_on_terminal([python, "-c", _START], {**env, **more})
