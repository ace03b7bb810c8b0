"""Runs commands for hpcrun outside a job: submitit runs its own sbatch; all others run here."""

from __future__ import annotations

import errno
import os
import pwd
import shlex
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.errors import SchedulerError
from hpcrun.files.writing import for_oneself
from hpcrun.machine.clean_environment import clean_env
from hpcrun.machine.command_log import timed

_LONGEST_WORD = 60
_MOST_WORDS = 12
_LATE_S = 3.0
"""How long after its end the output of a command may be open: a connection that hangs would keep it
open for ever.
"""
NO_RESPONSE = ("Slurm does not respond", "`sinfo` shows when it is back")


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command."""

    command: str  # for a message (:func:`command_text`)
    status: int | None  # exit status; None after a timeout or if it is not installed
    stdout: str
    stderr: str  # its stderr, or the reason why there is none

    @property
    def ok(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.status == 0

    def words(self) -> str:
        """Return the command, its exit status and its stderr, for a message."""
        if self.status is None:
            words = f"`{self.command}`: did not respond"
        else:
            words = f"`{self.command}`: exit status {self.status}"
        message = self.stderr.strip()
        if message:
            words += f"\n{message}"
        return words

    def checked(self, problem: str, hint: str) -> Completed:
        """Return this result if the command succeeded.

        Raises:
            SchedulerError: the command failed.
        """
        if not self.ok:
            raise SchedulerError(f"{problem}: {self.words()}", hint=hint)
        return self


def run_command(
    argv: Sequence[str],
    *,
    timeout_s: float | None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | None = None,
    most: int | None = None,
) -> Completed:
    """Run a command to its end, or end it after ``timeout_s`` seconds.

    A failure of the command never raises.

    Args:
        argv: the command and its arguments.
        timeout_s: the seconds after which the command is ended; None for no limit.
        env: the environment of the command; None for this process's own.
        cwd: the folder in which the command runs; None for this process's own.
        stdin: what it reads, without ``most``.
        most: the bytes of stdout or stderr after which it is killed: another machine may print
            without end.
    """
    command = command_text(argv)
    place: dict[str, Any] = {"env": None if env is None else dict(env), "cwd": cwd}
    if stdin is None:
        source: dict[str, Any] = {"stdin": subprocess.DEVNULL}
    else:
        source = {"input": stdin.encode("utf-8", "surrogateescape")}
    with timed(command) as how:
        problem = ""
        try:
            if most is not None:
                done = _run_bounded(argv, most, timeout_s, **place)
            else:
                done = subprocess.run(
                    argv, capture_output=True, timeout=timeout_s, check=False, **source, **place
                )
        except subprocess.TimeoutExpired:
            problem = f"timed out after {timeout_s:g} s"
        except OSError as error:
            problem = f"{argv[0]}: {error.strerror}"
        if problem:
            how.append(problem)
            return Completed(command, None, "", problem)
        how.append(f"exit status {done.returncode}")
    # not by subprocess, which takes a CR in a file's name for the end of a line
    return Completed(command, done.returncode, _decoded(done.stdout), _decoded(done.stderr))


def _run_bounded(
    argv: Sequence[str], most: int, timeout_s: float | None, **place: Any
) -> subprocess.CompletedProcess[bytes]:
    """Run a command as subprocess.run does, without stdin and with a limit on its output.

    Raises:
        OSError: the command has printed ``most`` bytes.
    """
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **place
    )
    outputs = {process.stdout: bytearray(), process.stderr: bytearray()}

    def read(pipe: Any) -> None:
        with pipe:  # closed, it also ends a child of the process that prints more
            while len(outputs[pipe]) < most and (chunk := pipe.read1(1 << 16)):
                outputs[pipe] += chunk
        if len(outputs[pipe]) >= most:
            process.kill()

    readers = [threading.Thread(target=read, args=[pipe], daemon=True) for pipe in outputs]
    try:
        for reader in readers:
            reader.start()
        status = process.wait(timeout_s)
    except BaseException:
        process.kill()
        process.wait()
        raise
    for reader in readers:
        reader.join(_LATE_S)
    stdout = bytes(outputs[process.stdout])
    stderr = bytes(outputs[process.stderr])
    if max(len(stdout), len(stderr)) >= most:
        raise OSError(errno.EFBIG, f"it printed more than {most >> 20} MiB")
    return subprocess.CompletedProcess(argv, status, stdout, stderr)


def _decoded(output: bytes) -> str:
    return output.decode("utf-8", "surrogateescape")


def command_text(argv: Sequence[str]) -> str:
    """Return a command for a message.

    Unreadable parts, such as thousands of job ids or separators, become ``...``; a long path
    keeps its last part.
    """
    words = [_argument_text(argument) for argument in argv[:_MOST_WORDS]]
    if len(argv) > _MOST_WORDS:
        words.append("...")
    return " ".join(words)


def _argument_text(argument: str) -> str:
    if argument.isprintable() and len(argument) <= _LONGEST_WORD:
        return shlex.quote(argument)
    name = argument.rpartition("/")[2]
    if argument.startswith("/") and argument.isprintable() and len(name) <= _LONGEST_WORD:
        return shlex.quote(f".../{name}")
    option, is_option, _ = argument.partition("=")
    if is_option and option.startswith("--") and len(option) < _LONGEST_WORD:
        return f"{option}=..."
    return "..."


def open_in_browser(url: str) -> bool:
    """Open an address in the user's browser; return whether one took it."""
    import webbrowser  # of all commands only one opens a page

    with timed("webbrowser.open"):
        return webbrowser.open(url)


def leave_running(
    argv: Sequence[str], *, cwd: Path, log: Path, env: Mapping[str, str] | None = None
) -> None:
    """Start a program in its own session; return at once.

    Neither Ctrl-C nor a closed terminal reaches the program. Its output is added to a log. A shell
    starts the program and ends: then the program is a child of init, which takes its exit status.

    Raises:
        OSError: the folder does not exist, or the log cannot be written.
    """
    # dash would drop exported functions; -p: bash runs nothing of the user before
    in_background = ["/bin/bash", "-p", "-c", '"$@" </dev/null &', "bash", *argv]
    with open(log, "ab", opener=for_oneself) as output, timed(command_text(argv)) as how:
        done = subprocess.run(
            in_background,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,
            check=False,
        )
        how.append(f"exit status {done.returncode}")


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """The cluster whose commands are on PATH, and this host."""

    env: Mapping[str, str]  # the environment its commands run in
    within_s: float = 10.0  # the timeout of each command

    def run(self, argv: Sequence[str], **variables: str) -> Completed:
        """Run one of Slurm's commands without the user's filters, but with these variables."""
        # without SLURM_BITSTR_LEN squeue lists only 64 characters of the pending elements of an
        # array (squeue(1))
        env = {**clean_env(self.env), "LC_ALL": "C", "SLURM_BITSTR_LEN": "0", **variables}
        return run_command(argv, timeout_s=self.within_s, env=env)


def user_name() -> str:
    """Return the name of this user, or the number if there is no name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
