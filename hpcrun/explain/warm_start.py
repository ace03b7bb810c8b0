"""explain of an attempt that keeps compiled files (--warm): a damaged one can end a program.

A warm start can fail where a cold one does not: pytorch#188332, vllm#24915.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from hpcrun.actions.runs.compiled_text import compiled_row
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.diagnosis.progress import steps
from hpcrun.explain.evidence import Evidence
from hpcrun.runs.attempt import Attempt, RankExit, first_failure, last_attempt
from hpcrun.runs.compiled_files import compiled_files
from hpcrun.runs.log_files import log_lines, rank_log

_FOLDER = "hpcrun-compiled-"
"""How the name of a node's folder of compiled files begins."""
_BY_CODE = {128 + number for number in (signal.SIGBUS, signal.SIGILL, signal.SIGSEGV)}
"""Exit statuses after a signal that damaged code can cause, and other code, too."""
_LAST_LINES = 200


@dataclass(frozen=True, slots=True)
class WarmRemark:
    """What is said of the compiled files of an attempt.

    Attributes:
        evidence: how the attempt started, and what was compiled.
        suspicions: that a compiled file may be damaged; none if nothing points to that.
        fix: how to start without it; empty without a suspicion.
    """

    evidence: Evidence
    suspicions: tuple[str, ...] = ()
    fix: str = ""


def remark_on_warm_start(item: RunStatus) -> WarmRemark | None:
    """Return what is said of the compiled files of a run's newest attempt; None without any."""
    attempt = None if item.elements else last_attempt(item.folder, item.element or 0)
    files = compiled_files(attempt) if attempt else None
    if attempt is None or files is None:
        return None
    start, text = compiled_row(attempt, files)
    evidence = Evidence("compiled files", None, (f"{start}: {text}",))
    failed = first_failure(attempt.folder)
    if failed is None or not files.run or not _may_be_damaged(attempt, failed):
        return WarmRemark(evidence)
    suspicion = f"a compiled file of run {files.run} may be damaged"
    return WarmRemark(
        evidence, (suspicion,), fix=f"start without it: hpcrun resubmit {item.label} --no-warm"
    )


def _may_be_damaged(attempt: Attempt, failed: RankExit) -> bool:
    """Return whether a program failed without a step, in compiled code or in reading it."""
    error = list(log_lines(rank_log(attempt.folder, failed.rank, "err").path, _LAST_LINES))
    out = list(log_lines(rank_log(attempt.folder, failed.rank, "out").path, _LAST_LINES))
    if any(True for _ in steps([*out, *error])):
        return False
    return failed.status in _BY_CODE or any(_names_a_file(line) for line in error)


def _names_a_file(line: str) -> bool:
    return _FOLDER in line and "Error" in line
