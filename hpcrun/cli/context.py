"""Building the adapters: the one place that reads the environment and decides which folders and schedulers."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from hpcrun.actions.surroundings import Surroundings
from hpcrun.errors import HpcrunError
from hpcrun.profiles.config import Config, load_config
from hpcrun.profiles.shipped import shipped_folder
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Scheduler

PROJECT_FOLDER = ".hpcrun"


@dataclass(frozen=True)
class Context:
    """Everything a command is handed: where it was called, the runs, the schedulers, the clock."""

    env: dict[str, str]
    cwd: Path

    @cached_property
    def own_folders(self) -> tuple[tuple[Path, ...], tuple[str, ...]]:
        """The folders whose files come before the shipped ones, most important first; and what was passed over."""
        import platformdirs

        folders = [platformdirs.user_config_path("hpcrun")]
        warnings = []
        project = _project_folder(self.cwd)
        if project is not None:
            owner = project.stat().st_uid
            if owner in (os.getuid(), 0):
                folders.insert(0, project)
            else:
                # its templates and set-up commands would run as this user
                warnings.append(f"{project} belongs to another user (uid {owner}) and is ignored; copy it to use it")
        return tuple(folders), tuple(warnings)

    @cached_property
    def config(self) -> Config:
        """The configuration of project and user."""
        return load_config(self.own_folders[0])

    @cached_property
    def surroundings(self) -> Surroundings:
        """What actions need to know of the caller."""
        folders, warnings = self.own_folders
        return Surroundings(
            env=self.env,
            cwd=self.cwd,
            host=self.host,
            config=self.config,
            profile_folders=(
                *(folder / "profiles" for folder in folders),
                shipped_folder("cluster_profiles"),
            ),
            template_folders=(*(folder / "templates" for folder in folders), shipped_folder("templates")),
            own_python=sys.executable if find_spec("torch") else None,
            warnings=warnings,
        )

    @cached_property
    def host(self) -> str:
        """This host's name; a local run lives on it."""
        return os.uname().nodename

    @cached_property
    def store(self) -> RunStore:
        """The runs folder: HPCRUN_RUNS, the configured one, or the user's data folder."""
        import platformdirs

        said = self.env.get("HPCRUN_RUNS")
        root = Path(said).expanduser() if said else self.config.runs or platformdirs.user_data_path("hpcrun") / "runs"
        return RunStore(self.cwd / root)

    def scheduler(self, name: str) -> Scheduler:
        """Return the scheduler of that name."""
        if name == "local":
            from hpcrun.schedulers.local import LocalScheduler

            return LocalScheduler()
        from hpcrun.schedulers.slurm import SlurmScheduler

        return SlurmScheduler(self.env)

    def new_run_id(self, name: str) -> str:
        """Return an id for a run that begins now: sorted by name is sorted by time."""
        return f"{datetime.now():%Y%m%d-%H%M%S}-{name}-{os.urandom(2).hex()}"

    def now_s(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time()


def make_context() -> Context:
    """Return the context of this process.

    Raises:
        HpcrunError: the current folder is gone.
    """
    try:
        cwd = Path.cwd()
    except OSError:
        raise HpcrunError("the current folder no longer exists", hint="cd to one that does") from None
    return Context(dict(os.environ), cwd)


def _project_folder(cwd: Path) -> Path | None:
    """Return the project's ``.hpcrun``: here or in a parent, as git finds ``.git``; never the home's own."""
    home = Path.home()
    for folder in (cwd, *cwd.parents):
        candidate = folder / PROJECT_FOLDER
        if candidate.is_dir() and folder != home:
            return candidate
    return None
