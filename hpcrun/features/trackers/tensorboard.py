"""tensorboard: the event files of the chosen runs, each run under a name of its own, and TensorBoard over them."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hpcrun.features.trackers.event_files import EventFile, event_files, search
from hpcrun.features.trackers.open_and_sync import NOT_FROM_HERE, python_with
from hpcrun.job.parameters import Parameters, parameters_text
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.process import run_on_terminal

PORT = 6006
"""TensorBoard's own default, taken if it is free: a tunnel of yesterday then still fits."""
SEVERAL = "several-runs"
"""The name for files that may be of more than one of the chosen runs."""
_LONGEST_NAME = 120
_ARGUMENTS = "HPCRUN_TENSORBOARD"
# The arguments go through the environment, which other users cannot read as they can a command line: they have the
# secret part of the address.
_START = (
    f"{NOT_FROM_HERE}import json, os, runpy; "
    f"sys.argv[1:] = json.loads(os.environ.pop({_ARGUMENTS!r})); "
    "runpy.run_module('tensorboard.main', run_name='__main__', alter_sys=True)"
)


@dataclass(frozen=True, slots=True)
class ChosenRun:
    """A run, or one element of a sweep, under the name that TensorBoard shows."""

    run: Run
    element: int
    name: str


@dataclass(slots=True)
class LinkedRuns:
    """A folder with a link to each event file of the chosen runs: one folder for each run and each of its log folders.

    Attributes:
        links: the folder.
        others: folders to search in place of the runs' working folders.
        found: name of a run → the number of its event files.
        known: the event files that have a link.
        searched, cut_short: the folders that were searched, and those too large to search all of them.
    """

    links: Path
    runs: Sequence[ChosenRun]
    store: RunStore
    others: Sequence[Path] = ()
    found: dict[str, int] = field(default_factory=dict)
    known: set[Path] = field(default_factory=set)
    searched: set[Path] = field(default_factory=set)
    cut_short: set[Path] = field(default_factory=set)

    def update(self) -> None:
        """Search the runs' folders, and link the event files that are new."""
        look = cache(search)
        owners: dict[EventFile, list[str]] = {}
        for chosen in self.runs:
            folder = self.store.folder(chosen.run.run_id)
            answer = event_files(chosen.run, folder, chosen.element, others=self.others, look=look)
            self.searched.update(answer.searched)
            self.cut_short.update(answer.cut_short)
            for file in answer.files:
                owners.setdefault(file, []).append(chosen.name)
        for file, names in owners.items():
            if file.path not in self.known:
                self.known.add(file.path)
                name = common_name(names)
                self.found[name] = self.found.get(name, 0) + 1
                self._link(name, file)

    def _link(self, name: str, file: EventFile) -> None:
        parent = file.path.parent.relative_to(file.root).parts
        folder = self.links.joinpath(name, *(_safe(part) for part in parent))
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.symlink(file.path.absolute(), folder / file.path.name)


def common_name(names: Sequence[str]) -> str:
    """Return the name for a file that may be of several runs: elements that ran at the same time on the same node."""
    if len(names) == 1:
        return names[0]
    return os.path.commonpath(names) or SEVERAL


def chosen_runs(run: Run, element: int | None) -> list[ChosenRun]:
    """Return the elements of a run to show: one, or all of a sweep, each with its parameters in its name."""
    elements = all_elements(run)
    short = f"{run.name}-{run.run_id[-4:]}"
    if not elements.are_array:
        return [ChosenRun(run, 0, _safe(short))]
    wanted = elements.parameters if element is None else [element]
    return [
        ChosenRun(run, index, os.path.join(_safe(short), element_name(index, elements.parameters[index])))
        for index in wanted
    ]


def element_name(index: int, parameters: Parameters) -> str:
    """Return the name of a sweep's element: ``3-lr=0.1,bs=32``."""
    return _safe("-".join(filter(None, (str(index), parameters_text(parameters).replace(" ", ",")))))


def _safe(name: str) -> str:
    """Return text as the name of a folder that TensorBoard and a terminal show as it is."""
    return re.sub(r"[^\w.,=+@-]", "_", name).lstrip(".")[:_LONGEST_NAME] or "_"


def free_port(wanted: int | None) -> int | None:
    """Return a port of this machine's own address: the wanted one or None if it is taken, else 6006 or any free one."""
    for port in (wanted,) if wanted is not None else (PORT, 0):
        with suppress(OSError), socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(("127.0.0.1", port))
            return int(tried.getsockname()[1])
    return None


@dataclass(frozen=True, slots=True)
class TensorBoard:
    """TensorBoard's command and its address, which only this user knows.

    Attributes:
        secret: part of the address: any user of this machine can connect to its ports.
    """

    python: str
    port: int
    secret: str

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.port}/{self.secret}/"

    def arguments(self, links: Path) -> list[str]:
        """Return TensorBoard's arguments."""
        return [
            f"--logdir={links}",
            "--host=127.0.0.1",
            f"--port={self.port}",
            f"--path_prefix=/{self.secret}",
            "--reload_interval=15",
            "--load_fast=false",  # its data server listens on a port of its own and asks for no secret
        ]

    def run(self, links: Path, env: Mapping[str, str]) -> int:
        """Run TensorBoard until Ctrl-C; return its exit status.

        Raises:
            OSError: it cannot be started.
        """
        # TMPDIR: TensorBoard notes its address, the secret included, in a folder there that all users can read
        more = {_ARGUMENTS: json.dumps(self.arguments(links)), "TMPDIR": str(links.parent)}
        return run_on_terminal([self.python, "-c", _START], {**env, **more})


def plan_tensorboard(runs: Iterable[ChosenRun], port: int, env: Mapping[str, str]) -> TensorBoard:
    """Return TensorBoard with a Python that has it, and a new secret.

    Raises:
        PlanError: no Python here has it.
    """
    first = next(iter(runs), None)
    return TensorBoard(python_with("tensorboard", first.run if first else None, env), port, secrets.token_urlsafe(12))
