"""Building the adapters: the one place that reads the environment and decides which folders and schedulers."""

from __future__ import annotations

import os
import os.path
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.surroundings import Surroundings, Typed
from hpcrun.errors import HpcrunError
from hpcrun.profiles.config import Config, load_config
from hpcrun.profiles.shipped import shipped_folder
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Scheduler

if TYPE_CHECKING:
    from hpcrun.actions.wait import Waiter
    from hpcrun.runs.studies import StudyStore
    from hpcrun.schedulers.queue import SlurmQueue

PROJECT_FOLDER = ".hpcrun"
SITE_FOLDER = "/etc/hpcrun"


@dataclass(frozen=True)
class Context:
    """Everything a command is handed: where it was called, the runs, the schedulers, the clock."""

    env: dict[str, str]
    cwd: Path
    typed: Typed = field(default_factory=Typed)

    @cached_property
    def layers(self) -> dict[str, Path]:
        """The folders whose files come before the shipped ones, by name, most important first."""
        project, _ = self._project
        layers = {} if project is None else {"project": project}
        # HPCRUN_SITE: for a cluster whose software lies on a shared file system and not in /etc
        return {**layers, "user": self.user_folder, "site": Path(self.env.get("HPCRUN_SITE") or SITE_FOLDER)}

    @cached_property
    def user_folder(self) -> Path:
        """The user's own configuration folder."""
        import platformdirs

        return platformdirs.user_config_path("hpcrun")

    @cached_property
    def _project(self) -> tuple[Path | None, tuple[str, ...]]:
        """The project's folder, and what to say of one that is passed over."""
        project = _project_folder(self.cwd)
        if project is None:
            return None, ()
        owner = project.stat().st_uid
        if owner in (os.getuid(), 0):
            return project, ()
        # its templates and set-up commands would run as this user
        return None, (f"{project} belongs to another user (uid {owner}) and is ignored; copy it to use it",)

    @cached_property
    def config(self) -> Config:
        """The configuration of project, user and site."""
        return load_config(tuple(self.layers.values()))

    @cached_property
    def profile_layers(self) -> dict[str, Path]:
        """The folders of profiles by layer, most important first."""
        own = {name: folder / "profiles" for name, folder in self.layers.items()}
        return {**own, "shipped": shipped_folder("cluster_profiles")}

    @cached_property
    def surroundings(self) -> Surroundings:
        """What actions need to know of the caller."""
        templates = (folder / "templates" for folder in self.layers.values())
        return Surroundings(
            env=self.env,
            cwd=self.cwd,
            host=self.host,
            config=self.config,
            profile_folders=tuple(self.profile_layers.values()),
            template_folders=(*templates, shipped_folder("templates")),
            own_python=sys.executable if find_spec("torch") else None,
            warnings=self._project[1],
            typed=self.typed,
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

    @cached_property
    def studies(self) -> StudyStore:
        """The studies, which lie in the runs folder."""
        from hpcrun.runs.studies import StudyStore

        return StudyStore(self.store.root)

    def scheduler(self, name: str) -> Scheduler:
        """Return the scheduler of that name, which is asked afresh each time."""
        return self._scheduler(name, polls=False)

    def polling_scheduler(self, name: str) -> Scheduler:
        """Return the scheduler of that name for one who asks again and again: answers are shared with others who do."""
        return self._scheduler(name, polls=True)

    def _scheduler(self, name: str, *, polls: bool) -> Scheduler:
        if name == "local":
            from hpcrun.schedulers.local import LocalScheduler

            return LocalScheduler()
        import platformdirs

        from hpcrun.schedulers.slurm import SlurmScheduler

        # the user's own folder, and not the runs folder: one person may have several of those
        cache = platformdirs.user_cache_path("hpcrun")
        return SlurmScheduler(self.env, cache=cache, polls=polls, _said=self._slurm_said)

    def queue(self) -> SlurmQueue:
        """Return the cluster's queue and accounting."""
        from hpcrun.schedulers.queue import SlurmQueue

        return SlurmQueue(self.env)

    @cached_property
    def _slurm_said(self) -> dict[str, str | None]:
        return {}

    def waiter(self, run_id: str) -> Waiter:
        """Return a waiter for one run: it shares its questions with whatever else of this user polls."""
        from hpcrun.actions.wait import waiter_for

        return waiter_for(
            run_id, store=self.store, schedulers=self.scheduler, polling=self.polling_scheduler, host=self.host
        )

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
        if folder != home and os.path.isdir(candidate):
            return candidate
    return None
