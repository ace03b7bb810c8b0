"""One OpenSSH connection to a host: ``hpcrun login`` opens it, everything else only uses it.

As a program it is rsync's ``--rsh``.

Sites block accounts that log in often, so nothing but ``hpcrun login`` may log in. If the
connection is gone, or takes no further session, ssh itself would log in again without a message:
``ProxyCommand=false`` makes it fail instead (ssh_config(5)).
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import stat
import sys
from binascii import b2a_base64
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from hpcrun.errors import PlanError, SchedulerError, UsageError
from hpcrun.features.remote.from_host import FromHost
from hpcrun.machine.on_terminal import SSH_FAILED, run_on_terminal, succeeds

if TYPE_CHECKING:
    from collections.abc import Callable

    from hpcrun.machine.process import Completed

KEEPS_S = 8 * 3600
"""How long an unused connection stays open."""
# a socket whose process hangs answers nothing, and ConnectTimeout does not end the wait
_CHECK_S = 3.0
# no option of ssh, and a part of a socket's path
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,49}", re.ASCII)
_CHUNK = 64 * 1024
MOST_BYTES = 16 << 20
"""So much output of a host is kept: a start-up file may print without end."""
_LONGEST_SOCKET = 90  # unix(7): 107 bytes, of which ssh needs 17 while it makes the socket
_LONGEST_COMMAND = 96 * 1024  # of Linux's 128 KiB for one argument (execve(2))
_QUIET = ("-o", "LogLevel=QUIET")
PLAIN = (
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "ForwardAgent=no",
    "-o",
    "ForwardX11=no",
    "-o",
    "PermitLocalCommand=no",
    "-o",
    "RemoteCommand=none",
)
"""What a user's configuration may add to a connection, and hpcrun does not need."""
_REUSE = ("-o", "ControlMaster=no", "-o", "ProxyCommand=false", "-o", "BatchMode=yes", *PLAIN)


class NotConnectedError(SchedulerError):
    """There is no connection to a host, or it takes no further session."""


class Remote(NamedTuple):
    """What a laptop knows of hpcrun on a host, since ``hpcrun login``."""

    hpcrun: str  # path of the program there
    version: str
    path: str  # PATH of a login shell there, which has Slurm's commands
    slurm_conf: str = ""  # SLURM_CONF of a login shell there; empty if it is not set
    # the path of a connection that the user's own ssh configuration shares; empty for hpcrun's own
    control: str = ""


def check_host(host: str) -> str:
    """Return the name of a host if ssh takes the name.

    Raises:
        UsageError: the text is no name of a host, or is an option.
    """
    if not _HOST.fullmatch(host):
        raise UsageError(
            f"{host!r} is not the name of a host", hint="a Host of ~/.ssh/config, or USER@HOST"
        )
    return host


class Connection(NamedTuple):
    """The connection to one host."""

    host: str
    control: str  # the path of its socket

    def argv(self, *options: str) -> list[str]:
        """Return ssh over this connection, which never logs in, without the remote command."""
        return [
            "ssh",
            *_QUIET,
            *_REUSE,
            *self.socket_option(),
            *options,
            "--",
            self.host,
        ]

    def socket_option(self) -> tuple[str, str]:
        """Return the option of ssh that names the socket.

        The value of ``-o ControlPath=`` could have no blank; ssh expands ``%`` in both.
        """
        return "-S", self.control.replace("%", "%%")

    def is_alive(self) -> bool:
        """Whether the connection responds."""
        return succeeds(self.argv("-O", "check"), within_s=_CHECK_S)

    def close(self) -> bool:
        """Close the connection; return whether there was one."""
        return succeeds(self.argv("-O", "exit"), within_s=_CHECK_S)

    def run(self, script: str, *, timeout_s: float = 60) -> Completed:
        """Run a script of sh on the host to its end, without a terminal.

        Raises:
            SchedulerError: ssh cannot run here.
            NotConnectedError: the connection breaks.
        """
        # a command that is only passed on does without
        from hpcrun.machine.process import run_command

        done = run_command(
            [*self.argv(), remote_command(script)], timeout_s=timeout_s, most=MOST_BYTES
        )
        if done.status is None:
            if "timed out" not in done.stderr:
                raise SchedulerError(
                    f"{self.host}: {done.stderr}", hint=f"see: ssh {shlex.quote(self.host)} true"
                )
            raise self.lost(f"{self.host}: {done.stderr}")
        if done.status == SSH_FAILED:
            raise self.lost()
        return done

    def make_folder(self, path: str, inner: str = ".") -> str:
        """Make a folder below the home on the host, and return its absolute path.

        ``inner`` is a folder to make in this folder.

        Raises:
            SchedulerError: the folder cannot be made.
        """
        make = f"mkdir -p {shlex.quote(f'{path}/{inner}')}"
        done = self.run(
            f"cd && umask 077 && {make} && cd -P {shlex.quote(path)} && printf '\\n//%s' \"$PWD\""
        )
        _, mark, folder = done.stdout.rpartition("\n//")  # behind what start-up files print
        if not done.ok or not mark or not folder.startswith("/") or not folder.isprintable():
            reason = (done.stderr or done.stdout).strip()[-300:] or "no message"
            raise SchedulerError(f"no folder {path} on {self.host}: {reason}")
        return folder

    def session(
        self,
        script: str,
        *,
        on_terminal: bool = False,
        is_shell: bool = False,
        take: Callable[[bytes], object] | None = None,
    ) -> int:
        """Run a script of sh on the host, and return the exit status of ssh.

        The script has the stdin and the output of this process. With ``take``, that function gets
        the stdout of the script. Without a terminal, what a login shell's start-up files print to
        stdout is left out. On a terminal, what could control the terminal is left out, unless the
        script is the person's own shell.
        """
        from_host = FromHost(_write_stdout)
        read_errors = None
        if os.isatty(2):
            read_errors = partial(_copy, take=FromHost(write_stderr).take)
        if on_terminal:
            argv = [*self.argv("-t"), remote_command(script)]
            if is_shell:
                return run_on_terminal(argv, os.environ)
            return run_on_terminal(
                argv,
                os.environ,
                read=lambda source: _copy(source, from_host.take),
                read_errors=read_errors,
            )
        mark = f"hpcrun-{os.urandom(8).hex()}"
        command = remote_command(f"printf '%s\\n' {mark}\n{script}")
        argv = [*self.argv("-T", "-o", "EscapeChar=none"), command]
        if take is None:
            take = from_host.take if os.isatty(1) else _write_stdout
        return run_on_terminal(
            argv,
            os.environ,
            read=lambda source: copy_after(f"{mark}\n".encode(), source, take),
            read_errors=read_errors,
        )

    def lost(self, what: str = "") -> NotConnectedError:
        """Return the error of a session that could not be opened, or that broke."""
        if self.is_alive():
            text = (
                what
                or f"{self.host} takes no further session over this connection (sshd's MaxSessions)"
            )
            return NotConnectedError(
                text, hint="end a command that follows a run there: `logs -f`, `--follow`, `top`"
            )
        text = what or f"there is no connection to {self.host}"
        return NotConnectedError(text, hint=f"hpcrun login {shlex.quote(self.host)}")


def remote_command(script: str) -> str:
    """Return a script of sh as one command that every login shell reads alike.

    These shells are bash, zsh, tcsh and fish.

    Raises:
        UsageError: the command is too long for ssh.
    """
    encoded = b2a_base64(script.encode("utf-8", "surrogateescape"), newline=False).decode()
    if len(encoded) > _LONGEST_COMMAND:
        raise UsageError(
            f"the command line is too long for ssh: {len(script)} bytes",
            hint="put it into a script",
        )
    return f"exec /bin/sh -c 'eval \"$(echo {encoded} | base64 -d)\"'"


def connection_to(host: str, remote: Remote | None) -> Connection:
    """Return the connection to a host, open or not, by what is known of it."""
    return Connection(
        check_host(host), remote.control if remote and remote.control else own_control(host)
    )


def own_control(host: str, *, make: bool = False) -> str:
    """Return the path of hpcrun's own socket for a host.

    ``make`` makes the folder of the socket, which only this user can enter.

    Raises:
        PlanError: the folder cannot be made, or other users can enter it.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    home = os.path.expanduser("~")
    folders = [
        *([f"{runtime}/hpcrun"] if runtime else []),
        f"{home}/.ssh/hpcrun",
        f"/tmp/hpcrun-{os.getuid()}",
    ]
    folder = next(
        folder for folder in folders if len(os.fsencode(f"{folder}/{host}")) <= _LONGEST_SOCKET
    )
    path = f"{folder}/{check_host(host)}"
    try:
        for each in (os.path.dirname(folder), folder) if make else ():
            with suppress(FileExistsError):
                os.mkdir(each, 0o700)
        status = os.lstat(folder)
    except OSError as error:
        if not make:
            return path  # there is no connection
        raise PlanError(f"{folder} cannot be made: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PlanError(
            f"{folder} must be a folder that only you can enter",
            hint=f"chmod 700 {shlex.quote(folder)}",
        )
    return path


def record_path(host: str) -> str:
    """Return the path of the file with what is known of a host.

    The file is beside the connection, since each ``hpcrun login`` writes it.
    """
    folder, name = os.path.split(own_control(host))
    return f"{folder}/.{name}.json"


def known(host: str) -> Remote | None:
    """Return what is known of hpcrun on a host; None before the first ``hpcrun login``."""
    try:
        with open(record_path(host), encoding="utf-8") as file:
            fields = json.load(file)
        if all(isinstance(value, str) for value in fields.values()):
            return Remote(**fields)
        return None
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def known_hosts() -> list[str]:
    """Return the hosts that ``hpcrun login`` knows."""
    with suppress(OSError, PlanError):
        names = os.listdir(os.path.dirname(own_control("any")))
        return sorted(
            name[1:-5] for name in names if name.startswith(".") and name.endswith(".json")
        )
    return []


def shell_setup(remote: Remote) -> str:
    """Return the lines of sh that give a command the environment of a login shell.

    The lines set only what hpcrun needs.
    """
    lines = [f"PATH={shlex.quote(remote.path)}", "export PATH"]
    if remote.slurm_conf:
        lines += [f"SLURM_CONF={shlex.quote(remote.slurm_conf)}", "export SLURM_CONF"]
    return "\n".join(lines)


def rsh_option(connection: Connection, most: int = 0) -> str:
    """Return the option of rsync that runs this module.

    rsync must run in ``/``, where no project has modules. ``most`` limits the bytes that the host
    can send; 0 is no limit.
    """
    words = (sys.executable, "-m", __name__, connection.control, str(most))
    return f"--rsh={' '.join(map(_quote_rsh, words))}"


def _quote_rsh(argument: str) -> str:
    """Return an argument of the command in ``--rsh``; a backslash quotes nothing: rsync(1)."""
    return "'" + argument.replace("'", "''") + "'"


def main(control: str, most: str, *words: str) -> int:
    """Run words on the host before them, as rsync calls its ssh; return the exit status.

    The words are quoted for sh.
    """
    # how rsync ends it, perhaps since the connection hangs
    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(1))
    if words[0] == "-l":  # of USER@HOST
        words = (f"{words[1]}@{words[2]}", *words[3:])
    connection = Connection(words[0], control)
    script = f"exec {' '.join(words[1:])}"
    limit = int(most)
    if not limit:
        return connection.session(script)
    received = 0

    def take(chunk: bytes) -> None:
        nonlocal received
        received += len(chunk)
        if received > limit:
            raise SchedulerError(f"{connection.host} sends more than was expected: {limit} bytes")
        _write_stdout(chunk)

    try:
        return connection.session(script, take=take)
    except SchedulerError as error:
        write_stderr(f"{error.message}\n".encode())
        return 1


def copy_after(mark: bytes, source: int, take: Callable[[bytes], object]) -> None:
    """Pass on what comes behind a mark in a pipe.

    What a login shell's start-up files print comes before the mark.

    Raises:
        SchedulerError: the start-up files print too much before the mark.
    """
    before = b""
    room = MOST_BYTES
    while mark not in before:
        if not (chunk := os.read(source, _CHUNK)):
            return
        before = before[-len(mark) :] + chunk
        room -= len(chunk)
        if room < 0:
            raise SchedulerError(f"start-up files there print more than {MOST_BYTES >> 20} MiB")
    take(before.partition(mark)[2])
    _copy(source, take)


def _copy(source: int, take: Callable[[bytes], object]) -> None:
    while chunk := os.read(source, _CHUNK):
        take(chunk)


def _write(descriptor: int, chunk: bytes) -> None:
    """Write bytes to a file or terminal at once."""
    while chunk:
        # rsync lends one socket as stdin and stdout, and ssh makes it nonblocking
        select.select([], [descriptor], [])
        with suppress(BlockingIOError):
            chunk = chunk[os.write(descriptor, chunk) :]


_write_stdout = partial(_write, 1)
write_stderr = partial(_write, 2)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
