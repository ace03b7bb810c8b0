"""The ports of an action: the runs, the schedulers, this host, the clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.profiles.config import Config
from hpcrun.profiles.folders import Source
from hpcrun.schedulers.protocol import Scheduler

if TYPE_CHECKING:  # a dry run of submit reads no runs
    from hpcrun.actions.profiles.detected import DetectedProfile
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.runs.store import RunStore

Schedulers = Callable[[str], Scheduler]
"""Scheduler name → adapter."""


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

    def for_polling(self) -> Ports:
        """Return the ports for a command that polls."""
        return replace(self, schedulers=self.polling)


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a choice."""

    value: str
    flag: str  # what to type to choose it: ``--gpus a100:4``
    about: str = ""  # what distinguishes it from the others


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice that only the user can make."""

    what: str  # the thing to choose: ``GPU type``
    key: str  # the key of the profile that decides it for all jobs
    reason: str  # why there is a choice: the heading of the options
    options: tuple[Option, ...]
    default: int = 0  # the position of the option that is offered

    @property
    def named(self) -> str:
        """The thing with its article."""
        return f"{'an' if self.what.startswith('a') else 'a'} {self.what}"

    @property
    def flags(self) -> str:
        """The options that make the choice: ``choose a GPU type: --gpus a100:4, --gpus h100:4``."""
        return f"choose {self.named}: {', '.join(option.flag for option in self.options)}"


Choose = Callable[[Choice], str]


def first_option(choice: Choice) -> str:
    """Return the default option."""
    return choice.options[choice.default].value


@dataclass(slots=True)
class Picker:
    """Makes choices, or collects those that need a user at a terminal."""

    choose: Choose | None
    unmade: list[Choice] = field(default_factory=list)

    def pick(self, choice: Choice) -> str:
        """Return the answer to a choice, or its default option."""
        if self.choose is None:
            self.unmade.append(choice)
        return (self.choose or first_option)(choice)


@dataclass(frozen=True, slots=True)
class Typed:
    """The command line that requested a job."""

    words: tuple[str, ...] = ()  # hpcrun's subcommand and its options, up to SCRIPT
    notes: tuple[str, ...] = ()  # notes on it for the user


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
