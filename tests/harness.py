"""The real parts that tests run: the hpcrun program as a process of its own, and the development
cluster.
"""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import pwd
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partialmethod
from pathlib import Path
from typing import Any, TypeVar

import pexpect
import pytest

from tests.documents import check_printed
from tests.preloaded import AT_START, Server

REPO = Path(__file__).resolve().parents[1]
CLUSTER_SH = REPO / "dev" / "cluster.sh"
RESEARCHER = "researcher"
SESSION_LOCK = Path("/run/hpcrun-tests.lock")  # where root alone can make files
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TRACKERS = REPO / ".venv-trackers"
"""Where `make trackers` installs wandb, MLflow and Aim."""
RECIPES = REPO / ".venv-recipes"
"""Where `make recipes` installs other people's launchers and libraries."""
NEEDED = {name: os.environ[name] for name in ("USE_LIBUV",) if name in os.environ}
"""What this machine's torch needs in order to work: USE_LIBUV=0 where it is Debian's own."""

Completed = subprocess.CompletedProcess[str]
T = TypeVar("T")


def wait_for(predicate: Callable[[], T | None], timeout: float, what: str) -> T:
    """The predicate's first true value; an AssertionError that names ``what`` when there is none in
    time.

    A predicate that takes long, such as a command that asks Slurm, is asked less often: it would
    slow down what is waited for, and the tests of other workers.
    """
    deadline = time.monotonic() + timeout
    while True:
        asked = time.monotonic()
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(
                f"waited {timeout:g} s in vain for {what}; the last answer was {value!r}"
            )
        time.sleep(min(2, max(0.2, 10 * (time.monotonic() - asked))))


@dataclass(frozen=True)
class Hpcrun:
    """The hpcrun command of one person: a home, a runs folder, and an environment with nothing else
    in it.

    Calling it runs ``python -m hpcrun ARGS``. `run` runs any other program in the same
    surroundings.
    """

    folder: Path  # where commands run unless told otherwise
    checkout: Path  # where this person sees the project: use it for paths like examples/
    venv: Path
    become: tuple[str, ...] = ()  # the command that makes another one run as this person
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir()
        # whatever the umask: hpcrun refuses one that others could write to
        self.runs.mkdir(mode=0o755)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "HPCRUN_RUNS": str(self.runs),
            "HPCRUN_SITE": str(self.folder / "site"),
            "LANG": "C.UTF-8",
            "PATH": f"{self.venv}/bin:{SYSTEM_PATH}",
            "VIRTUAL_ENV": str(self.venv),
            **NEEDED,
            **self.extra,
        }

    @property
    def python_word(self) -> str:
        """The Python of this person as one word of a shell."""
        return shlex.quote(self.python_path)

    @property
    def python_path(self) -> str:
        return f"{self.venv}/bin/python"

    def argv(self, *args: str) -> list[str]:
        return [self.python_path, "-m", "hpcrun", *args]

    def __call__(
        self,
        *args: str,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        check: bool = False,
        timeout: float = 120,
        stdin: str | None = None,
    ) -> Completed:
        """Run a command of hpcrun, in a process that has imported it already: see
        tests/preloaded.py.
        """
        changed = self._changed(env)
        if any(name.startswith(AT_START) for name in env or ()):
            done = self.run(
                *self.argv(*args), env=env, cwd=cwd, check=check, timeout=timeout, stdin=stdin
            )
        else:
            done = self._server().run(
                self.python_path, args, changed, cwd or self.folder, stdin or "", timeout
            )
        check_printed(args, done.stdout)
        return self._checked(done, check)

    def document(self, *args: str, **more: Any) -> dict[str, Any]:
        """What a command prints with ``--json``, whether it ends well or not."""
        return dict(json.loads(self(*args, "--json", **more).stdout))

    def status(self, run: str = "last", **more: Any) -> dict[str, Any]:
        """What status says of a run in JSON."""
        (only,) = self.document("status", run, check=True, **more)["runs"]
        return dict(only)

    def ended(self, run: str = "last", timeout: float = 120) -> dict[str, Any]:
        """Wait for the end of a run; return its status. A failure says all that is known of it."""

        def final() -> dict[str, Any] | None:
            found = self.status(run)
            return found if found["final"] else None

        try:
            return wait_for(final, timeout, f"{run} to be over")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{account(Path(self.status(run)['folder']))}") from None

    def submit(self, *args: str, **more: Any) -> Path:
        """Submit a job, whatever becomes of it; return the run's folder."""
        done = self("submit", "--json", *args, **more)
        assert done.stdout, done.stderr
        return Path(json.loads(done.stdout)["folder"])

    def write(self, name: str, text: str) -> Path:
        """Write a file of this person below the folder; return its path."""
        path = self.folder / name
        made = [path, *(folder for folder in path.parents if not folder.exists())]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for each in made if self.become else ():
            shutil.chown(each, RESEARCHER)
        return path

    def program(self, name: str, text: str) -> Path:
        """Write a program below the folder: a script of sh, or of what its own first line names."""
        path = self.write(name, text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def shims(self, folder: str = "bin", **programs: str) -> dict[str, str | None]:
        """Write programs into a folder below the own one; return an environment that finds them
        first.
        """
        for name, text in programs.items():
            self.program(f"{folder}/{name.replace('_', '-')}", text)
        return {"PATH": f"{self.folder / folder}:{self.environ['PATH']}"}

    def terminal(
        self,
        *args: str,
        env: Mapping[str, str | None] | None = None,
        size: tuple[int, int] = (50, 120),
        **more: Any,
    ) -> Any:
        """Run a command of hpcrun on a terminal of so many lines and columns."""
        argv = [*self.become, *self.argv(*args)]
        changed: Any = {"TERM": "xterm", **self._changed(env)}
        given = {"cwd": str(self.folder), "encoding": "utf-8", "timeout": 60, **more}
        return pexpect.spawn(argv[0], argv[1:], env=changed, dimensions=size, **given)

    def screen(self, *args: str, columns: int = 80, **more: Any) -> str:
        """What a command prints on a terminal of so many columns, colours left out unless ``env``
        says otherwise.
        """
        return at_end(
            self.terminal(*args, size=(50, columns), **{"env": {"TERM": "dumb"}, **more})
        )[1]

    def write_script(self, name: str, *words: str, cwd: Path | None = None) -> Completed:
        """Write what ``submit`` would submit to a file below the folder, as ``--dry-run >name``
        does.
        """
        done = self("submit", "--dry-run", *words, cwd=cwd, check=True)
        self.run("tee", name, stdin=done.stdout)
        return done

    def run(
        self,
        *argv: str,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        check: bool = True,
        timeout: float = 120,
        stdin: str | None = None,
        inherited: tuple[int, ...] = (),
    ) -> Completed:
        """Run a program as this person. ``env`` adds variables, or takes them away with None."""
        done = subprocess.run(
            [*self.become, *argv],
            env=self._changed(env),
            cwd=cwd or self.folder,
            input=stdin or "",
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",  # a test may well print a file name that is no text
            timeout=timeout,
            pass_fds=inherited,
        )
        return self._checked(done, check)

    def shell(self, line: str) -> Completed:
        """Run a line of bash in which ``hpcrun`` is the command as `__call__` runs it, whatever its
        end.
        """
        function, number = self._server().shell_function(self.python_path)
        return self.run("bash", "-c", f"{function}; {line}", check=False, inherited=(number,))

    def python(self, program: str, **more: Any) -> str:
        """What a Python program prints, whose functions are those of ``__main__``; it complains of
        nothing.
        """
        self.write("program.py", program)
        done = self.run(self.python_path, "program.py", **more)
        assert done.stderr == ""
        return done.stdout

    def _changed(self, env: Mapping[str, str | None] | None) -> dict[str, str]:
        return {
            key: value
            for key, value in {**self.environ, **(env or {})}.items()
            if value is not None
        }

    def _server(self) -> Server:
        """The server of this person, in the namespaces of this thread."""
        spaces = (os.stat(f"/proc/thread-self/ns/{kind}").st_ino for kind in ("mnt", "net", "uts"))
        at_start = {
            name: value for name, value in self.environ.items() if name.startswith(AT_START)
        }
        python = f"{self.venv.resolve()}/bin/python"  # laptops have names of their own for it
        key = (*self.become, python, *sorted(at_start.items()), *spaces)
        with SERVERS_LOCK:
            if key not in SERVERS:
                at_start["PATH"] = SYSTEM_PATH
                SERVERS[key] = Server([*self.become, python], at_start)
            return SERVERS[key]

    @staticmethod
    def _checked(done: Completed, check: bool) -> Completed:
        if check and done.returncode != 0:
            raise AssertionError(
                f"{done.args} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done


SERVERS: dict[tuple[object, ...], Server] = {}
SERVERS_LOCK = threading.Lock()


def end_servers() -> None:
    with SERVERS_LOCK:
        while SERVERS:
            SERVERS.popitem()[1].end()


def without_stdin(person: Hpcrun, line: str) -> Completed:
    """Run a line of bash with a command of hpcrun, whose stdin is closed."""
    return person.shell(f"{line} <&-")


def at_end(terminal: Any) -> tuple[int, str]:
    """Wait for the end of what runs on a terminal; return its exit status, and what it printed
    last.
    """
    terminal.expect(pexpect.EOF)
    terminal.close()
    return terminal.exitstatus, str(terminal.before)


def answer(terminal: Any, question: str, text: str) -> None:
    """Type a line when a question, a regular expression, is asked."""
    terminal.expect(question)
    terminal.sendline(text)


def trust(person: Hpcrun, project: Path) -> None:
    """Let a person trust what a project brings, as they do it: at a terminal."""
    terminal = person.terminal("profile", "trust", str(project))
    answer(terminal, r"Trust these files as they are now\? \[y/N\] ", "y")
    terminal.expect("trusted  ")
    terminal.expect(pexpect.EOF)


class ClusterError(Exception):
    """The cluster tool failed. ``incapable``: because this machine cannot run a cluster at all."""

    def __init__(self, done: Completed) -> None:
        said = done.stderr.strip() or f"exit status {done.returncode}"
        super().__init__(said.splitlines()[-1].removeprefix("cluster.sh: "))
        self.incapable = done.returncode == 3  # EXIT_CANNOT in dev/cluster.sh


NO_GPUS = "torch sees 0 of 2 GPUs"
"""What a preflight says, rightly, of the cluster's GPUs, which are none, where torch is a build for
GPUs.
"""


def torch_is_for_gpus() -> bool:
    """Whether the tests' torch is a build for GPUs. It is not imported: that takes seconds."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    facts: dict[str, object] = {}
    exec((Path(spec.origin).parent / "version.py").read_text(), facts)
    return bool(facts.get("cuda") or facts.get("hip"))


def cluster_sh(*args: str) -> str:
    # The first 'up' of a machine downloads Slurm: minutes.
    done = subprocess.run([CLUSTER_SH, *args], capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise ClusterError(done)
    return done.stdout


def cluster_error(*args: str) -> ClusterError | None:
    try:
        cluster_sh(*args)
    except ClusterError as error:
        return error
    return None


UNDONE_BY = {
    "full": ("stop", "start"),
    "apart": ("stop", "start"),
    "stop": ("start",),
    "unplug": ("plug",),
    "block": ("unblock",),
}
"""Faults, as dev/cluster.sh names them, in the order in which they are undone."""


@dataclass
class Cluster:
    """The development cluster, and the faults a test makes in it, which `restore` undoes."""

    root: Path
    _faults: set[tuple[str, str]] = field(default_factory=set)

    @classmethod
    def running(cls) -> Cluster:
        conf = cluster_sh("env").strip().removeprefix("export SLURM_CONF=")
        return cls(root=Path(conf).parents[1])

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.root / "etc" / "slurm.conf")}

    def env_without_accounting(self, folder: Path) -> dict[str, str]:
        """The same cluster, seen by commands that know of no accounting database: their sacct
        refuses.
        """
        lines = Path(self.env["SLURM_CONF"]).read_text().splitlines()
        kept = [line for line in lines if not line.startswith("AccountingStorage")]
        conf = folder / "slurm-without-accounting.conf"
        conf.write_text("\n".join([*kept, "AccountingStorageType=accounting_storage/none", ""]))
        conf.chmod(0o644)
        return {"SLURM_CONF": str(conf)}

    def make(self, fault: str, what: str) -> None:
        """Make a fault, one of ``UNDONE_BY``; until the end of the test, or `mend`."""
        self._faults.add((fault, what))
        cluster_sh(fault, what)

    def mend(self, fault: str, what: str) -> None:
        for command in UNDONE_BY[fault]:
            cluster_sh(command, what)
        self._faults -= {(each, what) for each in (fault, *UNDONE_BY[fault])}

    # ctld, dbd, or the slurmd of a node
    stop, start = partialmethod(make, "stop"), partialmethod(mend, "stop")
    apart = partialmethod(make, "apart")  # a small disk of a node's own in /mnt
    fill = partialmethod(make, "full")  # no room in /tmp and /dev/shm of a node, which runs no job
    # a node's network cable
    unplug, plug = partialmethod(make, "unplug"), partialmethod(mend, "unplug")
    # nobody can connect to the ports of a node from which rendezvous ports are taken, as with a
    # firewall
    block, unblock = partialmethod(make, "block"), partialmethod(mend, "block")

    def slurm(self, *argv: str) -> str:
        """What a Slurm command says, asked as the user who runs the tests."""
        env = {"PATH": SYSTEM_PATH, **self.env}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise AssertionError(
                f"{argv} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done.stdout

    def nodes(self) -> dict[str, str]:
        """Every node's state in sinfo's words; a star at its end says that the node does not
        answer.
        """
        lines = self.slurm("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict(sorted(line.split() for line in lines))

    def jobs(self) -> set[str]:
        """The ids of the jobs that are not over; an array counts once."""
        return set(self.slurm("squeue", "--noheader", "--format=%F").split())

    def restore(self, *, keep: Iterable[str]) -> None:
        """Undo every fault, cancel every job but those to keep, and wait until the nodes can be
        used again.
        """
        for fault in UNDONE_BY:
            for what in sorted(what for kind, what in self._faults if kind == fault):
                self.mend(fault, what)
        kept = set(keep)
        if new := self.jobs() - kept:
            self.slurm("scancel", *new)
            # a node that was away is told to end its jobs again only after a while
            wait_for(lambda: self.jobs() <= kept, 180, "the test's jobs to end")
        try:
            try:
                wait_for(self._usable, 60, "every node to be usable")
            except AssertionError:
                # Slurm asks a node that it has given up only rarely whether it is back; a slurmd
                # that starts says so
                for node in (node for node, state in self.nodes().items() if state.endswith("*")):
                    self.stop(node)
                    self.start(node)
                wait_for(
                    self._usable,
                    90,
                    "every node to be usable, after a restart of those that do not answer",
                )
        except AssertionError as error:
            raise AssertionError(
                f"{error}\n{self.slurm('sinfo', '--list-reasons', '--Node', '--long')}"
            ) from None

    def _usable(self) -> bool:
        unusable = {
            node: state
            for node, state in self.nodes().items()
            if state not in {"idle", "mixed", "allocated"}
        }
        for node, state in unusable.items():
            if state.startswith(("down", "drain", "fail")) and not state.endswith("*"):
                self.slurm("scontrol", "update", f"nodename={node}", "state=resume")
        return not unusable


@contextmanager
def only_session_on_cluster() -> Iterator[None]:
    """Waits for other sessions of tests: they would cancel this one's jobs and pull its cables."""
    with SESSION_LOCK.open("w") as lock:

        def take() -> bool:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            return False

        wait_for(take, 1800, "another session of tests on the same cluster to end")
        yield


def as_researcher_command() -> tuple[str, ...]:
    gid = pwd.getpwnam(RESEARCHER).pw_gid
    return ("setpriv", f"--reuid={RESEARCHER}", f"--regid={gid}", "--init-groups")


def new_researcher(folder: Path, cluster: Cluster, shown: tuple[Path, Path]) -> Hpcrun:
    """The cluster's ordinary user with an empty home, in a new folder within this one.

    Args:
        shown: the checkout and the environment as this user reaches them: see
            `shown_to_researcher`.
    """
    checkout, venv = shown
    own = Path(tempfile.mkdtemp(dir=folder))
    # An editable install points at the checkout's own path, which this user may not reach.
    extra = cluster.env if checkout == REPO else {**cluster.env, "PYTHONPATH": str(checkout)}
    person = Hpcrun(own, checkout, venv, as_researcher_command(), extra)
    for path in (own, person.home, person.runs):
        shutil.chown(path, RESEARCHER)
    return person


@contextmanager
def folder_open_to_others() -> Iterator[Path]:
    """A folder outside of pytest's own, which are closed to other users; it is removed at the
    end.
    """
    folder = Path(tempfile.mkdtemp(prefix="hpcrun-tests-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def inodes(folder: Path) -> tuple[int, int]:
    """The files and links below a folder, and the folders, with itself."""
    paths = [folder, *folder.rglob("*")]
    folders = sum(path.is_dir() and not path.is_symlink() for path in paths)
    return len(paths) - folders, folders


def writable_by_others(folder: Path) -> list[Path]:
    """What another user could write to, if the folders above allowed it."""
    return [
        path for path in folder.rglob("*") if path.lstat().st_mode & 0o022 and not path.is_symlink()
    ]


def processes_with(word: str) -> dict[int, str]:
    """Processes that live and have a word in their command line: process id → command line."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if word in line:
                found[int(path.parent.name)] = line
    return found


def process_ids() -> set[int]:
    """The ids of all processes, those that have ended and that nobody has waited for among them."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def processes_of(folder: Path, besides: AbstractSet[int] = frozenset()) -> list[int]:
    """The processes with a folder in their command line or environment, but for this one.

    Args:
        besides: processes that are not looked at.
    """
    name = re.compile(re.escape(os.fsencode(folder)) + rb"(?![\w.-])")
    found = []
    for pid in process_ids() - besides - {os.getpid()}:
        process = Path("/proc", str(pid))
        with suppress(OSError):  # it has ended
            text = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if name.search(text):
                found.append(pid)
    return found


def end_processes_of(folder: Path, besides: AbstractSet[int] = frozenset()) -> None:
    """End the processes of a test's folder, with what they start meanwhile.

    Args:
        besides: processes that are older than the folder. To read what each process of a machine
            was started with takes longer than many a test.
    """

    def none_is_left() -> bool:
        pids = processes_of(folder, besides)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not pids

    wait_for(none_is_left, 20, f"the processes of {folder} to end")


@contextmanager
def full_disk(mount: Path, options: str = "mode=755") -> Iterator[Path]:
    """A small file system that is full to the last block, and holds one file, ``filler``."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a disk")
    mount.mkdir(parents=True, exist_ok=True)
    options = options if "size=" in options else f"size=64k,{options}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(mount)], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", str(mount)], check=True)


def fill(disk: Path, room_kb: int = 0) -> None:
    """Fill a disk up to the last block, but for some kB."""
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 1024)
        except OSError:
            file.truncate(max(0, file.tell() - room_kb * 1024))


def account(folder: Path) -> str:
    """The end of a run's batch log, and every small record of its attempts: for a test that
    fails.
    """
    records = [path for path in sorted(folder.glob("elements/*/attempts/*/**/*")) if path.is_file()]
    small = [path for path in records if path.stat().st_size < 2000]
    said = [
        f"{path.relative_to(folder)}: {path.read_text(errors='replace').strip()}" for path in small
    ]
    log = folder / "batch.log"
    return "\n".join([log.read_text()[-3000:] if log.exists() else "no batch.log", *said])


@contextmanager
def shown_to_researcher(cluster: Cluster) -> Iterator[tuple[Path, Path]]:
    """The checkout and the tests' virtual environment, as paths that the cluster's ordinary user
    can reach.

    They are what they are, unless the checkout lies below a folder that is closed to others, as
    root's home is. Then it is mounted in the cluster's folder; to be read only, so that nothing can
    be deleted through it.
    """
    venv = Path(sys.prefix)
    if _researcher_can_run(venv, REPO):
        yield REPO, venv
        return
    if not venv.is_relative_to(REPO):
        raise AssertionError(
            f"{RESEARCHER} cannot run {venv}/bin/python: keep the tests' environment in {REPO}"
        )
    mount = cluster.root / "checkout"
    mount.mkdir()
    subprocess.run(["mount", "--options", "bind,ro", str(REPO), str(mount)], check=True)
    try:
        venv = mount / venv.relative_to(REPO)
        if not _researcher_can_run(venv, mount):
            raise AssertionError(
                f"{RESEARCHER} cannot run {venv}/bin/python: others must be able to read the "
                "checkout "
                "and its environment, of a Python outside home folders"
            )
        yield mount, venv
    finally:
        # what a job has left, such as a guard that looks every ten seconds, may still run from
        # there
        subprocess.run(["umount", "--lazy", str(mount)], check=True)
        mount.rmdir()


def _researcher_can_run(venv: Path, checkout: Path) -> bool:
    command = [*as_researcher_command(), f"{venv}/bin/python", "-c", "import hpcrun.cli"]
    env = {"PATH": SYSTEM_PATH, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, env=env, cwd="/", capture_output=True)
    return done.returncode == 0
