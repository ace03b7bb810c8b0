"""hpcrun login: opens the connection to a host, and finds hpcrun there."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
from base64 import b64decode
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, flag
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, note, stdout
from hpcrun.errors import HpcrunError, PlanError, SchedulerError
from hpcrun.features.remote.connection import (
    KEEPS_S,
    PLAIN,
    Connection,
    Remote,
    check_host,
    connection_to,
    known,
    known_hosts,
    own_control,
    record_path,
    remote_command,
)
from hpcrun.features.remote.copy_home import RSYNC, checks_names
from hpcrun.features.remote.install import INSTALLED, install_hpcrun
from hpcrun.files.writing import replace_file
from hpcrun.machine.on_terminal import run_on_terminal
from hpcrun.machine.process import run_command
from hpcrun.version import __version__

if TYPE_CHECKING:
    from hpcrun.actions.hooks import Level

_ANSWER_S = 120.0
_GROUP = "Other machines"
_NAMES = ("hpcrun", "version", "path", "slurm_conf")
_VERSION = re.compile(r"hpcrun (\d[\w.+-]{0,40})", re.ASCII)
_PROBE = """
say() {{ printf '%s %s\\n' "$1" "$(printf '%s' "$2" | base64 | tr -d '\\n')"; }}
program=$HOME/{installed}/{version}/bin/hpcrun
test -x "$program" || program=$(command -v hpcrun) || program=
echo; echo {mark}
say path "$PATH"; say slurm_conf "$SLURM_CONF"; say hpcrun "$program"
test -z "$program" || say version "$("$program" --version </dev/null 2>/dev/null)"
echo {mark}
"""


def login(
    host: str = argument("HOST", "Host of ~/.ssh/config, or USER@HOST.", default=...),
    install: bool = flag("--install", "Install this version of hpcrun on the host."),
    close: bool = flag("--close", "Close the connection."),
    _json: JsonOption = False,
) -> Outcomes:
    """Connect to a cluster, for commands with --on HOST.

    It asks for a password or a one-time code if the host wants one; no other
    command of hpcrun does. The connection stays open for eight hours of disuse.
    """
    make_context()
    connection = connection_to(host, known(host))
    if close:
        shared = connection.control != own_control(host)
        closed = not shared and connection.close()
        if closed:
            words = f"closed the connection to {host}"
        else:
            words = f"there was no connection to {host}"
        if shared:
            words = (
                "left open: your own ssh configuration shares this connection; ssh -O exit "
                f"{host} closes it"
            )
        yield Outcome(
            lambda: [stdout([words])], lambda: {"kind": "login", "host": host, "connected": shared}
        )
        return
    connection = connect(host)
    remote, warning = find_hpcrun(connection)
    if install:
        install_hpcrun(connection, remote.path)
        remote, warning = find_hpcrun(connection)
    if remote.hpcrun:
        where = f"hpcrun {remote.version}: {remote.hpcrun}"
        next_line = f"next       hpcrun --on {host} status"
    else:
        where = "no hpcrun there"
        next_line = f"next       hpcrun login {host} --install"
    yield note([warning])
    yield Outcome(
        lambda: [stdout([f"connected  {host}", f"there      {where}", next_line])],
        lambda: {
            "kind": "login",
            "host": host,
            "connected": True,
            "hpcrun": remote.hpcrun or None,
            "version": remote.version or None,
            "warning": warning,
        },
    )


def connect(host: str) -> Connection:
    """Open the connection to a host, if it is not open; ssh asks on the terminal for what it needs.

    Raises:
        SchedulerError: ssh could not log in; its own message is on stderr.
        PlanError: there is no ssh on this machine.
    """
    connection = connection_to(host, known(host))
    if connection.is_alive():
        return connection
    shared = _shared_by_user(host)
    if shared and shared.is_alive():
        return shared
    connection = Connection(host, own_control(host, make=True))
    Path(connection.control).unlink(missing_ok=True)  # of a process that was killed
    argv = [
        "ssh",
        "-f",
        "-N",
        "-M",
        *connection.socket_option(),
        "-o",
        f"ControlPersist={KEEPS_S}",
        "-o",
        "ServerAliveInterval=30",
        "-o",
        "ServerAliveCountMax=6",
        *PLAIN,
        "--",
        host,
    ]
    try:
        status = run_on_terminal(argv, os.environ)
    except FileNotFoundError:
        raise PlanError(
            "--on and login need ssh, and this machine has none", hint="install OpenSSH's client"
        ) from None
    if status != 0 or not connection.is_alive():
        raise SchedulerError(
            f"ssh could not log in to {host}", hint=f"try it alone: ssh {shlex.quote(host)}"
        )
    return connection


def _shared_by_user(host: str) -> Connection | None:
    """Return the connection that the user's own ssh configuration shares.

    The connection can be open or not. Return None without such a setting.
    """
    answer = run_command(["ssh", "-G", "--", check_host(host)], timeout_s=5)
    settings = dict(line.split(" ", 1) for line in answer.stdout.splitlines() if " " in line)
    path = settings.get("controlpath", "none")
    if path == "none" or not path.startswith("/"):
        return None
    return Connection(host, path)


def find_hpcrun(connection: Connection) -> tuple[Remote, str | None]:
    """Ask a login shell of the host for hpcrun and its environment.

    Remember the answer, and return it with a warning, or None if there is none.

    Raises:
        SchedulerError: the host answered something else.
    """
    mark = f"hpcrun-{secrets.token_hex(8)}"
    probe = _PROBE.format(installed=INSTALLED, version=__version__, mark=mark)
    # the shell of the account as a login shell: it sets PATH as for a person who logs in
    done = connection.run(
        f"printf '%s\\n' {shlex.quote(remote_command(probe))} | exec \"$SHELL\" -l",
        timeout_s=_ANSWER_S,
    )
    parts = done.stdout.split(mark)
    fields = _fields_of(parts[1]) if len(parts) == 3 else {}
    if not fields.get("path"):
        raise SchedulerError(
            f"the login shell of {connection.host} did not answer as expected",
            hint=f"see what it prints: ssh {shlex.quote(connection.host)} true",
        )
    version = _VERSION.fullmatch(fields.get("version", "").strip())
    program = fields.get("hpcrun", "")
    has_program = program.startswith("/") and version is not None
    if connection.control != own_control(connection.host):
        shared = connection.control
    else:
        shared = ""
    remote = Remote(
        hpcrun=program if has_program else "",
        version=version[1] if has_program and version else "",
        path=fields["path"],
        slurm_conf=fields.get("slurm_conf", ""),
        control=shared,
    )
    remember(connection.host, remote)
    if has_program and remote.version != __version__:
        other = f"hpcrun {remote.version} is installed there, and {__version__} here"
        return (
            remote,
            f"{other}; the same on both: hpcrun login {shlex.quote(connection.host)} --install",
        )
    return remote, None


def remember(host: str, remote: Remote) -> None:
    """Save what is known of hpcrun on a host.

    Raises:
        HpcrunError: the file cannot be written.
    """
    own_control(host, make=True)
    path = record_path(host)
    try:
        replace_file(Path(path), json.dumps(remote._asdict()).encode())
    except OSError as error:
        raise HpcrunError(f"{path} cannot be written: {error.strerror}") from None


def _fields_of(text: str) -> dict[str, str]:
    """Return the printable fields of a host's answer."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, encoded = line.partition(" ")
        try:
            value = b64decode(encoded, validate=True).decode()
        except ValueError:
            continue
        if name in _NAMES and value.isprintable() and len(value) < 20_000:
            fields[name] = value
    return fields


def check_logins() -> list[tuple[str, str, Level, str, str | None]]:
    """Return the checks for ``hpcrun doctor``: each host that ``hpcrun login`` knows, and rsync."""
    rows: list[tuple[str, str, Level, str, str | None]] = []
    for host in known_hosts():
        remote = known(host)
        again = f"hpcrun login {shlex.quote(host)}"
        if not connection_to(host, remote).is_alive():
            rows.append((_GROUP, host, "yellow", "no connection", again))
        elif remote is None or remote.version != __version__:
            if remote and remote.hpcrun:
                there = f"hpcrun {remote.version}"
            else:
                there = "no hpcrun"
            rows.append(
                (
                    _GROUP,
                    host,
                    "yellow",
                    f"connected; {there} there, {__version__} here",
                    f"{again} --install",
                )
            )
        else:
            rows.append((_GROUP, host, "green", f"connected; hpcrun {remote.version} there", None))
    if rows:
        answer = run_command(["rsync", "--version"], timeout_s=5)
        version = RSYNC.match(answer.stdout)
        if version is None or int(version[1]) < 3:
            seen = version[0] if version else "no rsync of rsync.samba.org on PATH"
            rows.append((_GROUP, "rsync", "red", seen, "install rsync 3"))
        elif checks_names(version):
            rows.append((_GROUP, "rsync", "green", version[0], None))
        else:
            fix = "install rsync 3.2.5 or later: older ones cannot fetch files"
            rows.append((_GROUP, "rsync", "yellow", version[0], fix))
    return rows
