"""The upload of a run's offline wandb runs: ``wandb sync`` by the run's own Python."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.errors import PlanError
from hpcrun.features.trackers.tracker_files import env_of, tracker_runs
from hpcrun.job.layout import RunFolder
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.process import Completed, leave_running, run_command
from hpcrun.writing import flocked, for_oneself

SYNC_S = 6 * 3600.0  # the longest time for one upload: of the media of a long training there may be many gigabytes
_ASKS_S = 30.0
_MOST_AT_ONCE = 200
_LONGEST_ERROR = 300
_ERROR = re.compile(r"(Error|panic|wandb: ERROR): |wandb: ERROR (?!Find )")
# Before any other import, that of json too: a file of the current folder would be imported in the module's place.
NOT_FROM_HERE = "import sys; sys.path[:] = filter(None, sys.path); "
_HAS_MODULE = f"{NOT_FROM_HERE}import importlib.util; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
# runpy and not -m, which would search the current folder
RUN_MODULE = (
    f"{NOT_FROM_HERE}import runpy; del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
_OF_A_JOB = frozenset(["WANDB_MODE", "WANDB_DISABLED", "WANDB_SILENT", "WANDB_QUIET", "WANDB_RUN_ID", "WANDB_RESUME"])
"""wandb's variables that are meant for a job, and would keep ``wandb sync`` from uploading what it is given."""


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What became of the offline wandb runs of a run.

    Attributes:
        uploaded, before: folders of those that were uploaded now, and before.
    """

    run: Run
    uploaded: tuple[Path, ...] = ()
    before: tuple[Path, ...] = ()
    running: tuple[int, ...] = ()  # elements that were left out because they have not ended
    pages: tuple[str, ...] = ()
    failure: str | None = None  # what ``wandb sync`` printed where it failed


def sync_wandb(run: Run, store: RunStore, element: int | None, env: Mapping[str, str]) -> SyncResult:
    """Upload the offline wandb runs of a run that are not yet uploaded, with the user's own credentials.

    Elements that have not ended are left out: wandb takes a run that it has uploaded once for complete.

    Raises:
        PlanError: no Python here has wandb, or another ``hpcrun open --upload`` uploads them now.
    """
    folder = store.folder(run.run_id)
    with flocked(RunFolder(folder).tracker_sync("lock")) as is_ours:
        if not is_ours:
            raise PlanError(f"the wandb runs of {run.name} are being uploaded by another hpcrun")
        elements = list(all_elements(run).parameters) if element is None else [element]
        last = store.last_status(run.run_id)
        is_final = last is not None and last.final
        ended = [index for index in elements if is_final or _has_ended(folder, index)]
        known = [each for index in ended for each in tracker_runs(run, folder, index)]
        offline = [each for each in known if each.offline and each.folder and _is_own(each.folder)]
        before = tuple(each.folder for each in offline if each.folder and each.synced)
        # the oldest first: a continued run is several folders
        todo = sorted({each.folder for each in offline if each.folder and not each.synced}, key=lambda path: path.name)
        running = tuple(index for index in elements if index not in ended and last_attempt(folder, index))
        if not todo:
            return SyncResult(run, before=before, running=running)
        python = python_with("wandb", run, env)
        variables = {name: value for name, value in env_of(run) if name == "WANDB_BASE_URL"}
        variables |= {name: value for name, value in env.items() if name not in _OF_A_JOB}
        failure = None
        for first in range(0, len(todo), _MOST_AT_ONCE):
            # WANDB_DIR: for its own logs, which it would otherwise put into the current folder
            some = todo[first : first + _MOST_AT_ONCE]
            argv = [python, "-c", RUN_MODULE, "wandb", "sync", *map(str, some)]
            # not in the current folder: wandb takes the server, to which it sends the key, from ./wandb/settings
            done = run_command(argv, timeout_s=SYNC_S, env={**variables, "WANDB_DIR": str(folder)}, cwd=folder)
            log = RunFolder(folder).tracker_sync("log")
            with open(log, "a", encoding="utf-8", errors="surrogateescape", opener=for_oneself) as file:
                file.write(done.stdout + done.stderr)
            failure = failure or (None if done.ok else _why(done, log))
        uploaded = tuple(path for path in todo if any(path.glob("run-*.wandb.synced")))
        names = {each.id for each in offline if each.folder in uploaded}
        runs = [each for index in ended for each in tracker_runs(run, folder, index)]
        pages = tuple(dict.fromkeys(each.url for each in runs if each.url and each.id in names))
        if failure is None and len(uploaded) < len(todo):
            failure = f"wandb sync did not upload {len(todo) - len(uploaded)} of {len(todo)} runs"
        return SyncResult(run, uploaded, before, running, pages, failure)


def _is_own(path: Path) -> bool:
    """Whether a folder is this user's: a log may name any, and its owner chooses what is uploaded, and where to."""
    try:
        return path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _has_ended(folder: Path, element: int) -> bool:
    attempt = last_attempt(folder, element)
    return attempt is not None and attempt.exit is not None and not attempt.exit.again


def _why(done: Completed, log: Path) -> str:
    """Return the line that says why ``wandb sync`` failed: behind it there may be pages of traceback."""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    line = next(filter(_ERROR.match, lines), lines[-1] if lines else "it did not end in time")
    return f"wandb sync failed: {line.removeprefix('Error: ')[:_LONGEST_ERROR]}\nall of its output: {log}"


def python_with(module: str, run: Run, env: Mapping[str, str]) -> str:
    """Return a Python that has a module: the run's own, the active environment's, hpcrun's own, the first of PATH."""
    tried = list(dict.fromkeys(_pythons(run.plan, env)))
    for python in tried:
        if run_command([python, "-c", _HAS_MODULE, module], timeout_s=_ASKS_S, env=env).ok:
            return python
    raise PlanError(
        f"no {module} in {', '.join(tried)}",
        hint=f"activate an environment with {module}, or install it in one of these: pip install {module}",
    )


def _pythons(plan: Mapping[str, Any], env: Mapping[str, str]) -> Iterator[str]:
    python = plan.get("python") or {}
    named = python.get("executable")
    # that of a container is its image's; that of a project's folder, which nobody has activated, only jobs run
    if isinstance(named, str) and os.path.isabs(named) and not (plan.get("container") or python.get("of_project")):
        yield named
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if os.path.isabs(env.get(name, "")):
            yield os.path.join(env[name], "bin", "python")
    yield sys.executable
    folders = os.pathsep.join(filter(os.path.isabs, env.get("PATH", "").split(os.pathsep)))
    yield from filter(None, [shutil.which("python3", path=folders)])


class TrackerHooks(Hooks):
    """The hooks of trackers."""

    def on_end(self, run: Run, folder: Path, env: Mapping[str, str]) -> None:
        """Upload the offline wandb runs of a run, in the background; the output goes into the run's folder."""
        program = [sys.executable, "-m", "hpcrun", "open", "--upload", run.run_id]
        leave_running(program, cwd=folder, env=env, log=RunFolder(folder).tracker_sync("log"))

    def run_rows(self, item: RunStatus) -> Sequence[tuple[str, str]]:
        """Return label and page of the trackers' runs, each page once."""
        runs = tracker_runs(item.run, item.folder, item.element or 0, most_attempts=1)
        return list(dict.fromkeys((each.tracker.lower(), each.place) for each in runs))[:4]
