"""A command on one host, over the connection that ``hpcrun login`` has opened."""

from __future__ import annotations

import os
import shlex
import signal
from typing import TYPE_CHECKING

from hpcrun.errors import InterruptedByUser, SchedulerError
from hpcrun.features.remote import ATTACHED
from hpcrun.features.remote.connection import Connection, Remote, connection_to, known, shell_setup
from hpcrun.schedulers.on_terminal import SSH_FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

_WITH_CODE = ("submit", "import", "scale run")
"""Commands that read files of the project, which travel with them."""
_SNAPSHOT = ("submit", "scale run")
NO_FOLDER = 97
"""The exit status if the folder of the code is missing there; hpcrun has no such status."""


def run_on_one(host: str, words: list[str]) -> int:
    """Run a command line of hpcrun on a host; return its exit status.

    Raises:
        NotConnectedError: there is no connection, or it broke.
        HpcrunError: hpcrun is not there, or the code cannot be copied.
    """
    connection, remote = opened(host)
    folder = ""
    verb = _verb_of(words)
    if verb in _WITH_CODE and not _asks_for_help(words):
        from pathlib import Path

        from hpcrun.features.remote.code import send_code  # few commands take code along

        folder = send_code(connection, Path.cwd())
        if verb in _SNAPSHOT:
            place = words.index(verb.split()[-1]) + 1
            words = [*words[:place], "--snapshot", *words[place:]]
    return run_words(connection, remote, words, folder)


def opened(host: str) -> tuple[Connection, Remote]:
    """Return the open connection to a host, and what is known of hpcrun there."""
    remote = known(host)
    connection = connection_to(host, remote)
    if not connection.is_alive():
        raise connection.lost()
    if remote is None or not remote.hpcrun:
        raise SchedulerError(f"{host} has no hpcrun, as far as `hpcrun login` has seen",
                             hint=f"hpcrun login {shlex.quote(host)} --install")  # fmt: skip
    return connection, remote


def run_words(connection: Connection, remote: Remote, words: Sequence[str], folder: str) -> int:
    """Run a command line of hpcrun in a folder there, on this terminal if there is one; return its exit status."""
    on_terminal = os.isatty(0) and os.isatty(1)
    go = f"cd -- {shlex.quote(folder)} || exit {NO_FOLDER}" if folder else "cd"
    line = f"{ATTACHED}=1 exec {shlex.join([remote.hpcrun, *words])}"
    status = connection.session("\n".join([shell_setup(remote), go, line]), on_terminal=on_terminal)
    if status == -signal.SIGINT:
        raise InterruptedByUser("interrupted")
    if status == SSH_FAILED or status < 0:
        raise connection.lost()
    if status == NO_FOLDER:
        raise SchedulerError(f"the folder of the code is gone on {connection.host}: {folder}", hint="run it again")
    return status


def _verb_of(words: Sequence[str]) -> str:
    plain = [text for text in words if text not in ("-v", "--verbose")]
    first, two = " ".join(plain[:1]), " ".join(plain[:2])
    return two if two in _WITH_CODE else first


def _asks_for_help(words: Sequence[str]) -> bool:
    return not {"-h", "--help"}.isdisjoint(words[:3])
