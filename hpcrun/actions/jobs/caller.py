"""Where hpcrun was called: environment, folder, and the folders that files are looked up in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.profiles.config import Config
from hpcrun.profiles.folder import Source

if TYPE_CHECKING:  # few jobs leave out nodes, or have something to choose
    from hpcrun.actions.jobs.choice import Choice
    from hpcrun.actions.profiles.detected import DetectedProfile
    from hpcrun.runs.failed_nodes import FailedNode


@dataclass(frozen=True, slots=True)
class Typed:
    """The command line that asked for a job.

    Attributes:
        words: hpcrun's subcommand and its options, up to SCRIPT.
        notes: what a person should be told of it.
    """

    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a command needs to know of its caller; ``cli`` and ``api`` alone build it.

    Attributes:
        profile_folders, template_folders: most important first: project, user, site, shipped.
        own_python: hpcrun's own interpreter where it has torch, else None.
        warnings: configuration that is not used, for a caller that is not told of it by the command line.
        typed: the command line, where there was one.
        failed_nodes: returns the nodes that failed of late; None where nobody looks for them.
        cluster: returns the name of the Slurm cluster, which is asked for it.
        detected: the detected profile; None without Slurm.
        choose: asks the person at the terminal and returns the value of an option; None without a terminal.
    """

    env: Mapping[str, str]
    cwd: Path
    host: str
    config: Config
    profile_folders: tuple[Source, ...]
    template_folders: tuple[Source, ...]
    own_python: str | None = None
    warnings: tuple[str, ...] = ()
    typed: Typed = field(default_factory=Typed)
    failed_nodes: Callable[[], tuple[FailedNode, ...]] | None = None
    cluster: Callable[[], str | None] | None = None
    detected: DetectedProfile | None = None
    choose: Callable[[Choice], str] | None = None
