"""Start a process as it would start without hpcrun, receive signals, and wait.

The waiting loses no exit status.

Signals are blocked and received one by one (sigtimedwait), so that no handler interrupts the
program, and each signal shows its sender.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    import signal as signal  # for the other modules, too
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence
    from typing import Any

    OnSignal = Callable[[Any], None]
    """Gets the result of signal.sigtimedwait."""
else:
    # signal imports enum, functools and collections: this takes as long as Python's start
    import _signal as signal

HEARD = frozenset(
    {
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
        signal.SIGALRM,
    }
)
"""The signals that the parts receive, and forward if Slurm has not sent them to every process."""
IGNORED = "HPCRUN_IGNORED_SIGNALS"
"""The numbers of the signals that a script ignores at its launch."""
COLONS = "HPCRUN_COLONS"
"""Set for a step whose arguments ``hide_colons`` has changed."""
CANARY_S = 0.3
"""A signal to every process of a step is a loop of kill(2), which takes milliseconds."""
LATE_S = 1.0
"""The longest time between a program, which a signal to every process ends, and its wrapper, which
gets the same signal: on a busy machine the loop of kill(2) takes so long.
"""
TREE = "HPCRUN_TREE"
"""The name of all that a part starts, which follows the name of the part itself: ``.a1b2.c3d4``."""
SWEEP_S = 3.0
"""How long a sweep repeats SIGKILL."""
JOB_ID = "SLURM_JOB_ID"
STEP_ID = "SLURM_STEP_ID"
_ALL = frozenset(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}


_umask = os.umask(0o077)
os.umask(_umask)
_nice: int | None = None
_ignored: frozenset[int] = frozenset()


def write_for_oneself() -> None:
    """Make no file from now on that others can write, whatever the umask.

    Programs start with the original umask.
    """
    os.umask(_umask | 0o022)


def inherited() -> dict[str, Any]:
    """Return the umask, the nice value and the ignored signals that programs get from here."""
    ignored = [number for number in HEARD if signal.getsignal(number) == signal.SIG_IGN]
    return {"umask": _umask, "nice": os.nice(0), "ignored": ignored}


def start_with(umask: int, nice: int) -> None:
    """Start programs with this umask and nice value from now on."""
    global _umask, _nice
    _umask = umask
    if nice != os.nice(0):
        _nice = nice


def ignore_signals() -> None:
    """Let programs ignore the signals that their script ignores at its launch."""
    global _ignored
    _ignored = frozenset(map(int, os.environ.get(IGNORED, "").split()))
    for number in _ignored:
        signal.signal(number, signal.SIG_IGN)


def launch_program() -> list[str]:
    """Return the words that start this program."""
    return [
        sys.executable,
        "-ISB",
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py"),
    ]


def hide_colons(command: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return a command of srun that starts this program, and what its environment needs.

    srun takes an argument ``:`` for the end of the job's component, so such arguments get one colon
    more.
    """
    hidden = [f"{argument}:" if _is_colons(argument) else argument for argument in command]
    started = any(argument.endswith("/__main__.py") for argument in command)
    if started and hidden != command:
        return hidden, {COLONS: "1"}
    return command, {}


def show_colons(arguments: list[str]) -> list[str]:
    """Return the arguments of this program without what ``hide_colons`` added."""
    if not os.environ.pop(COLONS, ""):
        return arguments
    return [argument[:-1] if _is_colons(argument) else argument for argument in arguments]


def _is_colons(argument: str) -> bool:
    return argument != "" and argument.strip(":") == ""


def become(argv: list[str]) -> int:
    """Replace this process by a program.

    If the program cannot be started, the result is the exit status of a shell, as in ``try_start``.
    """
    os.umask(_umask)
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        return _not_started(argv, error)


def block_signals() -> None:
    """Block the signals that are received from now on."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEARD | {signal.SIGCHLD})


def start(
    argv: Sequence[str],
    env: Mapping[str, str],
    *,
    out: str | None = None,
    err: str | None = None,
    streams: Mapping[int, int] | None = None,
    own_group: bool = False,
    blocked: frozenset[signal.Signals] = frozenset(),
) -> int:
    """Start a process, and return its id.

    The process has the signal dispositions and the mask that a shell would set.

    Args:
        argv: the program and its arguments.
        env: the environment of the process.
        out: a file to which its standard output is appended.
        err: a file to which its standard error is appended.
        streams: descriptors that it gets: number there → number here.
        own_group: it leads its own process group.
        blocked: signals that are blocked for it and its child processes until it unblocks them.

    Raises:
        OSError: it cannot be started, or a file cannot be opened.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    actions: list[tuple[object, ...]] = []
    for number, path in ((1, out), (2, err)):
        if path:
            actions.append((os.POSIX_SPAWN_OPEN, number, path, flags, 0o644))
    for number, descriptor in (streams or {}).items():
        actions.append((os.POSIX_SPAWN_DUP2, descriptor, number))
    how: dict[str, Any] = {
        "file_actions": actions,
        "setsigmask": blocked,
        "setsigdef": _ALL - _ignored,
    }
    if own_group:
        how["setpgroup"] = 0
    umask = os.umask(_umask)
    try:
        pid = os.posix_spawnp(argv[0], list(argv), env, **how)
    finally:
        os.umask(umask)
    if _nice is not None:
        _renice(pid, _nice)
    return pid


def _renice(pid: int, nice: int) -> None:
    try:
        os.setpriority(os.PRIO_PROCESS, pid, nice)
    except OSError:  # below that of this process
        return


def try_start(argv: Sequence[str], env: Mapping[str, str], **how: Any) -> tuple[int, int]:
    """Start a process; return its id and 0, or 0 and the exit status of a shell.

    The exit status is 127 if the program is not found, and 126 if it is not executable.
    """
    try:
        return start(argv, env, **how), 0
    except OSError as error:
        return 0, _not_started(argv, error, how.get("err"))


def _not_started(argv: Sequence[str], error: OSError, log: str | None = None) -> int:
    with open(log or sys.stderr.fileno(), "a", encoding="utf-8", closefd=bool(log)) as file:
        file.write(f"hpcrun: cannot start {argv[0]}: {error.strerror}\n")
    return 127 if isinstance(error, FileNotFoundError) else 126


def wait(
    pids: Sequence[int],
    on_signal: OnSignal,
    tick: Callable[[], bool] | None = None,
    every_s: float = 1.0,
) -> tuple[int, int] | None:
    """Wait until one of several children has ended.

    The child stays a zombie, with its entry in /proc, until ``reap``.

    Args:
        pids: the process ids of the children.
        on_signal: called for each signal that arrives meanwhile.
        tick: called about every ``every_s`` seconds; it ends the waiting by returning True.
        every_s: the seconds between two calls of ``tick``.

    Returns:
        Its id and its status in a shell's form (128 + n for signal n), or None if ``tick`` ended
        the waiting.
    """
    next_s = time.monotonic() + every_s
    heard: set[int] = set()
    while True:
        for pid in pids:
            ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                # a wrapper passes the signal of its program on as 128 + n, too
                status = ended.si_status
                if ended.si_code != os.CLD_EXITED:
                    status += 128
                late_s = LATE_S if status - 128 in HEARD - heard else 0.0
                while (info := signal.sigtimedwait(HEARD, late_s)) is not None:
                    late_s = 0.0
                    on_signal(info)
                return pid, status
        info = signal.sigtimedwait(HEARD | {signal.SIGCHLD}, max(0.0, next_s - time.monotonic()))
        if info is not None and info.si_signo != signal.SIGCHLD:
            heard.add(info.si_signo)
            on_signal(info)
        if time.monotonic() >= next_s:
            if tick is not None and tick():
                return None
            next_s = time.monotonic() + every_s


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it stays a zombie until ``reap``."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(pid: int) -> None:
    """Reap a child that has ended."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        return


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, by proc(5).

    Python removes its handlers before it ends.
    """
    return bool(_status_mask(pid, "SigCgt:") >> (number - 1) & 1)


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores a signal."""
    return bool(_status_mask(pid, "SigIgn:") >> (number - 1) & 1)


def _status_mask(pid: int, field: str) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith(field):
                    return int(line.split()[1], 16)
    except (OSError, ValueError, IndexError):
        pass
    return 0


def is_fork_of_any(pid: int, others: Container[int]) -> bool:
    """Whether a process was forked by one of some processes, and runs the same program still."""
    vector = _read(pid, "auxv")  # of random addresses, which each start of a program chooses anew
    parent = _parent(pid)
    while parent in others:
        if _read(parent, "auxv") == vector:
            return True
        parent = _parent(parent)
    return False


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def send(pid: int, number: int, *, group: bool = False) -> bool:
    """Send a signal to a process, or to its group; return whether it existed."""
    try:
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def name_tree(*, of_job: bool = False) -> str:
    """Give a name to all that this process starts from now on; return the name, for ``sweep``.

    Args:
        of_job: the name is new, and not a part of the name of an enclosing job.
    """
    outer = "" if of_job else os.environ.get(TREE, "")
    tree = f"{outer}.{os.urandom(6).hex()}"
    os.environ[TREE] = tree
    return tree


def sweep(
    tree: str,
    grace_s: float = 0.0,
    *,
    every_step: bool = False,
    before_kill: Callable[[list[int]], object] | None = None,
) -> None:
    """Kill all processes of a tree, whatever their session, process group or parent.

    Their environment has the name of the tree: this process started with another environment. What
    another job or step of Slurm has started is left to Slurm.

    A program that clears the environment of a child process hides this process.

    Args:
        tree: the name from ``name_tree``.
        grace_s: the time in which they may end by themselves.
        every_step: those of other steps of this job end, too.
        before_kill: takes the ids of the processes that are killed next.
    """
    kill_at = time.monotonic() + grace_s
    while pids := list(_members(tree, (JOB_ID,) if every_step else (JOB_ID, STEP_ID))):
        now = time.monotonic()
        if now > kill_at + SWEEP_S:
            return
        if now >= kill_at:
            if before_kill:
                before_kill(pids)
            for pid in pids:
                send(pid, signal.SIGKILL)
        time.sleep(0.05)


def _members(tree: str, equal: tuple[str, ...]) -> Iterator[int]:
    """Yield the processes of a tree.

    Args:
        tree: the name of the tree.
        equal: the variables that, if they are set, are as those of this process.
    """
    for pid, environ in environments():
        if not f"{variable(environ, TREE)}.".startswith(f"{tree}."):
            continue
        if all(variable(environ, name) in ("", os.environ.get(name)) for name in equal):
            yield pid


def environments() -> Iterator[tuple[int, bytes]]:
    """Yield each other process of this user, and its variables, each between NUL characters.

    These are the variables with which its program has started.
    """
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        environ = _read(int(name), "environ")
        if environ:  # it is empty if the process is another user's, or has ended
            yield int(name), b"\0" + environ


def variable(environ: bytes, name: str) -> str:
    """Return a variable from ``environments``; the empty string if it is not set."""
    _, _, rest = environ.partition(os.fsencode(f"\0{name}="))
    return os.fsdecode(rest.partition(b"\0")[0])


class Canary:
    """A process that ends what this process has started, if this process is killed.

    It runs beside this process, and handles no signal.

    A signal that is pending there was sent to every process of the step. How Slurm signals depends
    on how it tracks processes: with cgroups only the tasks of a step get a signal, and must forward
    it; otherwise every process gets it, and forwarding would run a program's handler twice.

    It waits at a pipe, which the kernel closes when this process ends in any way. PR_SET_PDEATHSIG
    would signal the program alone, not its group, and is cleared where a program changes its user.

    Args:
        on_death: called in the canary, with the process id last given to ``guard``, when this
            process was killed.
        closes: it closes the files of this process, which may be locks.
    """

    def __init__(self, on_death: Callable[[int], None], *, closes: bool = False) -> None:
        self._on_death = on_death
        self._closes = closes
        self._parent = os.getppid()
        self._guarded = 0
        self._pid, self._pipe = self._fork()
        self._has_sung = False

    def guard(self, pid: int) -> None:
        """Let the canary know what this process has started."""
        self._guarded = pid
        try:
            os.write(self._pipe, b"%d\n" % pid)
        except BrokenPipeError:  # it was killed
            self._replace()

    def is_orphan(self) -> bool:
        """Whether the parent of this process has ended first: it was killed."""
        return os.getppid() != self._parent

    def heard(self, number: int) -> bool:
        """Return whether the signal that has just arrived was sent to every process.

        This function waits for the signal for a moment.
        """
        deadline = time.monotonic() + CANARY_S
        while not _status_mask(self._pid, "ShdPnd:") >> (number - 1) & 1:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        self._has_sung = True
        return True

    def renew(self) -> None:
        """Replace it after it was killed, or has shown a signal: it can show each signal only once.

        Not at once: most signals end the program, and hundreds of ranks that fork while Slurm waits
        take too long.
        """
        if self._has_sung or has_ended(self._pid):
            self._replace()

    def _replace(self) -> None:
        self.end()
        self._pid, self._pipe = self._fork()
        self._has_sung = False
        if self._guarded:
            self.guard(self._guarded)

    def end(self) -> None:
        """End it."""
        send(self._pid, signal.SIGKILL)
        reap(self._pid)
        os.close(self._pipe)

    def _fork(self) -> tuple[int, int]:
        read, write = os.pipe()
        until_closed, closed_last = os.pipe() if self._closes else (-1, -1)
        pid = os.fork()
        if pid:
            os.close(read)
            if self._closes:  # wait until the canary holds no lock of this process
                os.close(closed_last)
                os.read(until_closed, 1)
                os.close(until_closed)
            return pid, write
        try:
            # a signal of torchrun, or of a tracker, to a process group does not reach it
            os.setsid()
            os.close(write)
            for number in (0, 1, 2):  # so that no reader of a pipe waits for its end
                os.dup2(os.open(os.devnull, os.O_RDWR), number)
            if self._closes:
                os.closerange(3, read)
                os.closerange(read + 1, os.sysconf("SC_OPEN_MAX"))
            guarded = b""
            while text := os.read(read, 4096):
                guarded = text
            self._on_death(int(guarded.split()[-1]) if guarded else 0)
        finally:
            os._exit(0)
