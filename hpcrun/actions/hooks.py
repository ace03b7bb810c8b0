"""The hooks by which the core informs a feature and asks the feature for additional rows.

The default of a hook does nothing.
"""

from __future__ import annotations

import os
from importlib import import_module

# a command for another machine loads this module: typing, pathlib and dataclasses take 20 ms
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Any, Literal

    from rich.text import Text

    from hpcrun.actions.ports import Surroundings
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.runs.record import Run

    Level = Literal["green", "yellow", "red"]


class SetupChecks:
    """The checks of a set-up."""

    def __init__(
        self,
        text: Callable[[int], Text],
        document: dict[str, Any],
        *,
        failed: bool = False,
    ) -> None:
        self.text = text  # columns of the terminal → the warnings and errors
        self.document = document  # for programs
        self.failed = failed  # a job would fail


class Elsewhere:
    """Another machine, on which hpcrun runs command lines."""

    def __init__(
        self,
        host: str,
        document: Callable[[Sequence[str]], dict[str, Any]],
        argv: Callable[[Sequence[str]], list[str]],
    ) -> None:
        self.host = host
        # runs a command line with --json there → what it prints, or its error
        self.document = document
        self.argv = argv  # a program's argv there → the argv here that starts it


class Hooks:
    """The hooks of a feature.

    A class with the same methods, in the feature's folder, fills the hooks.
    """

    def run_elsewhere(self, words: Sequence[str]) -> int | None:
        """Run a command line on another machine, and return its exit status.

        Returns:
            The exit status; None if the command line is for this machine.
        """
        del words
        return None

    def run_partly_here(self, words: Sequence[str], there: Elsewhere) -> int | None:
        """Run a command line with work on both machines, and return its exit status.

        Returns:
            The exit status; None if all work is on the other machine.
        """
        del words, there
        return None

    def as_typed(self, text: str) -> str:
        """Return a text with its commands of hpcrun as this person must type them."""
        return text

    def file_place(self, path: str | os.PathLike[str]) -> str:
        """Return where a file lies, as this person finds it: ``HOST:PATH`` on another machine."""
        return os.fspath(path)

    def check_destination(self, to: str, env: Mapping[str, str]) -> None:
        """Refuse a destination of messages that cannot be used.

        Raises:
            UsageError: it cannot be used.
        """

    def check_setup(
        self, profile: str, surroundings: Surroundings, runs: Path
    ) -> SetupChecks | None:
        """Return checks of a profile and of the runs folder."""
        del profile, surroundings, runs
        return None

    def doctor_checks(self) -> Sequence[tuple[str, str, Level, str, str | None]]:
        """Return checks for ``hpcrun doctor``.

        Each check has a group, a name, a level (green, yellow, red), a finding, and what to do.
        """
        return ()

    def on_status(self, items: Sequence[RunStatus], runs: Path, now_s: float) -> None:
        """Take note of the runs of a status command, and of their runs folder."""

    def on_end(self, run: Run, folder: Path, env: Mapping[str, str]) -> None:
        """Take note, once, that a run has ended."""

    def run_rows(self, item: RunStatus) -> Sequence[tuple[str, str]]:
        """Return label and text of further details of a run."""
        del item
        return ()

    def run_json(self, item: RunStatus) -> list[dict[str, Any]]:
        """Return the same for programs."""
        del item
        return []

    def about_run(self, item: RunStatus) -> tuple[str, str]:
        """Return two descriptions of a run of the feature's program.

        Returns:
            What the run is, for a table, and how the run stands, as a sentence.
        """
        del item
        return "", ""


HOOKS = {
    "hpcrun_dev": "hpcrun.features.dev.dev_state:DevRunHooks",
    "dev": "hpcrun.features.dev.command:DevHooks",
    "doctor": "hpcrun.features.doctor.command:DoctorHooks",
    "remote": "hpcrun.features.remote.front:RemoteHooks",
    "notify": "hpcrun.features.notify.due:NotifyHooks",
    "trackers": "hpcrun.features.trackers.tracker_files:TrackerHooks",
}
"""Feature, or its program in a job → the class with its hooks, loaded when needed. A feature that
was taken away has no hooks.
"""


def about_run(item: RunStatus) -> tuple[str, str]:
    """Return two descriptions of a run of a feature's program.

    Returns:
        What the run is, and how the run stands, as a sentence; two empty texts for any other
            program.
    """
    return hooks_of(str(item.run.request.get("script"))).about_run(item)


def hooks_of(feature: str) -> Hooks:
    """Return the hooks of a feature; without such a feature, hooks that do nothing."""
    module, _, name = HOOKS.get(feature, "").partition(":")
    if not module:
        return Hooks()
    hooks = getattr(import_module(module), name)()
    assert isinstance(hooks, Hooks)
    return hooks
