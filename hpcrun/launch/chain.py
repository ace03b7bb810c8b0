"""The end of a link of a chain that has not completed: the next links are cancelled if it got nowhere.

``submit`` writes the job of each link into a folder beside the checkpoints, which the links share. It knows a link's
progress by new files there, and by the steps in its ranks' metrics; a program may use neither. An unknown progress
never ends a chain, unless two links in a row fail at once and in the same way.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from . import records, slurm
from .decide import FAILURE, IDLE

LINK, STOPPED, PROGRESS = "link-", "stopped", "progress"
"""The names in the folder: ``link-2`` has the job of the second link."""
AT_ONCE_S = 120.0
"""A program that fails within this time has hardly begun: it takes as long to load a model and a first batch."""
WALK_S, MOST_RANKS, TAIL = 5.0, 16, 64 << 10
_STEP = re.compile(rb'"step": (\d+)')


@dataclass(frozen=True)
class Link:
    """What is known of a link at its end.

    Attributes:
        number: its place in the chain, from 1.
        status: its exit status.
        seconds: how long its last attempt took.
        failed: the program has failed by itself: it may do better the next time.
        saved: it has written a file into the folder of checkpoints; None if that holds no file.
        step: the highest step that its ranks have noted, None if they noted none.
    """

    number: int
    status: int
    seconds: float
    failed: bool
    saved: bool | None
    step: int | None


def end_link(status: int, why_it_ended: Callable[[], str]) -> str:
    """Cancel the next links if this one got nowhere; return the reason, the empty string if the chain continues.

    Args:
        why_it_ended: returns why; only its program's failure, its time limit and idle GPUs count.
    """
    folder, links = records.chain_folder(), {}
    for name in records.names_in(folder):
        if name.startswith(LINK) and (record := records.read(name, folder)):
            links[int(name[len(LINK) :])] = record
    number = next((number for number, link in links.items() if link["job_id"] == os.environ["HPCRUN_JOB_ID"]), 0)
    if not number or (why := why_it_ended()) not in (FAILURE, records.TIME_LIMIT, IDLE):
        return ""
    begun = records.read("start") or {}
    seconds = time.time() - float(begun.get("started", 0))
    link = Link(number, status, seconds, why == FAILURE, _has_saved(), max(_noted_steps(), default=None))
    before = records.read(PROGRESS, folder) or {}
    reason, stops = judge(link, before)
    records.write(PROGRESS, progress(link, before, nowhere=bool(reason)), folder)
    if not stops or number >= links[number]["links"]:
        return ""
    # the last one first: each waits for those before it
    following = [links[each]["job_id"] for each in sorted(links, reverse=True) if each > number]
    records.write(STOPPED, {"reason": reason, "job_ids": following}, folder)
    problem = slurm.cancel(*following) if following else ""
    message = f"the chain ends here: {reason}" + (f"; the next links are not cancelled: {problem}" if problem else "")
    records.say(f"{message}; --chain-anyway continues all the same")
    return message


def judge(link: Link, before: dict[str, object]) -> tuple[str, bool]:
    """Return why a link got nowhere, the empty string if it did or may have; and whether the chain ends.

    Args:
        before: the progress of the links before it.
    """
    best = before.get("step")
    if link.saved or (link.step is not None and not (isinstance(best, int) and link.step <= best)):
        return "", False
    since = f"no step since {best}" if isinstance(best, int) else "no step"
    if link.saved is False:
        # without steps, a failure may have come after hours of work: only the second one in a row is certain
        sure = not link.failed or isinstance(best, int) or before.get("nowhere") is True
        return f"link {link.number} made no new checkpoint and {since}", sure
    is_same = before.get("status") == link.status and before.get("at_once") is True
    if link.failed and is_same and link.seconds < AT_ONCE_S:
        how = f"failed after {link.seconds:.0f} s with exit status {link.status}, as link {link.number - 1} did"
        return f"link {link.number} {how}", True
    return "", False


def progress(link: Link, before: dict[str, object], *, nowhere: bool) -> dict[str, object]:
    """Return the record of the progress until the end of a link, for the next one."""
    best = [step for step in (before.get("step"), link.step) if isinstance(step, int)]
    at_once = link.failed and link.seconds < AT_ONCE_S
    return {"step": max(best, default=None), "status": link.status, "at_once": at_once, "nowhere": nowhere}


def _attempts() -> str:
    return os.path.dirname(records.attempt_dir())


def _has_saved() -> bool | None:
    """Whether a checkpoint is newer than this job, by the clock of their file system; None if there is none."""
    began, until = os.stat(os.path.join(_attempts(), "0", "start")).st_mtime, time.monotonic() + WALK_S
    saved = None
    for place, _, names in os.walk(os.environ["HPCRUN_CHECKPOINT_DIR"]):
        for name in names:
            try:
                saved = os.lstat(os.path.join(place, name)).st_ctime > began
            except OSError:  # it was just replaced by a newer one
                return True
            if saved or time.monotonic() > until:
                return True
    return saved


def _noted_steps() -> Iterator[int]:
    for attempt in records.names_in(_attempts()):
        place = os.path.join(_attempts(), attempt)
        for name in [name for name in records.names_in(place) if name.endswith(".metrics")][:MOST_RANKS]:
            with open(os.path.join(place, name), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                yield from map(int, _STEP.findall(file.read()))
