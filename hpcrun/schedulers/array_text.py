"""Arrays in Slurm's answers: ``7_4`` is an element, ``7_[5-9%2]`` are pending elements. Pure text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hpcrun.job import state
from hpcrun.job.state import JobInfo, is_terminal

_WAITING = re.compile(r"(\d+)_\[([\d,-]+)(?:%\d+)?\]")
_ELEMENT = re.compile(r"(\d+)_\d+")


def array_id(job_id: str) -> str:
    """Return the array's id for the id of an element; any other id is returned unchanged."""
    return job_id.partition("_")[0]


def element_ids(job_id: str) -> list[str]:
    """Return the ids of the elements for the id of several; any other id is returned unchanged."""
    match = _WAITING.fullmatch(job_id)
    if match is None:
        return [job_id]
    found = []
    for part in match[2].split(","):
        first, _, last = part.partition("-")
        found += [f"{match[1]}_{index}" for index in range(int(first), int(last or first) + 1)]
    return found


def by_job_id(listed: Iterable[JobInfo]) -> dict[str, JobInfo]:
    """Return the information by job id: for each job, each element of an array, and each array as a whole."""
    found: dict[str, JobInfo] = {}
    arrays: dict[str, list[JobInfo]] = {}
    for info in listed:
        for job_id in element_ids(info.job_id):
            found[job_id] = replace(info, job_id=job_id)
            if match := _ELEMENT.fullmatch(job_id):
                arrays.setdefault(match[1], []).append(found[job_id])
    for job_id, elements in arrays.items():
        found[job_id] = whole_array(job_id, elements)
    return found


def whole_array(job_id: str, elements: Sequence[JobInfo]) -> JobInfo:
    """Return one answer for an array: RUNNING while any element runs; after the end of all, their worst state."""

    def importance(info: JobInfo) -> int:
        order = (info.state == state.RUNNING, not is_terminal(info.state), info.state != state.COMPLETED)
        return order.index(True) if True in order else len(order)

    first = min(elements, key=importance)
    states = [info.state for info in elements]
    counts = ", ".join(f"{states.count(word)} {word}" for word in dict.fromkeys(states))
    hosts = ",".join(dict.fromkeys(info.hosts for info in elements if info.hosts))
    elapsed = max((info.elapsed_s for info in elements if info.elapsed_s is not None), default=None)
    return replace(first, job_id=job_id, reason=f"elements: {counts}", hosts=hosts or None, elapsed_s=elapsed)
