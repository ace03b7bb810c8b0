"""What can be said of the end of a job that left no record of it: what can be seen, and no more."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.facts import Diagnosis, Facts
from hpcrun.job import job_states
from hpcrun.job.job_states import EXIT_KILLED, is_silent
from hpcrun.job.text.units import cut_at_word, joined
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.elements import all_elements

_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded")
_NOT_OPENED = 53
"""The signal in the exit code of a job whose output its node could not open: sacct shows 0:53."""
_SIGKILL = 9
_FULL_BYTES = 1 << 20
"""A record has some hundred bytes, and a file system keeps a little for itself."""
_LONGEST_LINE = 120
_FIX_OF_SPACE = "free some space there (df -h, df -i, quota -s), and submit it again"
_SAYS_NOTHING = ("told-to-end", "node-failed")
"""Rules that follow from the state or the exit status alone, and name no cause here."""


def _no_states(hosts: str) -> Mapping[str, str]:
    """Return that the states of nodes are not known."""
    del hosts
    return {}


def _no_signal(job_id: str) -> None:
    """Return that no signal is known."""
    del job_id


@dataclass(frozen=True, slots=True)
class Questions:
    """What the scheduler is asked of a job whose end nothing else explains.

    Attributes:
        node_states: a node list → the state of each node; empty if the states are not known.
        end_signal: a job id → the signal that ended the job; None without one, or an answer.
    """

    node_states: Callable[[str], Mapping[str, str]] = _no_states
    end_signal: Callable[[str], int | None] = _no_signal


NO_QUESTIONS = Questions()
"""Nobody is asked."""


@dataclass(frozen=True, slots=True)
class UnrecordedEnd:
    """How a job ended that left no record of its end, and what to do; empty where unknown."""

    summary: str
    fix: str = ""


def unrecorded_end(
    item: RunStatus,
    facts: Facts,
    diagnosis: Diagnosis,
    attempt: Attempt | None,
    questions: Questions,
) -> UnrecordedEnd | None:
    """Return how a job ended that left no record of its end; None if something explains the end."""
    if attempt is None:
        return _not_launched(item)
    lost_here = item.run.scheduler == "local" and item.status.state == job_states.NODE_FAIL
    if attempt.exit is not None or diagnosis.first is not None:
        return None
    if item.status.state != job_states.FAILED and not lost_here:
        return None
    cause = diagnosis.cause
    if cause is not None and (cause.hit or cause.rule.name not in _SAYS_NOTHING):
        return None
    return _without_exit(item, facts, attempt, questions)


def _not_launched(item: RunStatus) -> UnrecordedEnd | None:
    """Return that a node could not open the output of a job; None if the job has an output."""
    status = item.status
    if status.state != job_states.FAILED or not item.run.run_id:
        return None
    is_certain = _has_signal(item, _NOT_OPENED)
    if not is_certain and status.reason != job_states.LAUNCH_FAILURE:
        return None
    output = all_elements(item.run).batch_log(item.folder, item.element or 0)
    if output.exists():
        return None
    node = status.hosts or "the node"
    if is_certain:
        summary = f"{node} could not open the job's output {output}: the folder is"
    else:
        summary = f"{node} did not launch the job, and its output {output} does not exist: most"
        summary += " likely the folder is"
    fix = "use a runs folder that all nodes see, and in which you may write there (hpcrun doctor)"
    if status.hosts:
        fix += f"; if only this node does not have it: --exclude={status.hosts}"
    return UnrecordedEnd(f"{summary} not visible there, or not writable", fix)


def _without_exit(
    item: RunStatus, facts: Facts, attempt: Attempt, questions: Questions
) -> UnrecordedEnd:
    """Return why an attempt left no record of its end; the strongest evidence decides."""
    status = item.status
    left = f"the job's process of hpcrun on {attempt.host} left no record of its end"
    line = _line_about_space(facts)
    if line:
        return UnrecordedEnd(f"{left}, and a log has: {line}", _FIX_OF_SPACE)
    if _has_signal(item, _SIGKILL) or status.exit_status == EXIT_KILLED:
        return _killed(attempt)
    if status.reason == job_states.RESTARTED_HERE:
        return UnrecordedEnd(f"{status.reason} while the job ran")
    if _is_full(item.folder):
        full = f"{left}: the file system of {item.folder} is full now"
        return UnrecordedEnd(full, _FIX_OF_SPACE)
    states: Mapping[str, str] = {}
    if status.hosts and not item.elsewhere:
        states = questions.node_states(status.hosts)
    away = [f"{node} ({shown})" for node, shown in states.items() if is_silent(shown)]
    if away:
        return UnrecordedEnd(f"{left}; Slurm does not reach {joined(away)} now")
    signal = questions.end_signal(item.run.job_id or "")
    if signal == _SIGKILL:
        return _killed(attempt)
    if signal is not None:
        return UnrecordedEnd(f"{left}; Slurm's accounting has signal {signal} as its end")
    return UnrecordedEnd(f"{left}; why is unknown")


def _killed(attempt: Attempt) -> UnrecordedEnd:
    process = f"the job's process of hpcrun on {attempt.host}"
    return UnrecordedEnd(f"{process} was killed (SIGKILL): it left no record of its end")


def _has_signal(item: RunStatus, number: int) -> bool:
    """Return whether Slurm saw a signal end the job: in its exit code, or in squeue's reason."""
    status = item.status
    return status.signal == number or (status.reason or "").startswith(f"RaisedSignal:{number}(")


def _line_about_space(facts: Facts) -> str:
    """Return the last line of the logs' ends that tells of a full file system; empty if none."""
    for log in facts.logs:
        for line in reversed(log.scan.tail):
            if _NO_SPACE.search(line):
                return cut_at_word(line.strip(), _LONGEST_LINE)
    return ""


def _is_full(folder: Path) -> bool:
    """Return whether the file system of a folder has no room for a record at this moment."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    has_no_files = space.f_files > 0 and space.f_favail == 0
    return has_no_files or space.f_bavail * space.f_frsize < _FULL_BYTES
