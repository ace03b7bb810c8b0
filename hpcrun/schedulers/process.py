"""The only module that runs commands (submitit runs its own sbatch)."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.journal import timed
from hpcrun.writing import for_oneself

_LONGEST_WORD, _MOST_WORDS = 60, 12


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a command.

    Attributes:
        command: for a message (:func:`command_text`).
        status: exit status; None after a timeout or if it is not installed.
        stderr: its stderr, or the reason why there is none.
    """

    command: str
    status: int | None
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        """Whether it ended with exit status 0."""
        return self.status == 0

    def words(self) -> str:
        """Return the command, its exit status and its stderr, for a message."""
        how = "did not respond" if self.status is None else f"exit status {self.status}"
        return f"`{self.command}`: {how}" + (f"\n{self.stderr.strip()}" if self.stderr.strip() else "")


def run_command(
    argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Completed:
    """Run a command to its end, or end it after ``timeout_s`` seconds. Its failure never raises."""
    command = command_text(argv)
    with timed(command) as how:
        try:
            done = subprocess.run(
                argv,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                env=None if env is None else dict(env),
                cwd=cwd,
                encoding="utf-8",
                errors="surrogateescape",
                check=False,
            )
        except subprocess.TimeoutExpired:
            how.append(f"timed out after {timeout_s:g} s")
            return Completed(command, None, "", how[-1])
        except OSError as error:
            how.append(f"{argv[0]}: {error.strerror}")
            return Completed(command, None, "", how[-1])
        how.append(f"exit status {done.returncode}")
    return Completed(command, done.returncode, done.stdout, done.stderr)


def command_text(argv: Sequence[str]) -> str:
    """Return a command for a message, with ``...`` for unreadable parts: thousands of job ids, separators."""
    words = [_word_text(word) for word in argv[:_MOST_WORDS]]
    return " ".join([*words, *(["..."] if len(argv) > _MOST_WORDS else [])])


def _word_text(word: str) -> str:
    if word.isprintable() and len(word) <= _LONGEST_WORD:
        return shlex.quote(word)
    option, is_option, _ = word.partition("=")
    return f"{option}=..." if is_option and option.startswith("--") and len(option) < _LONGEST_WORD else "..."


def run_on_terminal(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a program that uses the terminal, such as an editor, and return its exit status.

    Raises:
        OSError: it cannot be started.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the program only, as in git
    try:
        pid = os.posix_spawnp(argv[0], list(argv), dict(env), setsigdef=[signal.SIGINT])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        signal.signal(signal.SIGINT, before)


def start_and_leave(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], log: Path) -> None:
    """Start a program in its own session and do not wait for it; its output is added to a log.

    Raises:
        OSError: the log cannot be written, or there is no ``sh``.
    """
    # a shell between: the program is then a child of init, which takes its exit status
    start_detached(["/bin/sh", "-c", '"$@" &', "sh", *argv], cwd=cwd, env=env, log=log)


def open_in_browser(url: str) -> bool:
    """Open an address in the user's browser; return whether one took it."""
    import webbrowser  # of all commands only one opens a page

    with timed("webbrowser.open"):
        return webbrowser.open(url)


def start_detached(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None, log: Path) -> None:
    """Start a program in its own session, so that neither Ctrl-C nor a closed terminal reaches it.

    Args:
        env: None for this process's own environment.

    Raises:
        OSError: it cannot be started.
    """
    with open(log, "ab", opener=for_oneself) as output, timed(command_text(argv)) as how:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,
            check=False,
        )
        how.append(f"exit status {done.returncode}")


def leave_running(argv: Sequence[str], *, cwd: Path, log: Path) -> None:
    """Start a program in the background, with this environment, and return at once: a shell starts it, and ends.

    Raises:
        OSError: it cannot be started.
    """
    start_detached(["sh", "-c", '"$@" </dev/null &', "sh", *argv], cwd=cwd, env=None, log=log)
