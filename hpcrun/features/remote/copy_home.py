"""Files of a host on their way to this machine, over the open connection, by rsync.

What the host sends is untrusted. Links, devices and permissions are not copied, names with control
characters neither, and the host can send no more bytes than expected. rsync 3.2.5 and later check
that a host sends only names that the rules allow, and none outside the folder (rsync(1)).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.errors import InterruptedByUser, PlanError, SchedulerError
from hpcrun.features.remote.connection import MOST_BYTES, Connection, rsh_option, write_stderr
from hpcrun.features.remote.from_host import FromHost
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.machine.process import run_command

RSYNC = re.compile(r"rsync +version v?(\d+)\.(\d+)(?:\.(\d+))?[\w.]*")
_CHECKS_NAMES = (3, 2, 5)
SILENT_S = 600
"""How long rsync may move nothing."""
_SLACK_BYTES = 64 << 20
"""So much more than expected a host may send: the list of its files, and logs that grow."""
_OPTIONS = (
    "--recursive",
    "--times",
    "--omit-dir-times",
    "--no-links",
    "--no-devices",
    "--no-specials",
    "--no-perms",
    "--no-owner",
    "--no-group",
    "--chmod=D700,F644",
    "--prune-empty-dirs",
    "--whole-file",
    "--no-compress",
    "--no-human-readable",
    "--no-motd",
    f"--timeout={SILENT_S}",
)
# the controls of ASCII, and those of C1 in UTF-8
_LEFT_OUT = ("- *[[:cntrl:]]*", os.fsdecode(b"- *\xc2[\x80-\x9f]*"))
_NUMBERS = re.compile(
    r"^Number of regular files transferred: (\d+)$.*^Total transferred file size: (\d+) bytes$",
    re.MULTILINE | re.DOTALL,
)
_STATISTICS = b"Number of files:"
_FAILURES = range(1, 256)
"""The exit statuses of rsync after Ctrl-C: which of its processes ends first is chance."""
_VANISHED = 24
"""rsync's exit status if files were removed while it read them."""
_FOLLOWS = ("rsync error:", "rsync: connection unexpectedly closed", "rsync: [generator] write")
"""The beginnings of those lines of rsync that only follow from another error."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The files that rsync copied, or would copy."""

    files: int
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """A folder of a host, and the folder here that gets its files."""

    connection: Connection
    source: str  # an absolute path on the host
    target: Path
    rules: Sequence[str]  # the filter rules of rsync; the first that matches a name counts
    keeps_existing: bool = False

    def measure(self) -> Copied:
        """Return the files that are to be copied, without copying any.

        Raises:
            SchedulerError: the host does not answer as rsync.
        """
        argv = self._argv("--dry-run", "--stats", most=_SLACK_BYTES)
        done = run_command(argv, timeout_s=None, cwd=Path("/"), most=MOST_BYTES)
        return self._result(done.status, done.stdout, done.stderr)

    def carry_out(self, expected: int, *, progress: bool = False) -> Copied:
        """Copy the files, each of which gets its name when it is complete.

        Args:
            expected: the bytes that the host may send, but for a little more.
            progress: whether to draw the progress on a terminal.

        Raises:
            InterruptedByUser: Ctrl-C; no file is incomplete under its own name.
            SchedulerError: not all files could be copied.
        """
        progress = progress and os.isatty(2)
        draw = FromHost(write_stderr)
        output = bytearray()
        errors = bytearray()

        def take(source: int) -> None:
            while chunk := os.read(source, 1 << 16):
                if progress and _STATISTICS not in output:
                    draw.take(chunk.partition(_STATISTICS)[0].rstrip(b"\n"))
                output.extend(chunk)
                del output[:-MOST_BYTES]

        def take_errors(source: int) -> None:
            while chunk := os.read(source, 1 << 16):
                errors.extend(chunk)
                del errors[MOST_BYTES:]

        most = expected + expected // 50 + _SLACK_BYTES
        argv = self._argv("--stats", *(("--info=progress2",) if progress else ()), most=most)
        in_root = ["/bin/sh", "-c", 'cd / && exec "$@"', "sh", *argv]
        status = run_on_terminal(
            in_root, os.environ, read=take, read_errors=take_errors, interrupted=_FAILURES
        )
        if progress:
            write_stderr(b"\n")
        return self._result(
            status, output.decode(errors="replace"), errors.decode(errors="replace")
        )

    def _argv(self, *options: str, most: int) -> list[str]:
        rules = [f"--filter={rule}" for rule in (*_LEFT_OUT, *self.rules)]
        if self.keeps_existing:
            rules.append("--ignore-existing")
        return [
            "rsync",
            *_OPTIONS,
            "--info=nonreg0",
            *rules,
            *options,
            rsh_option(self.connection, most),
            "--",
            f"{self.connection.host}:{self.source}/",
            f"{self.target}/",
        ]

    def _result(self, status: int | None, stdout: str, stderr: str) -> Copied:
        """Return the numbers in the answer of rsync.

        Raises:
            InterruptedByUser: Ctrl-C has ended rsync.
            SchedulerError: not all files could be copied.
        """
        if status == -signal.SIGINT:
            raise InterruptedByUser("interrupted")
        numbers = _NUMBERS.search(stdout)
        if status in (0, _VANISHED) and numbers:
            return Copied(int(numbers[1]), int(numbers[2]))
        if not self.connection.is_alive():
            raise self.connection.lost()
        host = self.connection.host
        raise SchedulerError(f"the files cannot be copied from {host}: {_reason(stderr)}")


def rsync_problem() -> str:
    """Return why rsync of this machine cannot take files of a host; empty if it can."""
    answer = run_command(["rsync", "--version"], timeout_s=5)
    version = RSYNC.match(answer.stdout)
    if version is None:
        return "no rsync of rsync.samba.org on PATH"
    if checks_names(version):
        return ""
    return f"{version[0]} does not check the names that a host sends; 3.2.5 and later do"


def checks_names(version: re.Match[str]) -> bool:
    """Return whether a version of rsync checks the names that a host sends."""
    return tuple(int(part or 0) for part in version.groups()) >= _CHECKS_NAMES


def check_rsync() -> None:
    """Check that rsync of this machine can take files of a host.

    Raises:
        PlanError: it is missing or too old.
    """
    problem = rsync_problem()
    if problem:
        raise PlanError(problem, hint="install rsync 3.2.5 or later on this machine")


def _reason(stderr: str) -> str:
    lines = [line for line in stderr.splitlines() if line.strip()]
    causes = [line for line in lines if not line.startswith(_FOLLOWS)]
    chosen = causes or lines or ["no message"]
    return chosen[-1][:300]
