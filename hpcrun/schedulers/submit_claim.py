"""The claim to submit a run: which process submits it, and whether it may still start a job.

A run is recorded before its job is submitted, together with a claim: the file ``submit.ready``,
which names the submitting process. The process that starts the job first takes over the claim by a
rename: the shell that becomes sbatch, or the supervisor of a local job. If ``status`` finds that
the submitter has ended, it revokes the claim, also by a rename. Only one of the two can succeed: so
a run with a revoked claim has no job and never gets one, whichever process was killed or suspended
at any moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from hpcrun.files.reading import kinds_of, read_fields, read_object, whole
from hpcrun.job.run_paths import SUBMISSION_FILE, RunFolder
from hpcrun.schedulers.supervisor import boot_id, lives, start_ticks

# how long a submission may take if its process cannot be checked from here: another host, or
# another boot
ELSEWHERE_WITHIN_S = 600.0


class Sending(Enum):
    """The progress of a submission without a recorded answer."""

    UNDER_WAY = "it may still be submitted"
    ENDED = "it can no longer be submitted; without a job in the scheduler, there is none"
    NEVER = "it was never submitted, and can no longer be"


@dataclass(frozen=True, slots=True)
class Submitter:
    """A process with a unique identity: pids are reused, and differ between containers."""

    place: str  # its host, boot and pid namespace
    pid: int
    start_ticks: int | None

    def is_near(self) -> bool:
        """Whether its process can be checked from here."""
        return self.place == this_submitter().place

    def lives(self) -> bool:
        """Whether the process still exists, checked on its own host."""
        return lives(self.pid, self.start_ticks)


_KINDS = kinds_of(Submitter, integer=whole(0, 10**18), real=whole(), pid=whole(1))


def this_submitter() -> Submitter:
    """Return this process."""
    pid = os.getpid()
    place = f"{os.uname().nodename} {boot_id()} {os.readlink('/proc/self/ns/pid')}"
    return Submitter(place, pid, start_ticks(pid))


def claim_text() -> str:
    """Return the text of this process's claim to submit."""
    return json.dumps(asdict(this_submitter())) + "\n"


def close_submission(folder: Path) -> None:
    """Remove the claim after sbatch's answer was recorded.

    Raises:
        OSError: the claim cannot be removed, which does no harm.
    """
    RunFolder(folder).submit_claim("called").unlink(missing_ok=True)


def settle_submission(folder: Path, created_s: float, now_s: float) -> Sending:
    """Return the progress of a run's submission; revoke the claim of a submitter that has ended.

    A run whose claim is revoked is never submitted. Call this function before the scheduler is
    queried: a submission that ends in between is then seen by the scheduler.
    """
    run = RunFolder(folder)
    if run.submit_claim("revoked").exists():
        return Sending.NEVER
    called_s = _changed_s(run.submit_claim("called"))
    if called_s is None:
        return _settle_before_call(run, created_s, now_s)
    submitter = _read(run.submit_claim("called"))
    if submitter is None or not submitter.is_near():
        if now_s - called_s < ELSEWHERE_WITHIN_S:
            return Sending.UNDER_WAY
        return Sending.ENDED
    if any(_submits(arguments, folder.name) for arguments in _own_command_lines()):
        return Sending.UNDER_WAY
    return Sending.ENDED


def _settle_before_call(run: RunFolder, created_s: float, now_s: float) -> Sending:
    """Return the progress before sbatch was called; revoke the claim of a submitter that ended."""
    submitter = _read(run.submit_claim())
    if submitter is not None and submitter.is_near():
        waits = submitter.lives()
    else:
        waits = now_s - created_s < ELSEWHERE_WITHIN_S
    if waits:
        return Sending.UNDER_WAY
    try:
        run.submit_claim().rename(run.submit_claim("revoked"))
    except FileNotFoundError:  # taken at this moment; or another version of hpcrun made none
        if run.submit_claim("called").exists():
            return Sending.UNDER_WAY
        return Sending.ENDED
    except OSError:
        return Sending.UNDER_WAY
    return Sending.NEVER


def _submits(arguments: list[bytes], run_id: str) -> bool:
    """Return whether a command line belongs to a run's sbatch or to the run's supervisor.

    A program before sbatch also counts. The comparison uses the run's id, not its path, which may
    have several forms.
    """
    script = f"/{run_id}/{SUBMISSION_FILE}".encode()
    name = run_id.encode()
    if any(script in argument for argument in arguments):
        return True
    supervises = any(argument.endswith(b"/supervisor.py") for argument in arguments)
    last_parts = [argument.rpartition(b"/")[2] for argument in arguments]
    return supervises and name in last_parts


def _own_command_lines() -> Iterator[list[bytes]]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                yield Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended


def _changed_s(path: Path) -> float | None:
    """Return when a file was last changed or renamed, None if it does not exist."""
    try:
        return path.stat().st_ctime
    except OSError:
        return None


def _read(path: Path) -> Submitter | None:
    try:
        return Submitter(**read_fields(read_object(path), _KINDS, tuple(_KINDS))[0])
    except (OSError, ValueError):
        return None
