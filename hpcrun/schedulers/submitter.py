"""Who submits a run, and whether that may still end in a job.

A run is recorded before its job is submitted, together with a permit: the file ``submit.ready``, which names the
process that submits. What starts the job takes the permit first, by a rename: the shell that becomes sbatch, or the
supervisor of a local job. Whoever finds the submitter gone takes it back, by a rename too. Only one of the two can
succeed: a run whose permit was taken back has no job and never will, whatever was killed or sleeps at which moment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path

from hpcrun.job.layout import SUBMISSION_FILE, RunFolder
from hpcrun.reading import Kind, optional, read_fields, read_object, text, whole
from hpcrun.schedulers.supervisor import boot_id, lives, start_ticks

_KINDS: dict[str, Kind] = {
    "host": text,
    "boot_id": text,
    "pid_namespace": text,
    "pid": whole(1),
    "start_ticks": optional(whole(0, 10**18)),
}
ELSEWHERE_WITHIN_S = 600.0
"""How long a submission may take whose process cannot be looked at from here: another host, or another boot."""


class Sending(Enum):
    """How far a submission is of which no answer was noted."""

    UNDER_WAY = "it may still be submitted"
    ENDED = "it can no longer be submitted; without a job in the scheduler, there is none"
    NEVER = "it was never submitted, and can no longer be"


@dataclass(frozen=True, slots=True)
class Submitter:
    """A process, named so that no other can be taken for it: pids are used again, and differ between containers."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    start_ticks: int | None

    def is_near(self) -> bool:
        """Whether its process can be looked at from here."""
        here = this_submitter()
        return (self.host, self.boot_id, self.pid_namespace) == (here.host, here.boot_id, here.pid_namespace)

    def lives(self) -> bool:
        """Whether the process is still there, seen from its own host."""
        return lives(self.pid, self.start_ticks)


def this_submitter() -> Submitter:
    """Return this process."""
    pid = os.getpid()
    return Submitter(os.uname().nodename, boot_id(), os.readlink("/proc/self/ns/pid"), pid, start_ticks(pid))


def permit_text() -> str:
    """Return the text of the permit to submit, by this process."""
    return json.dumps(asdict(this_submitter())) + "\n"


def close_submission(folder: Path) -> None:
    """Put the permit away: the answer was noted.

    Raises:
        OSError: it cannot be; nothing is lost by that.
    """
    RunFolder(folder).permit_taken.unlink(missing_ok=True)


def look(folder: Path, created_s: float, now_s: float) -> Sending:
    """Say how far the submission of a run is. To be asked before the scheduler is: what ends in between is then known.

    Args:
        created_s, now_s: seconds since the epoch.
    """
    run = RunFolder(folder)
    if run.permit_revoked.exists():
        return Sending.NEVER
    called_s = _changed_s(run.permit_taken)
    if called_s is None:
        return _look_before_call(run, created_s, now_s)
    submitter = _read(run.permit_taken)
    if submitter is None or not submitter.is_near():
        return Sending.UNDER_WAY if now_s - called_s < ELSEWHERE_WITHIN_S else Sending.ENDED
    if any(_submits(arguments, folder.name) for arguments in _own_command_lines()):
        return Sending.UNDER_WAY
    return Sending.ENDED


def _look_before_call(run: RunFolder, created_s: float, now_s: float) -> Sending:
    submitter = _read(run.permit)
    if submitter is not None and submitter.is_near():
        waits = submitter.lives()
    else:
        waits = now_s - created_s < ELSEWHERE_WITHIN_S
    if waits:
        return Sending.UNDER_WAY
    try:
        run.permit.rename(run.permit_revoked)
    except FileNotFoundError:  # taken in this very moment; or there never was one, from another version of hpcrun
        return Sending.UNDER_WAY if run.permit_taken.exists() else Sending.ENDED
    except OSError:
        return Sending.UNDER_WAY
    return Sending.NEVER


def _submits(arguments: list[bytes], run_id: str) -> bool:
    """Whether a command line is that of an sbatch (or of what stands before it) for a run, or of its supervisor.

    By the run's id, not its path, which may be spelt in several ways.
    """
    script, name = f"/{run_id}/{SUBMISSION_FILE}".encode(), run_id.encode()
    supervisor = any(argument.endswith(b"/supervisor.py") for argument in arguments)
    return any(script in item or (supervisor and item.rpartition(b"/")[2] == name) for item in arguments)


def _own_command_lines() -> Iterator[list[bytes]]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == os.geteuid():
                yield Path("/proc", name, "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended


def _changed_s(path: Path) -> float | None:
    """Return when a file was last changed or renamed, None where it is not there."""
    try:
        return path.stat().st_ctime
    except OSError:
        return None


def _read(path: Path) -> Submitter | None:
    try:
        known, _ = read_fields(read_object(path), _KINDS, tuple(_KINDS))
        return Submitter(**known)
    except (OSError, ValueError):
        return None
