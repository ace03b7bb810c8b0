"""The exit record of an attempt: its status, why it ended, and how the job continues."""

from __future__ import annotations

import os
import re
import time

from .. import records

WORKERS = re.compile(
    rb"will create (\d{1,6}) worker processes in total\. Our suggested max number of worker in "
    rb"current system is (\d{1,6})"
)
"""What torch warns of in one rank alone, and the training goes on."""
_MOST_SEARCHED = 1 << 18


def write_exit(
    status: int,
    *,
    signalled: bool,
    why: str = "",
    message: str = "",
    how: str = records.OVER,
    nodes: list[str] | None = None,
    folder: str | None = None,
    within_s: float | None = None,
) -> None:
    """Write the exit record; a later one of the same attempt replaces it.

    Args:
        status: the exit status of the job.
        signalled: the job's process got SIGTERM.
        why: the reason, in the words of why_ended.py; empty if unknown, or if the ranks completed.
        message: why the job does not continue, for people.
        how: how the job continues: ``OVER``, ``RESTART`` or ``REQUEUE``.
        nodes: the nodes on which the attempt failed.
        folder: the attempt's folder; None for the attempt of this process.
        within_s: how long to try while the disk is full; None as long as for every such record.
    """
    records.write_patiently(
        "exit",
        {
            "status": status,
            "signal": "TERM" if signalled else "",
            "ended": time.time(),
            "message": message,
            "reason": why,
            "again": how != records.OVER,
            "how": how,
            "nodes": nodes or [],
            "alone": ranks_alone(folder),
            "workers": _loader_workers(folder),
        },
        folder,
        within_s,
    )


def ranks_alone(folder: str | None = None) -> int:
    """Return the number of the ranks if several ended, and none was seen with a connection."""
    number = 0
    for record in records.exits(folder=folder):
        if record.get("alone") is not True:
            return 0  # the others need not be read
        number += 1
    return number if number > 1 else 0


def _loader_workers(folder: str | None) -> list[int]:
    """Return the workers of a DataLoader and the most that torch advises; none without a warning.

    torch warns where the loader is made: near the beginning of what rank 0 writes.
    """
    path = os.path.join(folder or records.attempt_dir(), "rank-0.err")
    try:
        with open(path, "rb") as file:
            match = WORKERS.search(file.read(_MOST_SEARCHED))
    except OSError:
        return []
    return [int(number) for number in match.groups()] if match else []
