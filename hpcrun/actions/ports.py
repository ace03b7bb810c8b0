"""The ports of an action: the runs, the schedulers, this host, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.profiles.limits import Limits
from hpcrun.profiles.site_locks import PartitionLimits

if TYPE_CHECKING:  # a dry run of submit reads no runs, status often no configuration
    from hpcrun.actions.profiles.detected import DetectedProfile
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.actions.user_choice import Choose
    from hpcrun.profiles.config import Config
    from hpcrun.profiles.folders import Source
    from hpcrun.runs.store import RunStore
    from hpcrun.schedulers.protocol import Scheduler

    Schedulers = Callable[[str], Scheduler]
    """Scheduler name → adapter."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a command, and how."""

    by: Mapping[str, Any]  # ``terminal`` and ``agent`` of a run's record
    arguments: Sequence[str]  # the command line
    warn: Callable[[str], None]  # prints a warning


@dataclass(frozen=True, slots=True)
class Ports:
    """The runs, the schedulers, this host and the clock; ``cli`` builds them, for ``api`` too."""

    store: RunStore
    schedulers: Schedulers  # asked afresh each time
    polling: Schedulers  # for commands that repeat their questions: they share the answers
    host: str  # this host's name; a local run lives on it
    now_s: Callable[[], float]  # returns the time, in seconds since the epoch
    # is called once with the id of each run whose end has become known
    on_end: Callable[[str], None] = lambda _: None
    # is called with the runs of each status command, the runs folder and the time
    on_status: Callable[[Sequence[RunStatus], Path, float], None] = lambda *_: None
    caller: Caller | None = None  # who calls, for the log of actions; None to log nothing
    # configuration folder → the files that list the runs folders in which its limits count
    run_lists: Callable[[Path], Sequence[Path]] = lambda _: ()

    def for_polling(self) -> Ports:
        """Return the ports for a command that polls."""
        return replace(self, schedulers=self.polling)


@dataclass(frozen=True, slots=True)
class Typed:
    """The command line that requested a job."""

    words: tuple[str, ...] = ()  # hpcrun's subcommand and its options, up to SCRIPT
    notes: tuple[str, ...] = ()  # notes on it for the user
    stdin: str | None = None  # the batch script that it reads from stdin
    note: str | None = None  # the note of each new run


@dataclass(frozen=True, slots=True)
class Consent:
    """How a person allows what is over a limit."""

    # asks a question at the terminal and returns whether the answer was yes; None without one
    ask: Callable[[str], bool] | None = None
    hint: str = ""  # what a person can do, where nobody can be asked
    # the jobs that are within the limits together, or that a person has allowed
    jobs: tuple[object, ...] = ()
    by_person: bool = False  # whether a person has allowed them

    def has(self, job: object) -> bool:
        """Return whether exactly this job was checked, and not only an equal one."""
        return any(job is each for each in self.jobs)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command needs to know of its caller; ``cli`` and ``api`` alone build it."""

    env: Mapping[str, str]
    cwd: Path
    config: Config
    # profile_folders, template_folders: most important first: project, user, site, shipped
    profile_folders: tuple[Source, ...]
    template_folders: tuple[Source, ...]
    runs: Path | None = None  # the runs folder
    own_python: str | None = None  # hpcrun's own interpreter where it has torch, else None
    # warnings about unused configuration, for a caller without a command line
    warnings: tuple[str, ...] = ()
    typed: Typed = field(default_factory=Typed)  # the command line, empty without one
    # returns the nodes of this cluster that failed within a day
    failed_nodes: Callable[[], tuple[str, ...]] = tuple
    detected: DetectedProfile | None = None  # the detected profile; None without Slurm
    # asks the user at the terminal, and returns the value of an option; None without a terminal
    choose: Choose | None = None
    limits: Callable[[], Limits] = Limits  # returns the limits on what a command submits
    partition_limits: Callable[[], PartitionLimits] = dict  # returns those of each partition
    # how the command was called: ``terminal`` and ``agent`` of a run's record
    by: dict[str, Any] | None = None
    consent: Consent = field(default_factory=Consent)
