"""Timing commands side by side: in every round each runs once, so that a busy machine is busy for
all of them.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


class CommandFailedError(Exception):
    """A measured command failed, so that its time would mean nothing."""


@dataclass(frozen=True)
class Place:
    """Where commands run: a folder and an environment, the same for all that are compared."""

    folder: Path
    env: Mapping[str, str]

    def run(self, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, and keep what it said.

        Raises:
            CommandFailedError: it failed; the message has its own words.
        """
        try:
            done = subprocess.run(
                argv, cwd=self.folder, env=dict(self.env), capture_output=True, text=True
            )
        except OSError as error:
            raise CommandFailedError(f"{argv[0]}: {error.strerror}") from None
        if done.returncode != 0:
            raise CommandFailedError(
                f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
            )
        return done


@dataclass
class Contender:
    """A command, and the seconds of wall-clock time and of CPU time it took in every round.

    CPU time is that of the command and of all that it started and waited for, user and system
    together.
    """

    label: str
    argv: Sequence[str]
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """The median of its times."""
        return statistics.median(self.seconds)

    @property
    def cpu_median(self) -> float:
        """The median of its CPU times."""
        return statistics.median(self.cpu_seconds)


def race(
    contenders: Sequence[Contender],
    *,
    place: Place,
    rounds: int,
    between: Callable[[], None] = lambda: None,
) -> None:
    """Time every contender once a round, in an order that turns; a first round warms the caches and
    counts for nothing.

    Args:
        between: called after every command, outside the timed part.
    """
    for number in range(rounds + 1):
        turn = number % len(contenders)
        for contender in (*contenders[turn:], *contenders[:turn]):
            start, cpu_start = time.perf_counter(), _cpu_seconds()
            place.run(contender.argv)
            seconds, cpu_seconds = time.perf_counter() - start, _cpu_seconds() - cpu_start
            if number > 0:
                contender.seconds.append(seconds)
                contender.cpu_seconds.append(cpu_seconds)
            between()


def _cpu_seconds() -> float:
    """Return the CPU time of all that this process has started and waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def ratio_range(one: Contender, other: Contender) -> tuple[float, float]:
    """Return the smallest and the largest of the rounds' own ratios: how far the machine let them
    wander.
    """
    ratios = [mine / its for mine, its in zip(one.seconds, other.seconds, strict=True)]
    return min(ratios), max(ratios)
