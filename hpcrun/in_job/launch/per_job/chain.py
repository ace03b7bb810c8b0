"""End a link of a chain that has not completed: cancel the next links if it got nowhere.

``submit`` writes the job of each link into a folder beside the checkpoints, which the links share.
This module knows the progress of a link by new files there, and by the steps in the metrics of its
ranks; a program may use neither. An unknown progress never ends a chain, unless two links in a row
fail at once and in the same way.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from .. import records, slurm_requests
from .repeated_failure import AT_ONCE_S, TAIL
from .why_ended import FAILURE, IDLE

LINK = "link-"
STOPPED = "stopped"
PROGRESS = "progress"
"""The names in the folder: ``link-2`` has the job of the second link."""
WALK_S = 5.0
MOST_RANKS = 16
_STEP = re.compile(rb'"step": (\d+)')


def end_link(status: int, why_it_ended: Callable[[], str]) -> str:
    """Cancel the next links if this link got nowhere, and return the reason.

    The reason is the empty string if the chain continues.

    Args:
        status: the exit status of this link.
        why_it_ended: returns why; only its program's failure, its time limit and idle GPUs count.
    """
    folder = records.chain_folder()
    links = _links(folder)
    numbers = {link.get("job_id"): number for number, link in links.items()}
    this = numbers.get(os.environ["HPCRUN_JOB_ID"])
    if this is None:
        return ""
    why = why_it_ended()
    counts = why in (FAILURE, records.TIME_LIMIT, IDLE)
    seconds = time.time() - float((records.read("start") or {}).get("started", 0))
    link = {
        "number": this,
        "status": status,
        "at_once": why == FAILURE and seconds < AT_ONCE_S,
        "seconds": seconds,
        "failed": why == FAILURE,
        "saved": _has_saved() if counts else None,
        "step": max(_noted_steps(), default=None),
    }
    before = records.read(PROGRESS, folder) or {}
    reason = ""
    stops = False
    if counts:
        reason, stops = judge_link(link, before)
    # also of a link that does not count: the next one is compared with it, not with that before it
    records.write(PROGRESS, progress(link, before, nowhere=bool(reason)), folder)
    if not stops or this >= links[this]["links"]:
        return ""
    following = [number for number in sorted(links, reverse=True) if number > this]
    # the last one first: each waits for those before it
    return _end_chain(reason, [links[number]["job_id"] for number in following])


def _end_chain(reason: str, following: list[str]) -> str:
    """Record the end of the chain, and cancel the next links; return why, and what went wrong.

    Args:
        reason: why the chain ends.
        following: the jobs of the next links, in the order in which they are cancelled.
    """
    records.write(STOPPED, {"reason": reason, "job_ids": following}, records.chain_folder())
    problem = slurm_requests.cancel_pending(following) if following else ""
    message = f"the chain ends here: {reason}"
    if problem:
        message += f"; the next links are not cancelled: {problem}"
    records.say(f"{message}; --chain-anyway continues all the same")
    return message


def _links(folder: str) -> dict[int, dict[str, Any]]:
    """Return the links of the chain, by their numbers from 1."""
    links = {}
    for name in records.names_in(folder):
        number = name[len(LINK) :]
        if not name.startswith(LINK) or not number.isdecimal():
            continue
        record = records.read(name, folder)
        if record:
            links[int(number)] = record
    return links


def judge_link(link: dict[str, Any], before: dict[str, Any]) -> tuple[str, bool]:
    """Return why a link got nowhere, and whether the chain ends.

    The reason is the empty string if the link made progress, or may have made progress.

    Args:
        link: its number from 1, its exit status, the seconds of its last attempt; whether its
            program has failed by itself, and within ``AT_ONCE_S``; whether it has saved a
            checkpoint, None if there is none in their folder; the highest step that its ranks have
            noted, or None.
        before: the same of the link before, with the highest step of all links, and whether it got
            nowhere.
    """
    best = before.get("step")
    step = link["step"]
    if link["saved"] or (step is not None and (best is None or step > best)):
        return "", False
    if link["saved"] is False:
        # without steps, a failure may have come after hours of work: only the second one in a row
        # is certain
        sure = not link["failed"] or best is not None or before.get("nowhere") is True
        since = "" if best is None else f" since {best}"
        return f"link {link['number']} made no new checkpoint and no step{since}", sure
    if link["at_once"] and before.get("at_once") and before["status"] == link["status"]:
        how = f"failed after {link['seconds']:.0f} s with exit status {link['status']}"
        return f"link {link['number']} {how}, as link {link['number'] - 1} did", True
    return "", False


def progress(link: dict[str, Any], before: dict[str, Any], *, nowhere: bool) -> dict[str, Any]:
    """Return the record of a link for the next one."""
    steps = [step for step in (before.get("step"), link["step"]) if step is not None]
    return {**link, "step": max(steps, default=None), "nowhere": nowhere}


def _attempts() -> str:
    return os.path.dirname(records.attempt_dir())


def _has_saved() -> bool | None:
    """Return whether a checkpoint is newer than this job, None if there is no checkpoint.

    The clock of their file system decides.
    """
    began = os.stat(os.path.join(_attempts(), "0", "start")).st_mtime
    until = time.monotonic() + WALK_S
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
    """Yield the last steps that ranks of this job have noted in their metrics."""
    for attempt in records.names_in(_attempts()):
        place = os.path.join(_attempts(), attempt)
        names = [name for name in records.names_in(place) if name.endswith(".metrics")]
        for name in names[:MOST_RANKS]:
            with open(os.path.join(place, name), "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
                yield from map(int, _STEP.findall(file.read()))
