"""``hpcrun --on HOST VERB ...``: the command runs on the host, and this process only passes it on.

Its words, stdin, output, exit status, terminal and Ctrl-C go through ssh; the environment of this
machine does not.
``submit`` and other commands that read a script take a copy of the code along (``code.py``). hpcrun
imports this module before all others, so it imports little itself.
"""

from __future__ import annotations

import os
import stat
import sys

from hpcrun.actions.hooks import Hooks
from hpcrun.errors import SchedulerError, UsageError
from hpcrun.features.remote import (
    ATTACHED,
    FROM_HOST,
    HERE,
    OPTION,
    VERBOSE,
    WRITTEN_TO,
    TypedHost,
    on_host,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hpcrun.actions.hooks import Level

LOCAL = "local"
_ON_LINE = b"\non:"
_CHUNK = 64 * 1024


class RemoteHooks(Hooks):
    """The hook of ``--on``."""

    def run_elsewhere(self, words: Sequence[str]) -> int | None:
        """Run a command line on the hosts that the line or the configuration names.

        Return None if the command line is for this machine.

        Raises:
            UsageError: ``--on local`` stands beside another host, or the line is wrong.
            SchedulerError: the answer of a host is nested too deeply.
            HpcrunError: there is no connection, or the line is wrong.
        """
        if ATTACHED in os.environ:
            TypedHost.name = os.environ[ATTACHED]
            _end_with_connection()
            return None
        hosts, rest = split_hosts(words)
        TypedHost.name = hosts[0] if len(set(hosts)) == 1 else ""
        verb = _verb(rest)
        if not hosts and verb and verb not in HERE and _is_configured():
            hosts = _configured_host()
        if len(hosts) > 1 and LOCAL in hosts:
            raise UsageError(f"{OPTION} {LOCAL} is for this machine alone")
        if not hosts:
            return None
        if hosts == [LOCAL]:
            sys.argv[1:] = rest
            return None
        different = list(dict.fromkeys(hosts))
        if verb == FROM_HOST and len(different) == 1:
            TypedHost.source = hosts[0]
            sys.argv[1:] = rest
            return None
        if len(different) > 1:
            from hpcrun.features.remote.clusters import run_on_several

            try:
                return run_on_several(different, rest)
            except RecursionError:
                raise SchedulerError("the answer of a host is nested too deeply") from None
        from hpcrun.features.remote.run_on_host import run_on_one

        return run_on_one(hosts[0], rest)

    def as_typed(self, text: str) -> str:
        """Return a text whose proposed commands have the ``--on HOST`` of this command.

        This ``--on HOST`` is the one that was typed.
        """
        return on_host(text, TypedHost.name)

    def file_place(self, path: str | os.PathLike[str]) -> str:
        """Return ``HOST:PATH`` for a file of a command that another machine has started here.

        If the file is copied to that machine, return its path there.
        """
        if ATTACHED not in os.environ:
            return os.fspath(path)
        if WRITTEN_TO in os.environ:
            return os.path.join(os.environ[WRITTEN_TO], os.path.basename(path))
        return f"{TypedHost.name or os.uname().nodename}:{os.path.abspath(path)}"

    def doctor_checks(self) -> Sequence[tuple[str, str, Level, str, str | None]]:
        """Return the checks of the hosts that ``hpcrun login`` knows."""
        from hpcrun.features.remote.login import check_logins

        return check_logins()


def split_hosts(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the hosts of ``--on HOST``, and the command line without them.

    ``--on HOST`` stands before a command or right behind it.

    Raises:
        UsageError: a host is missing.
    """
    hosts = []
    rest = []
    verbs = 0
    queue = list(words)
    while queue:
        name, has_value, value = queue[0].partition("=")
        if name == OPTION:
            if not has_value and len(queue) == 1:
                raise UsageError(
                    f"{OPTION} needs a host and a command", hint=f"hpcrun {OPTION} HOST status"
                )
            hosts.append(value if has_value else queue[1])
            del queue[: 1 if has_value else 2]
        elif name in VERBOSE or (not verbs and not name.startswith("-")):
            verbs += name not in VERBOSE
            rest.append(queue.pop(0))
        else:
            break
    return hosts, [*rest, *queue]


def _verb(line: Iterable[str]) -> str:
    """Return the command of a command line: its first word that is no option; empty without one."""
    return next((text for text in line if not text.startswith("-")), "")


def _configured_files() -> Iterable[str]:
    """Yield the possible ``config.yaml`` of this person and of the projects.

    The projects are those around the current folder.
    """
    import platformdirs  # a line that names its host does without

    yield os.path.join(platformdirs.user_config_dir("hpcrun"), "config.yaml")
    try:
        folder = os.getcwd()
    except OSError:
        return
    while True:
        yield os.path.join(folder, ".hpcrun", "config.yaml")
        if folder == os.path.dirname(folder):
            return
        folder = os.path.dirname(folder)


def _is_configured() -> bool:
    """Whether a configuration may name a host.

    Reading YAML takes longer than most commands: so look for the word.
    """
    for path in _configured_files():
        try:
            # a FIFO would wait for its writer
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if stat.S_ISREG(os.fstat(file).st_mode) and _ON_LINE in b"\n" + os.read(file, _CHUNK):
                return True
        except OSError:
            continue
        finally:
            os.close(file)
    return False


def _configured_host() -> list[str]:
    from hpcrun.cli.context import make_context

    host = make_context().config.on
    return [host] if host else []


def _end_with_connection() -> None:
    """Interrupt this command when its output has no reader.

    Without a terminal, ssh sends the command no signal.
    """
    if os.isatty(1):
        return
    import select
    import signal
    import threading

    poll = select.poll()
    poll.register(1, 0)  # POLLHUP and POLLERR are always reported: poll(2)

    def watch() -> None:
        poll.poll()
        os.kill(os.getpid(), signal.SIGINT)

    if not os.path.samestat(os.fstat(1), os.stat(os.devnull)):
        threading.Thread(target=watch, daemon=True).start()
