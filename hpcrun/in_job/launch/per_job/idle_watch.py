"""End a job whose GPUs are all idle.

Only the job's process judges, from the samples of its nodes (sampler.py).

The nodes are read one after another, until one has used a GPU: as long as that was not long ago, no
other node has to be read, nor this one again. So a job that works costs one read per limit,
whatever its number of nodes. Where a node has no recent samples of a GPU, nothing is known, and the
job continues.
"""

from __future__ import annotations

import os
import time

from .. import records
from ..rank_environment import PER_WRITE

BUSY = 0.01
"""A GPU that is busy for a larger share of the time is used: also IDLE in
hpcrun/runs/use_samples.py.
"""
MOST_NOTICE_S = 300.0
STALE_S = 60.0
RECORD = "idle"
"""The record of the warning: since when the GPUs are idle, and when the job ends."""
UNKNOWN = "idle-unknown"
"""The record of a node without samples of its GPUs: the limit has no effect.

Also in job/run_paths.py.
"""


class IdleWatch:
    """The watch over one attempt.

    Args:
        limit_s: how long all GPUs may be idle; 0 for no watch.
        period_s: seconds between two samples.
        hosts: the nodes.
    """

    def __init__(self, limit_s: float, period_s: float, hosts: list[str]) -> None:
        self._limit_s = limit_s
        self._period_s = period_s
        self._hosts = list(hosts)
        self._notice_s = min(MOST_NOTICE_S, limit_s / 3)
        self._fresh_s = STALE_S + 3 * PER_WRITE * period_s
        self._unknown = False
        self._end_at: float | None = None  # set by the warning, by the monotonic clock
        self._look_at = float("inf")
        if limit_s:
            self._look_at = time.monotonic() + limit_s - self._notice_s
        self.message = ""

    def check(self) -> bool:
        """Check from time to time; return whether all GPUs have been idle for too long.

        Then ``message`` says for how long.
        """
        now = time.monotonic()
        if now < self._look_at:
            return False
        idle_s = self._idle_s()
        if idle_s < self._limit_s - self._notice_s:
            self._withdraw_warning()
            self._look_at = now + max(self._period_s, self._limit_s - self._notice_s - idle_s)
        elif self._end_at is None:
            self._warn(now, idle_s)
        elif now >= self._end_at and idle_s >= self._limit_s:
            self.message = f"cancelled: its GPUs were idle for {span(self._limit_s)}"
            self._look_at = float("inf")
        else:
            until_next_s = min(PER_WRITE * self._period_s, self._end_at - now)
            self._look_at = now + max(self._period_s, until_next_s)
        return bool(self.message)

    def _idle_s(self) -> float:
        """Return for how long all GPUs are known to be idle: 0 if it is not known."""
        shortest = float("inf")
        unknown = False
        for place, node in enumerate(self._hosts):
            samples = records.read_text(f"node-{node}.use")
            idle_s = idle_seconds(samples, time.time() - self._fresh_s)
            if idle_s is None:
                self._note_unknown(node)
                idle_s = 0.0
                unknown = True
            shortest = min(shortest, idle_s)
            if idle_s < self._limit_s - self._notice_s:
                self._hosts.insert(0, self._hosts.pop(place))  # most likely it is the first again
                break
        if self._unknown and not unknown:
            self._unknown = False
            records.remove(os.path.join(records.attempt_dir(), UNKNOWN))
        return shortest

    def _note_unknown(self, node: str) -> None:
        """Say once that a node reports no use of its GPUs."""
        if not self._unknown:
            self._unknown = True
            records.write(UNKNOWN, {"node": node})
            records.say(
                f"{node} reports no use of its GPUs (nvidia-smi): --cancel-idle has no effect "
                "until it does"
            )

    def _warn(self, now: float, idle_s: float) -> None:
        """Write the warning: a job ends only after one, and not before the time that it names."""
        left_s = max(self._notice_s, self._limit_s - idle_s)
        self._end_at = now + left_s
        # the nodes write no more often
        self._look_at = now + min(PER_WRITE * self._period_s, left_s)
        records.say(
            f"all GPUs have been idle for {span(idle_s)}: the job ends in {span(left_s)} if they "
            "stay idle"
        )
        warned = time.time()
        fields = {"since": warned - idle_s, "warned": warned, "ends": warned + left_s}
        records.write(RECORD, fields)

    def _withdraw_warning(self) -> None:
        """Say that the GPUs are busy again, if a warning was written."""
        if self._end_at is None:
            return
        self._end_at = None
        records.say("the GPUs are busy again: the job continues")
        records.remove(os.path.join(records.attempt_dir(), RECORD))


def idle_seconds(text: str, not_before: float) -> float | None:
    """Return for how long all GPUs of a node have been idle, None if this is not known.

    The clock of the node measures the time.

    Args:
        text: the samples of the node.
        not_before: the newest sample must be later; seconds since the epoch.
    """
    import json

    newest = 0.0
    for line in reversed(text.splitlines()):
        try:
            sample = json.loads(line)
            if "started" in sample:
                return newest - float(sample["started"]) if newest else None
            at = float(sample["time"])
            busy = [float(gpu[1]) for gpu in sample["gpus"]]
        except (KeyError, TypeError, ValueError, IndexError):  # cut off
            continue
        if not newest and (at < not_before or not busy):
            return None
        newest = newest or at
        if not busy or max(busy) > BUSY:
            return newest - at
    return None


def span(seconds: float) -> str:
    """Return a time in words: ``1 h 30 min``, ``45 s``.

    This program cannot import hpcrun's own units.
    """
    whole = round(seconds)
    parts = []
    if whole >= 3600:
        parts.append(f"{whole // 3600} h")
    if whole % 3600 >= 60:
        parts.append(f"{whole % 3600 // 60} min")
    if whole < 3600 and whole % 60:
        parts.append(f"{whole % 60} s")
    return " ".join(parts) or "0 s"
