"""A laptop and the login node of a cluster: a real sshd on this machine, and hpcrun with nothing
but ssh.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.harness import REPO, RESEARCHER, SYSTEM_PATH, Hpcrun, wait_for

SSHD = "/usr/sbin/sshd"


@dataclass(frozen=True)
class LoginNode:
    """An sshd for one user."""

    folder: Path  # of its files, which this user can read
    port: int
    user: str = RESEARCHER

    @property
    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()

    @property
    def logins(self) -> int:
        """How often anybody has logged in."""
        return self.log.count("Accepted ")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_key(path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)


@contextmanager
def login_node(
    folder: Path,
    environ: Mapping[str, str],
    *lines: str,
    code: str = "",
    shell: str = "",
    user: str = RESEARCHER,
    port: int = 0,
) -> Iterator[LoginNode]:
    """Run an sshd.

    Args:
        environ: of its sessions; HOME is not that of /etc/passwd.
        lines: further lines of its configuration, which come first.
        code: what the server asks for after the key, by PAM.
        shell: the user's login shell there.
    """
    Path("/run/sshd").mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    node = LoginNode(folder, port or free_port(), user)
    if not (folder / "host").exists():
        make_key(folder / "host")
        make_key(folder / "user")
    variables = " ".join(f'"{name}={value}"' for name, value in environ.items())
    (folder / "sshd_config").write_text(
        "\n".join(
            [
                *lines,
                f"Port {node.port}",
                "ListenAddress 127.0.0.1",
                f"HostKey {folder}/host",
                "PidFile none",
                "StrictModes no",
                f"AuthorizedKeysFile {folder}/user.pub",
                "PasswordAuthentication no",
                "UsePAM yes",
                f"SetEnv {variables}",
                "",
            ]
        )
    )
    texts = {}
    if code:
        check = folder / "check"
        check.write_text(f'#!/bin/sh\ntest "$(tr -d "\\0")" = {code}\n')
        check.chmod(0o755)
        texts["/etc/pam.d/sshd"] = (
            f"auth required pam_exec.so quiet expose_authtok {check}\nauth required pam_permit.so\n"
            "account required pam_permit.so\nsession required pam_permit.so\n"
        )
    if shell:
        users = Path("/etc/passwd").read_text()
        texts["/etc/passwd"] = re.sub(
            rf"^({user}:.*:)[^:]*$", rf"\g<1>{shell}", users, flags=re.MULTILINE
        )
    binds = []
    for number, (path, text) in enumerate(texts.items()):
        (folder / f"bound-{number}").write_text(text)
        binds.append(f"mount --bind {folder}/bound-{number} {path}")
    command = [SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(folder / "sshd.log")]
    if binds:
        command = [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            "\n".join([*binds, 'exec "$@"']),
            "sh",
            *command,
        ]
    server = subprocess.Popen(command)
    try:
        wait_for(lambda: (folder / "sshd.log").exists() and "listening" in node.log, 10, "sshd")
        yield node
    finally:
        server.terminate()
        server.wait(10)


@contextmanager
def login_node_of(person: Hpcrun, *lines: str, user: str = RESEARCHER) -> Iterator[LoginNode]:
    """Run an sshd for the cluster's ordinary user, whose login shell finds hpcrun and Slurm."""
    wanted = ("PATH", "PYTHONPATH", "SLURM_CONF")  # /etc/profile has its own PATH
    profile = [
        f"export {name}='{value}'" for name, value in person.environ.items() if name in wanted
    ]
    # the environment's own script names a Python by a path that this user may not reach
    program = person.program("there/hpcrun", f'exec {person.python_word} -m hpcrun "$@"')
    person.write("home/.profile", "\n".join([*profile, f"PATH={program.parent}:$PATH", ""]))
    folder = person.write("sshd/readme", "").parent  # the server reads the key as this user
    with login_node(folder, {"HOME": str(person.home), **person.extra}, *lines, user=user) as far:
        yield far


@contextmanager
def laptop(folder: Path, *, lines: str = "", **hosts: LoginNode) -> Iterator[Hpcrun]:
    """A person of another machine: hpcrun, and an ssh configuration that names hosts, with these
    lines before it.

    The paths of its Python and of its sockets have a blank, as in many a home.
    """
    folder.mkdir()
    venv = folder / "it's my venv"
    venv.symlink_to(sys.prefix)
    # a socket's path is short
    with tempfile.TemporaryDirectory(prefix="run of ", dir="/tmp") as runtime:
        path = f"{folder}/bin:{venv}/bin:{SYSTEM_PATH}"
        there = Hpcrun(folder, REPO, venv, extra={"PATH": path, "XDG_RUNTIME_DIR": runtime})
        config = there.write(
            "home/.ssh/config",
            f"{lines}\n"
            + "\n".join(
                f"Host {name}\n HostName 127.0.0.1\n Port {node.port}\n User {node.user}\n"
                f" IdentityFile {node.folder}/user\n UserKnownHostsFile {folder}/known_hosts\n"
                " StrictHostKeyChecking accept-new"
                for name, node in hosts.items()
            ),
        )
        # ssh itself takes the home of /etc/passwd
        there.program("bin/ssh", f'exec /usr/bin/ssh -F {config} "$@"')
        yield there
        for connection in Path(runtime).glob("hpcrun/[!.]*"):
            subprocess.run(["ssh", "-O", "exit", "-S", connection, "any"], capture_output=True)


def kill_connection(person: Hpcrun, host: str) -> None:
    """SIGKILL to the process that holds a connection."""
    done = subprocess.run(
        ["pgrep", "-f", f"ssh .*{person.extra['XDG_RUNTIME_DIR']}/hpcrun/{host} "],
        capture_output=True,
        text=True,
    )
    for pid in done.stdout.split():
        with suppress(ProcessLookupError):  # a session of it, which ends with it
            os.kill(int(pid), 9)
