"""What the launch of a script inherits from the script: its open files and its limits.

A process gets both from the process that starts it, and here the job starts the step.
"""

from __future__ import annotations

import fcntl
import os
import resource
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    Limits = Mapping[str, tuple[int, int]]
    """Name of setrlimit(2) → soft and hard limit."""

MOST = 253
"""The descriptors that one message of a Unix socket holds: SCM_MAX_FD, unix(7)."""
_NAMES = [name for name in dir(resource) if name.startswith("RLIMIT_")]


def own_descriptors() -> dict[int, int]:
    """Return the descriptors that a program would inherit from this process, by their numbers.

    A stream that is closed is /dev/null.
    """
    descriptors = {}
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        number = int(name)
        with suppress(OSError):  # that of the folder that was listed
            if os.get_inheritable(number):
                descriptors[number] = number
    for number in (0, 1, 2):
        if number not in descriptors:
            descriptors[number] = os.open(os.devnull, os.O_RDWR)
    return dict(sorted(descriptors.items())[:MOST])


def take_descriptors(numbers: Sequence[int], received: Sequence[int]) -> dict[int, int]:
    """Return received descriptors by the numbers that they had.

    They get numbers above all of those here, so that none is overwritten when a program gets them.
    """
    descriptors = {}
    for number, descriptor in zip(numbers, received):
        descriptors[number] = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1)
        os.close(descriptor)
    return descriptors


def read_limits() -> Limits:
    """Return the limits of this process."""
    return {name: resource.getrlimit(getattr(resource, name)) for name in _NAMES}


@contextmanager
def with_limits(limits: Limits) -> Iterator[None]:
    """Have these soft limits for a while, for a process that is started meanwhile."""
    before = read_limits()
    changed = [name for name in limits if limits[name][0] != before[name][0]]
    for name in changed:
        _set_soft(name, limits[name][0])
    try:
        yield
    finally:
        for name in changed:
            _set_soft(name, before[name][0])


def limit(pid: int, limits: Limits) -> None:
    """Give a process these limits, also the hard ones: this process keeps its own."""
    for name, (soft, hard) in limits.items():
        with suppress(ValueError, OSError):
            resource.prlimit(pid, getattr(resource, name), (soft, hard))


def _set_soft(name: str, soft: int) -> None:
    number = getattr(resource, name)
    hard = resource.getrlimit(number)[1]
    with suppress(ValueError, OSError):  # above the hard limit
        resource.setrlimit(number, (soft, hard))
