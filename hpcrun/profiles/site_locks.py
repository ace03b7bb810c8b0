"""What a site sets for everybody: locked keys, and limits on the jobs of a partition.

hpcrun prevents mistakes. Slurm enforces: a user of sbatch needs no configuration of hpcrun.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcrun.errors import PlanError
from hpcrun.job.text.units import parse_slurm_time
from hpcrun.profiles.limits import CostLimit, Limits, read_limit

LOCKED = "locked"
LIMITS = "limits"
PARTITION_LIMITS = "partition_limits"
NOTIFY = "notify"
COMMENT_JOBS = "comment_jobs"
LOCKABLE = (LIMITS, PARTITION_LIMITS, NOTIFY, COMMENT_JOBS)
_LONGEST_SENTENCE = 300  # characters: it is shown in one line

PartitionLimits = Mapping[str, Mapping[str, CostLimit]]
"""Partition → ``time`` (seconds), ``nodes`` or ``gpus`` → the limit of one job."""

_READERS: dict[str, Callable[[Any], float]] = {
    "time": lambda value: float(parse_slurm_time(str(value))),
    "nodes": read_limit,
    "gpus": read_limit,
}


@dataclass(frozen=True, slots=True)
class Lock:
    """A key that the site has locked."""

    key: str
    sentence: str  # the site's own, for users who try to override the key
    path: Path  # the site's configuration

    def refusal(self, problem: str) -> PlanError:
        """Return the error for an attempt to override the key."""
        return PlanError(f"{problem}; the site has locked {self.key}", hint=self.sentence)


@dataclass(frozen=True, slots=True)
class SiteLocks:
    """The locked keys, and the limits that no person at a terminal may exceed."""

    locks: Mapping[str, Lock] = field(default_factory=dict)  # key → its lock
    limits: Limits = field(default_factory=Limits)  # empty if they are not locked
    partition_limits: PartitionLimits = field(default_factory=dict)  # as above


def read_partition_limit(value: Any) -> dict[str, float]:
    """Return the limits of one partition: ``time`` (seconds), ``nodes`` or ``gpus`` → number.

    Raises:
        ValueError: the value is no section, or a name or a number in it is wrong.
    """
    if not isinstance(value, dict):
        raise ValueError(f"takes a section with {', '.join(_READERS)}")
    limits = {}
    for name, number in value.items():
        if name not in _READERS:
            raise ValueError(f"there is no limit {name!r}; there are: {', '.join(_READERS)}")
        try:
            limits[name] = _READERS[name](number)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return limits


def partition_limits_of(
    values: Mapping[str, Mapping[str, float]], path: Path
) -> dict[str, dict[str, CostLimit]]:
    """Return the limits that a file sets."""
    limits: dict[str, dict[str, CostLimit]] = {}
    for partition, numbers in values.items():
        limits[partition] = {name: CostLimit(most, path) for name, most in numbers.items()}
    return limits


def smallest_of_partitions(several: Iterable[PartitionLimits]) -> PartitionLimits:
    """Return the smallest limit of each kind in each partition."""
    least: dict[str, dict[str, CostLimit]] = {}
    for limits in several:
        for partition, numbers in limits.items():
            known = least.setdefault(partition, {})
            for name, limit in numbers.items():
                if name not in known or limit.most < known[name].most:
                    known[name] = limit
    return least


def read_sentence(value: Any) -> str:
    """Return the sentence of a lock, on one line.

    Raises:
        ValueError: the value is empty, too long, or has characters that a terminal may act on.
    """
    sentence = " ".join(value.split()) if isinstance(value, str) else ""
    if not sentence or not sentence.isprintable():
        raise ValueError("takes a sentence: it is shown to users who try to override the key")
    if len(sentence) > _LONGEST_SENTENCE:
        raise ValueError(f"has more than {_LONGEST_SENTENCE} characters")
    return sentence
