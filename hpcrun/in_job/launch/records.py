"""The files of an attempt: small records, which are complete or missing, and the requests to stop.

A record is written to a temporary file and renamed, for network file systems, too.
``hpcrun/runs/attempt.py`` reads it.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from .processes import signal

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

STOP = "stop"
"""The folder of requests to stop: a file for each reason, which stays.

Readers list the folder instead of testing for a file, since NFS may report for half a minute that a
new file does not exist.
"""
TIME_LIMIT = "time_limit"
TERMINATED = "terminated"
NODE_FAILURE = "node_failure"
WRITE_S = 20.0
RETRY_S = 0.5
"""How long to try to write a record for which others wait, and the pause between two tries."""
UNWRITTEN_STATUS = 74
"""The exit status of a part whose record is needed and cannot be written: EX_IOERR of sysexits(3).
"""
TERM_STATUS = 143
KILL_STATUS = 137
OVER = ""
RESTART = "restart"
REQUEUE = "requeue"
"""How the job continues after an attempt: not at all, in this allocation, or through the queue."""


def attempt_dir() -> str:
    """Return the folder of this attempt."""
    return os.environ["HPCRUN_ATTEMPT_DIR"]


def chain_folder() -> str:
    """Return the folder of what the links of a chain know of each other.

    The folder exists if this job may be a link.
    """
    return os.path.join(os.environ["HPCRUN_CHECKPOINT_DIR"], "..", "chain")


def write(name: str, fields: dict[str, Any] | int, folder: str | None = None) -> bool:
    """Write one record of this attempt, and return whether this succeeded.

    If not, print an error.
    """
    return write_patiently(name, fields, folder, within_s=0)


def write_patiently(
    name: str,
    fields: dict[str, Any] | int,
    folder: str | None = None,
    within_s: float | None = None,
) -> bool:
    """Write a record for which others wait, as ``write`` does; try again while the disk is full.

    Args:
        name: the name of the record.
        fields: the content of the record.
        folder: the folder of the record; None for the attempt's folder.
        within_s: as of ``retry_if_full``.
    """
    folder = folder or attempt_dir()
    aside = os.path.join(folder, f".{name}.{os.uname().nodename}.{os.getpid()}")

    def write_and_rename() -> None:
        try:
            with open(aside, "w", encoding="utf-8") as file:
                file.write(_json(fields) + "\n")
            os.replace(aside, os.path.join(folder, name))
        except OSError:
            remove(aside)
            raise

    try:
        retry_if_full(write_and_rename, within_s)
    except OSError as error:
        say(f"cannot write the record {name}: {error}")
        return False
    return True


def retry_if_full(act: Callable[[], object], within_s: float | None = None) -> None:
    """Do something, and do it again while the disk, or the quota, is full.

    Args:
        act: raises OSError if it has failed.
        within_s: the time for this; None for ``WRITE_S``. A SIGTERM ends the time, too.

    Raises:
        OSError: the disk is full still, or there is another reason.
    """
    until = time.monotonic() + (WRITE_S if within_s is None else within_s)
    while True:
        try:
            act()
            return
        except OSError as error:
            is_over = time.monotonic() >= until or signal.SIGTERM in signal.sigpending()
            if is_over or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        time.sleep(RETRY_S)


def _json(fields: dict[str, Any] | int) -> str:
    """Return the JSON of the plain records that every rank writes.

    The result is like that of json.dumps, but this function does not import json for plain records.
    """
    if isinstance(fields, dict):
        texts = {name: _plain(value) for name, value in fields.items()}
        if None not in texts.values():
            members = ", ".join(f'"{name}": {text}' for name, text in texts.items())
            return f"{{{members}}}"
    import json

    return json.dumps(fields)


def _plain(value: object) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        is_plain = value.isascii() and value.isprintable() and not {*value} & {'"', "\\"}
        return f'"{value}"' if is_plain else None
    return repr(value) if isinstance(value, (int, float)) else None


def read_text(name: str, folder: str | None = None) -> str:
    """Return the text of a file of this attempt, the empty string if there is none."""
    try:
        with open(os.path.join(folder or attempt_dir(), name), encoding="utf-8") as file:
            return file.read(4 << 20)
    except (OSError, ValueError):
        return ""


def read(name: str, folder: str | None = None) -> dict[str, Any] | None:
    """Return a record of this attempt, None if it is missing or not a record."""
    text = read_text(name, folder)
    if not text:
        return None
    import json  # only here: every rank looks for its own record when it starts, and there is none

    try:
        record = json.loads(text)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def attempts_cut_off() -> int:
    """Return how many earlier attempts have no record of their end: their nodes may have failed."""
    attempts = 0
    for number in range(int(os.environ["HPCRUN_ATTEMPT"])):
        path = os.path.join(attempt_dir(), "..", str(number))
        if os.path.exists(f"{path}/start") and not os.path.exists(f"{path}/exit"):
            attempts += 1
    return attempts


def lost_nodes() -> list[str]:
    """Return the nodes that failed in the attempt before this attempt.

    The result is empty if that attempt ended for another reason.
    """
    folder = folder_before()
    before = read("exit", folder) if folder else None
    if before is None:
        return []
    nodes = before.get("nodes")
    if before.get("reason") != NODE_FAILURE or not isinstance(nodes, list):
        return []
    return [str(node) for node in nodes]


def folder_before() -> str:
    """Return the folder of the attempt before this attempt, the empty string for the first."""
    number = int(os.environ["HPCRUN_ATTEMPT"])
    if number == 0:  # most jobs: no access to the shared folder
        return ""
    return os.path.join(attempt_dir(), "..", str(number - 1))


def names_in(folder: str) -> list[str]:
    """Return the sorted names in a folder; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    try:
        os.unlink(path)
    except OSError:
        return


def has_begun() -> bool:
    """Whether any node or rank of this attempt has left a record."""
    names = os.listdir(attempt_dir())
    return any(name.startswith(("node-", "rank-", "role")) for name in names)


def exits(of: str = "rank", folder: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the exit records of the ranks, or of each ``node``, that have ended."""
    for name in names_in(folder or attempt_dir()):
        if not name.startswith(f"{of}-") or not name.endswith(".exit"):
            continue
        record = read(name, folder) or {}
        is_whole = isinstance(record.get("status"), int)
        if is_whole and isinstance(record.get("ended"), (int, float)):
            yield record


def first_failed(exits: Any) -> dict[str, Any] | None:
    """Return the record of the rank, or node, that failed first by itself, None if there is none.

    The end of a terminated rank is a consequence; so is an end with status 143, from any sender.
    """
    failed = []
    for record in exits:
        if record["status"] not in (0, TERM_STATUS) and not record.get("told"):
            failed.append(record)
    return min(failed, key=lambda record: float(record["ended"]), default=None)


def started_nodes() -> set[str]:
    """Return the nodes of this attempt that have started ranks."""
    names = names_in(attempt_dir())
    starts = [name for name in names if name.startswith("node-") and name.endswith(".start")]
    return {name[len("node-") : -len(".start")] for name in starts}


def has_failed() -> bool:
    """Whether a rank of this attempt has failed, or a node's launcher before any rank."""
    ranks = list(exits())
    if any(record.get("told") == "cleared" for record in ranks):
        return True
    return bool(first_failed(ranks or exits("node"))) or bool(role_failure())


def role_failure() -> str:
    """Return the message of the role that failed first; empty if none did, or the job has none."""
    folder = os.path.join(attempt_dir(), "roles")
    failures = [read(name, folder) or {} for name in names_in(folder) if name.endswith(".end")]
    first = min(failures, key=lambda each: float(each.get("time", 0)), default={})
    return str(first.get("message", ""))


def stop_reasons() -> list[str]:
    """Return the reasons why this attempt must stop; none if it need not."""
    return names_in(os.path.join(attempt_dir(), STOP))


def ask_to_stop(reason: str) -> bool:
    """Ask all ranks of this attempt to stop.

    The result says whether this is the first request for this reason.
    """
    path = os.path.join(attempt_dir(), STOP, reason)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return False
    except OSError as error:
        say(f"cannot ask the ranks to stop: {error}")
        return False
    try:
        os.write(descriptor, f"{os.uname().nodename} {time.time()}\n".encode())
    except OSError as error:  # the file is enough for the ranks
        say(f"cannot write into {path}: {error}")
    os.close(descriptor)
    return True


def announce(message: str) -> None:
    """Write one line to the job's output."""
    sys.stdout.write(f"hpcrun: {message}\n")
    sys.stdout.flush()


def say(message: str) -> None:
    """Write one line to the log."""
    sys.stderr.write(f"hpcrun: {message}\n")
    sys.stderr.flush()
