"""The program of ``hpcrun dev`` on the first node of a job: a listener.

The listener's children are sshd, Jupyter and shells.

serve [IDLE_S [ssh]]   the program of the job, which ends at once if it needs ssh and the node has
                 no sshd; without IDLE_S, of a step beside the ranks of another job
check FOLDER     whether the listener responds
relay FOLDER     gives its stdin and stdout to a new sshd: the end of ssh's ProxyCommand
session FOLDER   what sshd starts in place of the login shell
jupyter FOLDER   starts Jupyter unless it runs; prints a new token of it, and stays as long as the
                 connection

FOLDER is ``dev`` beside the attempts of the run. Sockets, the token and the configuration lie on
the node's own disk, in a folder that only this user can enter. A step's processes end with it, so
they are children of the listener and not of a relay. Standard library of Python 3.9: it travels
into the job without the rest of hpcrun.
"""

from __future__ import annotations

import grp
import importlib.util
import json
import os
import re
import secrets
import select
import selectors
import shlex
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import suppress

if __name__ == "__main__":
    sys.dont_write_bytecode = True  # beside this file, in a folder that runs share
sys.path.append(os.path.dirname(os.path.abspath(__file__)))
from hpcrun_dev_watch import LOOK_S, Watch, log, read_json, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

DOOR = "door"
KEYS = "authorized_keys"
HOST_KEY = "host_key"
REFUSED = "refused"
"""Files in FOLDER: where the listener is, the keys of ssh, and why the job has ended at once."""
ENDED = "dev-ended"  # in the folder of the attempt
PREFIX = "hpcrun-dev-"
PLACES = ("/tmp", "/dev/shm")
MADE = re.compile(PREFIX + "[a-z0-9_]{8}")  # as mkdtemp does
# all that lies in it; older versions wrote the environment
FILES = frozenset({"socket", "environment", "rc", "sshd_config", "sshd.log", "jupyter"})
SSHD = ("/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd")
SFTP = (
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
    "/usr/libexec/ssh/sftp-server",
    "/usr/lib/sftp-server",
)
OF_JOB = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX")
"""Variables that .bashrc may change: the job's values come after it."""
JUPYTER = ("jupyterlab", "notebook", "jupyter_server")
# Another user may listen on the port of a connection that has ended, and gets what a page still
# sends there.
JUPYTER_CONFIG = """import json, os, signal

def token():
    with open(os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], "token")) as file:
        return json.load(file)["token"]

def renew(*_):
    from jupyter_server.serverapp import ServerApp
    app = ServerApp.instance()
    getattr(app, "identity_provider", app).token = token()
    app.web_app.settings.update(token=token(), cookie_secret=os.urandom(32))

signal.signal(signal.SIGUSR2, renew)
c.IdentityProvider.token = c.ServerApp.token = token()
"""
OF_SSH = ("SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "SSH_AUTH_SOCK", "TERM")


def main(command: str, *arguments: str) -> int:
    """Run one of the commands; return the exit status."""
    os.umask(0o077)
    if command == "serve":
        idle_s = float(arguments[0]) if arguments else 0.0
        return serve(idle_s, needs_ssh="ssh" in arguments)
    commands = {"relay": relay, "check": check, "session": session, "jupyter": jupyter}
    return commands[command](*arguments)


# --- the listener --------------------------------------------------------------------------------


def serve(idle_s: float, *, needs_ssh: bool = False) -> int:
    """Listen until the job ends, or until nobody has used the job for ``idle_s`` seconds.

    0 is for no limit. A job that needs ssh, and has no sshd, ends at once.
    """
    attempt = os.environ["HPCRUN_ATTEMPT_DIR"]
    ended = os.path.join(attempt, ENDED)
    # the first node listens, the others keep the job's step
    if os.environ.get("NODE_RANK", "0") != "0":
        while not os.path.exists(ended):
            time.sleep(LOOK_S)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    path = os.environ.get("PATH", "")
    programs = os.path.dirname(sys.executable)
    if programs not in path.split(":"):
        os.environ["PATH"] = f"{programs}:{path}"
    folder = os.path.join(os.path.dirname(os.path.dirname(attempt)), "dev")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if needs_ssh and not sshd_program():
        refusal = f"there is no sshd on {node_name()}"
        write_json(os.path.join(folder, REFUSED), {"attempt": attempt, "message": refusal})
        write_json(ended, time.time())
        sys.exit(f"hpcrun: {refusal}: the job ends")
    listener = Listener(folder)
    try:
        listener.announce()
        listener.run(Watch(folder, idle_s))
    finally:
        listener.close()
    return 0


def sshd_program() -> str:
    """Return the path of this node's sshd, or nothing."""
    return next((path for path in SSHD if os.access(path, os.X_OK)), "")


def node_name() -> str:
    """Return this node's name, Slurm's if this is a job of Slurm."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def local_folder() -> str:
    """Make a folder on the node's own disk that only this user can enter.

    The path is short, since the path of a socket is short.
    """
    problem: OSError | None = None
    for place in PLACES:
        _sweep(place)
        try:
            return tempfile.mkdtemp(prefix=PREFIX, dir=place)
        except OSError as error:
            problem = error
    sys.exit(
        f"hpcrun: {os.uname().nodename} has no room for sockets in {' or '.join(PLACES)}: {problem}"
    )


def remove(folder: str) -> None:
    """Remove a folder that mkdtemp has made, with all in it; find follows no link."""
    subprocess.run(["find", folder, "-delete"], stderr=subprocess.DEVNULL, check=False)


def _sweep(place: str) -> None:
    """Remove the folders of this user's listeners that were killed: nobody listens there."""
    for name in os.listdir(place):
        path = os.path.join(place, name)
        try:
            status = os.lstat(path)
            is_private = status.st_uid == os.getuid() and status.st_mode == stat.S_IFDIR | 0o700
            if not is_private or not MADE.fullmatch(name):
                continue
            if not FILES.issuperset(os.listdir(path)):
                continue
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(os.path.join(path, "socket"))
        except ConnectionRefusedError:
            remove(path)
        except OSError:  # of another listener that has just begun, or just ended
            continue


def can_have_terminals() -> bool:
    """Return whether a new terminal belongs to the group that sshd wants.

    For an ordinary user, sshd cannot change the group.
    """
    try:
        master, slave = os.openpty()
        with os.fdopen(master, "rb"), os.fdopen(slave, "rb"):
            return os.fstat(slave).st_gid == grp.getgrnam("tty").gr_gid
    except (OSError, KeyError):
        return False


def is_installed(module: str) -> bool:
    """Return whether the job's Python has a module; a folder without ``__init__.py`` is none."""
    spec = importlib.util.find_spec(module)
    return spec is not None and bool(spec.origin)


class Listener:
    """The socket, and what it starts."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._local = local_folder()
        # each sshd, and its relay
        self._children: list[tuple[subprocess.Popen[bytes], socket.socket]] = []
        self._jupyter: subprocess.Popen[bytes] | None = None
        self._sshd = sshd_program()
        self._write_files()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(os.path.join(self._local, "socket"))
        self._socket.listen(64)
        self._door = {
            "node": node_name(),
            "local": self._local,
            "python": sys.executable,
            "sshd": self._sshd,
            "attempt": os.environ["HPCRUN_ATTEMPT_DIR"],
            "cwd": os.getcwd(),
        }

    def announce(self) -> None:
        """Tell the commands on the login node where this is."""
        write_json(os.path.join(self._folder, DOOR), self._door)
        message = f"ready on {self._door['node']}"
        if not self._sshd:
            message += ": a shell, but no ssh, since sshd is missing"
        log(message)

    def _write_files(self) -> None:
        names = [name for name in OF_JOB if name in os.environ]
        lines = [f"export {name}={shlex.quote(os.environ[name])}" for name in names]
        self._write("rc", ["[ ! -r ~/.bashrc ] || . ~/.bashrc", *lines])
        command = shlex.join(
            [sys.executable, "-ESB", os.path.abspath(__file__), "session", self._folder]
        )
        config = [
            f'HostKey "{self._folder}/{HOST_KEY}"',
            f'AuthorizedKeysFile "{self._folder}/{KEYS}"',
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PidFile none",
            "PrintMotd no",
            "X11Forwarding no",
            "GatewayPorts no",
            "AllowTcpForwarding yes",
            "AllowStreamLocalForwarding yes",
            "StreamLocalBindMask 0177",
            "ClientAliveInterval 30",
            "ClientAliveCountMax 4",
            "LogLevel ERROR",
            "MaxSessions 100",
            f"ForceCommand {command}",
        ]
        sftp = next((path for path in SFTP if os.access(path, os.X_OK)), "")
        if sftp:
            config.append(f"Subsystem sftp {sftp}")
        if not can_have_terminals():
            config.append("PermitTTY no")
        self._write("sshd_config", config)

    def _write(self, name: str, lines: list[str]) -> None:
        path = os.path.join(self._local, name)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write("\n".join([*lines, ""]))

    def run(self, watch: Watch) -> None:
        """Accept connections until the watch ends the job."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            while not watch.is_over(len(self._children)):
                if selector.select(1.0):
                    self._accept()
                self._reap()

    def _accept(self) -> None:
        connection, _ = self._socket.accept()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("3i", credentials)
        request = b""
        descriptors = list[int]()
        if uid == os.getuid():  # nobody else can enter the folder: a second lock
            connection.settimeout(5.0)
            with suppress(OSError):
                request, descriptors, _, _ = socket.recv_fds(connection, 1, 2)
        with suppress(Exception):  # no request ends the job
            if request == b"s" and self._sshd and len(descriptors) == 2:
                log = os.path.join(self._local, "sshd.log")
                argv = [self._sshd, "-i", "-f", os.path.join(self._local, "sshd_config"), "-E", log]
                child = subprocess.Popen(argv, stdin=descriptors[0], stdout=descriptors[1])
                self._children.append((child, connection))
            else:
                with connection:
                    if request == b"j":
                        self._start_jupyter()
                    connection.sendall(self._answer(request))
        for descriptor in descriptors:
            os.close(descriptor)

    def _reap(self) -> None:
        """Let the relays of ended connections end."""
        for child, connection in self._children:
            if child.poll() is not None:
                connection.close()
        self._children = [pair for pair in self._children if pair[0].returncode is None]

    def _answer(self, request: bytes) -> bytes:
        """Return the job's environment, or whether Jupyter runs.

        The environment is in no file: its secrets would stay on the disk after SIGKILL.
        """
        if request == b"e":
            return json.dumps(dict(os.environ)).encode()
        return b"1" if self._has_jupyter() else b"0"

    def _has_jupyter(self) -> bool:
        return self._jupyter is not None and self._jupyter.poll() is None

    def _start_jupyter(self) -> None:
        """Start Jupyter if the job's Python has it; if it runs, give it a new token."""
        importlib.invalidate_caches()  # it may have been installed since
        module = next((name for name in JUPYTER if is_installed(name)), "")
        if not module:
            return
        run = os.path.join(self._local, "jupyter")
        os.makedirs(run, exist_ok=True)
        sock = os.path.join(run, "socket")
        config = os.path.join(run, "config.py")
        is_up = os.path.exists(sock)
        runs = self._has_jupyter()
        if runs and not is_up:
            return  # it starts, with a token that is new
        write_json(os.path.join(run, "token"), {"token": secrets.token_hex(24)})
        if self._jupyter and runs:
            self._jupyter.send_signal(signal.SIGUSR2)
            return
        if is_up:
            os.unlink(sock)
        self._write("jupyter/config.py", [JUPYTER_CONFIG])
        # the sockets of the kernels too: their TCP ports would show every output to all users of
        # the node
        argv = [
            sys.executable,
            "-m",
            module,
            f"--config={config}",
            f"--ServerApp.sock={sock}",
            "--no-browser",
            "--ServerApp.sock_mode=0600",
            "--KernelManager.transport=ipc",
            f"--ServerApp.root_dir={os.getcwd()}",
        ]
        env = {**os.environ, "JUPYTER_RUNTIME_DIR": run}
        home = os.path.expanduser("~")
        with open(os.path.join(run, "log"), "ab") as log:
            # in the home: -m, and jupyter_core before 4.11.2, run files of the current folder, a
            # project of anybody
            self._jupyter = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, cwd=home
            )

    def close(self) -> None:
        """End the children, and remove what is on the node's disk."""
        for child, _ in self._children:
            child.terminate()
        if self._jupyter:
            self._jupyter.terminate()
        self._socket.close()
        if read_json(os.path.join(self._folder, DOOR)).get("local") == self._local:
            os.unlink(os.path.join(self._folder, DOOR))
        write_json(os.path.join(self._door["attempt"], ENDED), time.time())
        remove(self._local)


# --- at the other end of a connection ------------------------------------------------------------


def connect(folder: str, request: bytes) -> socket.socket:
    """Connect to the listener of a run; its request is one byte."""
    door = read_json(os.path.join(folder, DOOR))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(os.path.join(str(door.get("local", "/nowhere")), "socket"))
    except OSError as error:
        sys.exit(
            f"hpcrun: the listener does not respond on {os.uname().nodename}: {error.strerror}"
        )
    connection.sendall(request)
    return connection


def check(folder: str) -> int:
    """Return 0 if the listener responds."""
    connect(folder, b"c").close()
    return 0


def relay(folder: str) -> int:
    """Give stdin and stdout to a new sshd, and wait for its end.

    No byte passes through this process.
    """
    connection = connect(folder, b"")
    socket.send_fds(connection, [b"s"], [0, 1])
    connection.recv(1)
    return 0


def session(folder: str) -> NoReturn:
    """Become what a connection runs, with the environment of the job.

    This is a shell, a command, or sftp.
    """
    door = read_json(os.path.join(folder, DOOR))
    with connect(folder, b"e") as connection, connection.makefile("rb") as answer:
        env = json.load(answer)
    env.update({name: os.environ[name] for name in OF_SSH if name in os.environ})
    # else bash reads .bashrc again before a command of ssh, and loses the job's PATH: bash(1)
    env["SHLVL"] = "1"
    shell = os.environ.get("SHELL", "/bin/sh")
    command = os.environ.get("SSH_ORIGINAL_COMMAND")
    if command is None:
        os.chdir(door["cwd"])
        argv = [os.path.basename(shell)]
        if argv == ["bash"]:
            argv += ["--rcfile", os.path.join(door["local"], "rc")]
        os.execve(shell, [*argv, "-i"], env)
    home = env.get("HOME", "/")
    os.chdir(home if os.path.isdir(home) else "/")
    if command in SFTP:
        os.execve(command, [command], env)
    os.execve(shell, [os.path.basename(shell), "-c", command], env)


def jupyter(folder: str) -> int:
    """Start Jupyter unless it runs; print its token, and wait for the end of the connection."""
    if connect(folder, b"j").recv(1) != b"1":
        sys.exit(
            f"hpcrun: the job's Python has no Jupyter: {sys.executable} -m pip install jupyterlab"
        )
    run = os.path.join(read_json(os.path.join(folder, DOOR))["local"], "jupyter")
    sock = os.path.join(run, "socket")
    until = time.monotonic() + 60
    while not os.path.exists(sock):
        if time.monotonic() > until or connect(folder, b"c").recv(1) != b"1":
            with open(os.path.join(run, "log"), encoding="utf-8", errors="replace") as log:
                sys.exit(
                    f"hpcrun: Jupyter does not start; the end of its log:\n{log.read()[-1000:]}"
                )
        time.sleep(0.25)
    sys.stdout.write(json.dumps(read_json(os.path.join(run, "token"))) + "\n")
    sys.stdout.flush()
    wait = select.poll()
    # sshd ends no command when its connection is gone; POLLHUP and POLLERR always come: poll(2)
    wait.register(1, 0)
    wait.poll()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
