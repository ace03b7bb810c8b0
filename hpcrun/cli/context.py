"""Building the adapters, with the environment, the folders and the schedulers.

This is the one place that reads the environment and decides which folders and schedulers.
"""

from __future__ import annotations

import os
import os.path
import pwd
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from hpcrun.actions.hooks import hooks_of
from hpcrun.actions.ports import Caller, Consent, Ports, Surroundings, Typed
from hpcrun.cli.output import Outcome, can_ask, hold, note, tell, wants_json
from hpcrun.errors import HpcrunError
from hpcrun.job.job_states import RUNNING, OverLimit
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.machine.coding_agent import AT_TERMINAL, agent_in
from hpcrun.views.text import one_line

if TYPE_CHECKING:  # each is imported by the command that needs it
    from hpcrun.actions.profiles.detected import DetectedProfile
    from hpcrun.actions.runs.find import FoundRun
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.actions.status.wait import Waiter
    from hpcrun.actions.user_choice import Choice
    from hpcrun.cli.configuration import Configuration
    from hpcrun.explain.diagnosis.rules import Rule
    from hpcrun.job.resources.cpus_memory_time import Machine
    from hpcrun.profiles.config import Config
    from hpcrun.profiles.folders import Folder
    from hpcrun.runs.failed_nodes import FailedNodes
    from hpcrun.runs.foreign_runs import ForeignRuns
    from hpcrun.runs.store import RunStore
    from hpcrun.schedulers.cluster_facts_cache import FactsCache
    from hpcrun.schedulers.pending_and_usage import SlurmQueue
    from hpcrun.schedulers.protocol import Scheduler

PROJECT_FOLDER = ".hpcrun"
SITE_FOLDER = "/etc/hpcrun"
Announce = Callable[[Iterable[str]], None]


@dataclass(frozen=True)
class Context:
    """Everything that a command gets.

    This is its environment and folder, the runs, the schedulers and the clock.
    """

    env: dict[str, str]
    cwd: Path
    # prints which configuration is not used, at the first use of configuration
    announce: Announce | None = None
    typed: Typed = field(default_factory=Typed)
    # another runs folder, which is only read; None for the user's own
    foreign: ForeignRuns | None = None
    _slurm_answers: dict[str, str | None] = field(default_factory=dict)
    _over_limits: dict[tuple[str, str], OverLimit | None] = field(default_factory=dict)

    @cached_property
    def configuration(self) -> Configuration:
        """The folders of the configuration of project, user and site."""
        from hpcrun.cli.configuration import Configuration

        return Configuration(
            _project_folder(self.cwd),
            self.user_folder,
            # HPCRUN_SITE: for a cluster whose software lies on a shared file system and not in /etc
            Path(self.env.get("HPCRUN_SITE") or SITE_FOLDER),
            trusted=user_folder("state") / "trust",
            announce=self.announce,
            limiting=_limiting_folders(),
            fixed=(Path(SITE_FOLDER),),
        )

    @property
    def config(self) -> Config:
        """The configuration of project, user and site."""
        return self.configuration.values

    @cached_property
    def user_folder(self) -> Path:
        """The user's own configuration folder."""
        return user_folder("config")

    @cached_property
    def profile_layers(self) -> dict[str, Folder]:
        """The folders of profiles by layer, most important first."""
        return self.configuration.profiles(self.detected.folder if self.detected else None)

    @cached_property
    def detected(self) -> DetectedProfile | None:
        """The detected profile of this cluster; None without Slurm."""
        if self.scheduler("slurm").unavailable():
            return None
        from hpcrun.actions.profiles.detected import DetectedProfile, known_facts

        cache = user_folder("cache")

        def facts() -> FactsCache:
            from hpcrun.schedulers.cluster_facts_cache import FactsCache

            return FactsCache(cache, self.scheduler("slurm").cluster())

        return DetectedProfile(
            cache / "detected",
            lambda: known_facts(self.env, facts(), self.now_s()),
            tuple(self.configuration.profiles().values()),
            lambda: facts().drop(),
        )

    @cached_property
    def profile_paths(self) -> dict[str, Path]:
        """Where the folders of profiles lie."""
        return {name: folder.path for name, folder in self.profile_layers.items()}

    def profile_name(self, requested: str | None) -> str:
        """Return the requested profile, or the default one."""
        from hpcrun.actions.jobs.prepare import choose_profile

        return choose_profile(
            requested, self.surroundings, lambda: self.scheduler("slurm").unavailable()
        )

    @cached_property
    def surroundings(self) -> Surroundings:
        """The caller's environment, folders and configuration for actions."""
        return Surroundings(
            env=self.env,
            cwd=self.cwd,
            config=self.config,
            profile_folders=tuple(self.profile_layers.values()),
            template_folders=self.configuration.templates,
            runs=self.runs,
            own_python=sys.executable if find_spec("torch") else None,
            warnings=self.configuration.warnings,
            typed=self.typed,
            failed_nodes=lambda: self.failed_nodes.of_cluster(
                self.scheduler("slurm").cluster(), self.now_s()
            ),
            detected=self.detected,
            choose=self._chooser(),
            limits=lambda: self.configuration.limits,
            partition_limits=lambda: self.configuration.partition_limits,
            consent=self._consent(),
            by=self.by,
        )

    @cached_property
    def by(self) -> dict[str, Any]:
        """Whether there is a terminal, and the name of the coding agent, as far as it says so."""
        is_terminal = sys.stdin.isatty() or sys.stderr.isatty() or AT_TERMINAL in self.env
        return {"terminal": is_terminal, "agent": agent_in(self.env)}

    @staticmethod
    def _allows(problem: str) -> bool:
        """Ask whether to submit what is over a limit."""
        _, confirm = _questions()
        return confirm(one_line(f"hpcrun: {problem}. Submit all the same?"))

    def _consent(self) -> Consent:
        """Return how a person at the terminal allows a submission that is over a limit."""
        if can_ask():
            return Consent(self._allows)
        if self.typed.stdin:
            return Consent(hint="a person types this at a terminal: hpcrun submit FILE")
        return Consent(hint=f"a person types this at a terminal: {shlex.join(words_typed())}")

    def _chooser(self) -> Callable[[Choice], str] | None:
        """Return the function that asks the user at the terminal.

        The result is None without a terminal, and for callers in Python.
        """
        if not self.announce or not can_ask() or wants_json():
            return None
        choose, _ = _questions()
        return choose

    @cached_property
    def failed_nodes(self) -> FailedNodes:
        """The nodes on which runs failed within a day."""
        from hpcrun.runs.failed_nodes import FailedNodes

        return FailedNodes(user_folder("state") / "failed-nodes.json")

    @cached_property
    def host(self) -> str:
        """This host's name; a local run lives on it."""
        return os.uname().nodename

    @cached_property
    def runs(self) -> Path:
        """The runs folder: HPCRUN_RUNS, the configured one, or the user's data folder."""
        variable = self.env.get("HPCRUN_RUNS")
        if variable:
            root = Path(os.path.expanduser(variable))
        else:
            root = self.config.runs or user_folder("data") / "runs"
        return self.cwd / root

    @cached_property
    def store(self) -> RunStore:
        """The runs."""
        if self.foreign is not None:
            return self.foreign
        from hpcrun.runs.store import RunStore

        return RunStore(self.runs, self.failed_nodes)

    @cached_property
    def ports(self) -> Ports:
        """The runs, the schedulers, this host and the clock, as actions take them."""
        polling = partial(self.scheduler, polls=True)
        if self.foreign is not None:
            return Ports(self.foreign, self.scheduler, polling, self.host, self.now_s)
        return Ports(
            self.store,
            self.scheduler,
            polling,
            self.host,
            self.now_s,
            self._on_end,
            _send_late_messages,
            Caller(self.by, words_typed(), _warn),
            self._run_lists,
        )

    @staticmethod
    def _run_lists(limiting: Path) -> list[Path]:
        """Return the files that list the runs folders in which the limits of a folder count.

        A limit that no variable can move counts in folders that no variable can hide.
        """
        lists = [user_folder("state") / "runs-folders"]
        if limiting in _limiting_folders():
            lists += [home / ".local/state/hpcrun/runs-folders" for home in _own_home()]
        return list(dict.fromkeys(lists))

    def _on_end(self, run_id: str) -> None:
        """Upload the offline wandb runs of an ended run in the background, if configured."""
        if not self.config.wandb_sync:
            return
        with suppress(OSError):  # the status is shown even if the upload cannot start
            hooks_of("trackers").on_end(
                self.store.load(run_id), self.store.folder(run_id), self.env
            )

    def scheduler(self, name: str, *, polls: bool = False) -> Scheduler:
        """Return the scheduler of that name.

        With ``polls``, the scheduler shares its answers with other commands that poll.
        """
        if name == "local":
            from hpcrun.schedulers.local import LocalScheduler

            return LocalScheduler()
        from hpcrun.schedulers.slurm import SlurmScheduler

        # the user's cache folder, not the runs folder: a user may have several of those
        cache = user_folder("cache")
        return SlurmScheduler(
            self.env, cache=cache, polls=polls, _known=self._slurm_answers, _over=self._over_limits
        )

    def machine(self) -> Machine:
        """Return the resources of this machine."""
        from hpcrun.schedulers.local import this_machine

        return this_machine(self.env)

    def queue(self) -> SlurmQueue:
        """Return the cluster's queue and accounting."""
        from hpcrun.schedulers.pending_and_usage import SlurmQueue

        return SlurmQueue(self.env)

    def waiter(self, run_id: str) -> Waiter:
        """Return a waiter for one run; it shares answers with all other pollers of this user."""
        from hpcrun.actions.status.wait import waiter_for

        return replace(waiter_for(run_id, self.ports), tell=_tell_why_it_waits())

    def named(
        self, words: Sequence[str], *, tells_newest: bool = True
    ) -> Generator[Outcome, None, list[FoundRun]]:
        """Find runs and elements, and print the notes on their names.

        With ``tells_newest``, also print which run ``last`` is; a JSON document has its id.
        """
        from hpcrun.actions.runs.find import find_element, is_last, newest_line

        runs = [find_element(name, self.store) for name in words]
        yield note(item.note for item in runs)
        if tells_newest and not wants_json():
            newest_ones = [run for label, run in zip(words, runs, strict=True) if is_last(label)]
            yield note(newest_line(item.run) for item in newest_ones[:1])
        return runs

    def rules(self) -> tuple[Rule, ...]:
        """Return explain's rules: the shipped ones and those of the layers."""
        # ruamel is imported only where a run has failed
        from hpcrun.explain.diagnosis.rules import load_rules

        return load_rules(self.configuration.layers.values())

    def metric_patterns(self, profile: str) -> tuple[dict[str, str], str | None]:
        """Return the patterns for the logs of a profile's runs, and a remark.

        The remark is None, except if the profile cannot be read.
        """
        from hpcrun.actions.runs.run_metrics import metric_patterns

        folders = tuple(self.profile_layers.values())
        is_own = self.foreign is None
        patterns, remark = metric_patterns(
            profile, folders, self.config.metrics, reads_paths=is_own
        )
        return patterns, remark and one_line(remark)

    def now_s(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time()


def user_folder(kind: Literal["cache", "config", "data", "state"]) -> Path:
    """Return the user's folder for such files of hpcrun."""
    import platformdirs  # completing the name of an option does without

    return cast(Path, getattr(platformdirs, f"user_{kind}_path")("hpcrun"))


def _questions() -> tuple[Callable[[Choice], str], Callable[[str], bool]]:
    """Return the functions that ask the user at the terminal: to choose, and to confirm."""
    from hpcrun.cli.confirm import choose, confirm

    return choose, confirm


def _warn(message: str) -> None:
    tell([one_line(f"hpcrun: warning: {message}")])


def _own_home() -> list[Path]:
    """Return the home by the user database, which no variable moves; none if it is unknown."""
    try:
        return [Path(pwd.getpwuid(os.getuid()).pw_dir)]
    except KeyError:
        return []


def _limiting_folders() -> list[Path]:
    """Return the configuration folders whose limits hold, whatever the environment says."""
    return [Path(SITE_FOLDER), *(home / ".config/hpcrun" for home in _own_home())]


def words_typed() -> list[str]:
    """Return the command line of this process as a person types it."""
    program, *words = sys.argv
    name = os.path.basename(program)
    if name in ("hpcrun", "__main__.py"):
        return ["hpcrun", *words]
    return ["python", program, *words]


def _send_late_messages(items: Sequence[RunStatus], runs: Path, now_s: float) -> None:
    """Send the messages that jobs could not send themselves."""
    with_messages = [item for item in items if item.run.plan.get("notify")]
    if with_messages:
        hooks_of("notify").on_status(with_messages, runs, now_s)


def _tell_why_it_waits() -> Callable[[RunStatus], None]:
    """Return the function that prints why a job does not run yet, whenever the reason changes."""
    shown: set[tuple[str, str | None, bool]] = set()

    def tell_new(item: RunStatus) -> None:
        from hpcrun.views.status_table import waiting_lines

        status = item.status
        reason = (status.state, status.reason, status.start_s is None)
        if status.state == RUNNING:
            shown.clear()
        elif reason not in shown:
            shown.add(reason)
            tell(map(one_line, waiting_lines(item, time.time())))

    return tell_new


def make_context(announce: Announce | None = hold) -> Context:
    """Return the context of this process.

    With ``announce`` None, the caller says which configuration is not used.

    Raises:
        HpcrunError: if the current folder no longer exists.
    """
    try:
        cwd = Path.cwd()
    except OSError:
        raise HpcrunError(
            "the current folder no longer exists", hint="cd to an existing folder"
        ) from None
    HIDER.learn(os.environ)
    return Context(dict(os.environ), cwd, announce)


def _project_folder(cwd: Path) -> Path | None:
    """Return the project's ``.hpcrun`` in this folder or a parent, as git finds ``.git``.

    The ``.hpcrun`` of the home folder never counts. The result is None if there is no such folder.
    """
    home = Path.home()
    for folder in (cwd, *cwd.parents):
        candidate = folder / PROJECT_FOLDER
        if folder != home and (os.path.isdir(candidate) or os.path.islink(candidate)):
            return candidate
    return None
