"""The exit record of an attempt: its status, why it ended, and how the job continues."""

from __future__ import annotations

import time

from .. import records


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
        },
        folder,
        within_s,
    )
