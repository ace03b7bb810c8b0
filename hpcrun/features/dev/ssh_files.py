"""What ssh on this machine needs to reach a run.

This is a key, the run's host key, and a Host in the user's configuration.

They lie in ~/.ssh/hpcrun.d, three files for each run; one Include line in ~/.ssh/config lets every
program that uses ssh find them.
"""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.cli.confirm import confirm
from hpcrun.cli.output import can_ask, tell
from hpcrun.errors import HpcrunError, PlanError, SchedulerError
from hpcrun.files.writing import replace_file
from hpcrun.machine.process import run_command

_FOLDER = "hpcrun.d"
_KEPT_S = 24 * 3600.0
"""How long after the end of a run its files are kept."""
_LATEST_END_S = 4e9  # in 2096
PUBLIC_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/]{40,100}={0,2}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}", re.ASCII)
_RUN = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,200}", re.ASCII)
_JOB = re.compile(r"L?\d{1,20}(_\d{1,10})?", re.ASCII)  # of a local job, or of an element
_PATH = re.compile("/.*")  # else it could be an option of VS Code
# in a forward, a colon would begin another part
_LOCAL = re.compile(r"(/[A-Za-z0-9._-]+)+", re.ASCII)
# a line in it counts for it alone
_BLOCK = re.compile(r"^\s*(?:Host|Match)\b", re.MULTILINE | re.IGNORECASE)
_ANSWERED = "include-answered"


@dataclass(frozen=True, slots=True)
class Address:
    """How a run is reached."""

    run: str  # its id
    job: str
    user: str
    node: str
    host_key: str
    folder: str  # of the listener, in the run's folder
    local: str  # of the listener, on the node's disk
    cwd: str  # of the job
    program: tuple[str, ...]  # the listener's program on the node
    relay: tuple[str, ...]  # the command on the login node that connects to it
    ends_s: float  # seconds since the epoch
    host: str  # of ``--on``; empty for a run of this machine's cluster

    def named(self, number: str) -> str:
        """Return the job or the run as ssh's name.

        The name contains the host, since other clusters have jobs of this number too.
        """
        if not self.host:
            return f"hpcrun-{number}"
        return f"hpcrun-{self.host.replace('@', '.')}-{number}"

    @property
    def name(self) -> str:
        """The name of the run for ssh."""
        return self.named(self.job)


def read_address(document: Mapping[str, Any], host: str = "") -> Address:
    """Read what ``hpcrun dev --json`` printed, perhaps on another machine.

    Nothing in the answer can become another setting.

    Raises:
        SchedulerError: if the answer is incomplete, or has an impossible value.
    """
    texts = ("run", "job", "user", "node", "host_key", "folder", "local", "cwd")
    try:
        fields = {name: str(document[name]) for name in texts}
        door = Address(
            **fields,
            program=tuple(map(str, document["program"])),
            relay=tuple(map(str, document["relay"])),
            ends_s=float(document["ends_s"]),
            host=host,
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise SchedulerError(
            "the answer of hpcrun there is incomplete", hint="hpcrun login HOST --install"
        ) from None
    forms = (
        (_RUN, door.run),
        (_JOB, door.job),
        (_NAME, door.user),
        (_NAME, door.node),
        (_LOCAL, door.local),
        (_PATH, door.folder),
        (_PATH, door.cwd),
        (PUBLIC_KEY, door.host_key),
    )
    shown = (door.folder, door.cwd, *door.program, *door.relay)
    has_forms = all(form.fullmatch(text) for form, text in forms)
    is_plain = all(text.isprintable() and '"' not in text for text in shown)
    if not (has_forms and is_plain and 0 <= door.ends_s <= _LATEST_END_S):
        raise SchedulerError("the answer of hpcrun there has an impossible value")
    return door


@contextmanager
def new_key() -> Iterator[Path]:
    """Make a key, which a caller must rename to keep.

    Raises:
        PlanError: if ssh-keygen cannot make the key.
    """
    folder = _folder()
    path = folder / f".new-{os.urandom(6).hex()}"
    done = run_command(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "hpcrun", "-f", str(path)],
        timeout_s=20,
    )
    if not done.ok:
        raise PlanError(f"no key for ssh: {done.words()}", hint="install OpenSSH's client")
    try:
        yield path
    finally:
        for file in (path, path.with_name(f"{path.name}.pub")):
            file.unlink(missing_ok=True)


def public_key(path: Path) -> str:
    """Return a key's public half without its comment."""
    return " ".join(path.with_name(f"{path.name}.pub").read_text("ascii").split()[:2])


def _folder() -> Path:
    path = Path.home() / ".ssh" / _FOLDER
    try:
        for folder in (path.parent, path):
            folder.mkdir(mode=0o700, exist_ok=True)
        if path.stat().st_uid != os.getuid() or path.stat().st_mode & 0o022:
            raise PlanError(
                f"others can write to {path}", hint=f"chmod 700 {shlex.quote(str(path))}"
            )
    except OSError as error:
        raise PlanError(f"{path} cannot be made: {error.strerror}") from None
    return path


def write_config(door: Address, key: Path, proxy: Sequence[str], lost: str) -> Path:
    """Write a run's files, and return the configuration with the run's Host.

    The files of runs that have ended are removed.

    Args:
        door: the address of the run.
        key: the new private key, which is moved to the run's files.
        proxy: the command here that connects to the run.
        lost: what a user reads if the connection fails.

    Raises:
        HpcrunError: if a file cannot be written.
    """
    folder = key.parent
    _remove_old(folder)
    private = folder / f"{door.name}.key"
    known = folder / f"{door.name}.known"
    config = folder / f"{door.name}.conf"
    # ssh says no more than that the connection was closed; srun's own lines are about steps and
    # tasks
    message = shlex.quote(f"hpcrun: {lost}")
    script = f"{shlex.join(proxy)} 2>/dev/null || {{ echo {message} >&2; exit 1; }}"
    alias = door.named(door.run)
    lines = [
        f"Host {door.name} {alias}",
        # not the node's name: a ControlPath with %h would share the connection of another host of
        # that name
        f"HostName {alias}",
        f"User {door.user}",
        f"HostKeyAlias {alias}",
        f'IdentityFile "{private}"',
        "IdentitiesOnly yes",
        f'UserKnownHostsFile "{known}"',
        "GlobalKnownHostsFile /dev/null",
        "StrictHostKeyChecking yes",
        "CheckHostIP no",
        "ConnectTimeout 30",
        "ServerAliveInterval 30",
        "ForwardAgent no",
        "ForwardX11 no",
        "PermitLocalCommand no",
        "RemoteCommand none",
        "ProxyCommand " + f"sh -c {shlex.quote(script)}".replace("%", "%%"),
    ]
    try:
        key.replace(private)
        replace_file(known, f"{alias} {door.host_key}\n", durable=False)
        replace_file(config, "\n  ".join(lines) + "\n", durable=False)
        os.utime(config, (time.time(), door.ends_s))
    except OSError as error:
        raise HpcrunError(f"{error.filename} cannot be written: {error.strerror}") from None
    return config


def _remove_old(folder: Path) -> None:
    """Remove the files of runs that have ended.

    The time of a configuration file is the end of its run.
    """
    for config in folder.glob("hpcrun-*.conf"):
        with suppress(OSError):
            if config.stat().st_mtime < time.time() - _KEPT_S:
                for kind in (".key", ".known", ".conf"):
                    config.with_suffix(kind).unlink(missing_ok=True)


def is_included(name: str, *, yes: bool) -> bool:
    """Return whether ~/.ssh/config includes the files of runs.

    With the user's consent, for which hpcrun asks only once, hpcrun adds the missing line.

    Raises:
        HpcrunError: ~/.ssh/config cannot be read or changed.
    """
    folder = _folder()
    pattern = f"{folder}/*.conf"
    line = f'Include "{pattern}"' if " " in pattern else f"Include {pattern}"
    path = (folder.parent / "config").resolve()  # often a link into a repository of such files
    try:
        text = ""
        if path.exists():
            text = path.read_bytes().decode("utf-8", "surrogateescape")
        for_all_hosts = _BLOCK.split(text, maxsplit=1)[0].splitlines()
        if any(each.split() == line.split() for each in for_all_hosts):
            return True
        answered = folder / _ANSWERED
        ask = not yes and can_ask() and not answered.exists()
        if yes or (ask and confirm(f"Add to the top of {path}: {line}?", default=True)):
            content = f"{line}\n\n{text}".encode("utf-8", "surrogateescape")
            replace_file(path, content, keep_mode=True)
            return True
        if ask:
            answered.touch()
    except OSError as error:
        raise HpcrunError(
            f"{path} cannot be changed: {error.strerror}", hint=f"add this line at its top: {line}"
        ) from None
    tell(
        [
            f"hpcrun: for `ssh {name}` and editors, this line is missing at the top of {path}",
            f"hint: {line}    (or add --yes)",
        ]
    )
    return False
