#!/usr/bin/python3 -S
"""A recorder in the place of a program: it writes down what it was given, and each signal.

It is linked under the names of the programs that a case starts (torchrun, python, train.py ...),
below a folder that has a folder ``records``, and needs nothing of its environment. As a launcher of
ranks (torchrun, accelerate, deepspeed) it starts them as that program would, on this node.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

LAUNCHERS = {"torchrun", "accelerate", "deepspeed"}
MODULES = (["-m", "torch.distributed.run"], ["-m", "torch.distributed.launch"])
"""The same as words of Python."""
VALUES = set(
    """
    config-file log-dir main-process-ip main-process-port machine-rank master-addr master-port
    max-restarts mixed-precision monitor-interval nnodes node-rank nproc-per-node num-gpus
    num-machines num-nodes num-processes rdzv-backend rdzv-conf rdzv-endpoint rdzv-id redirects role
    start-method tee
    """.split()
)
"""Options of the launchers that have a value."""
RANKS = ("nproc-per-node", "num-processes", "num-gpus")
LIMITS = ("RLIMIT_NOFILE", "RLIMIT_STACK", "RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_NPROC")
SIGNALS = ("SIGHUP", "SIGINT", "SIGUSR1", "SIGUSR2", "SIGTERM")
ENDLESS_S = 60
"""How long a program works that a signal is to end."""
ENDING = (signal.SIGINT, signal.SIGTERM)


def find_root(name: str) -> Path:
    """Return the folder of this way of the case: it has a folder ``records``."""
    path = Path(os.path.abspath(name))
    return next(folder for folder in path.parents if (folder / "records").is_dir())


ROOT = find_root(sys.argv[0])
RECORD = ROOT / "records" / f"{time.time_ns()}-{os.uname().nodename}-{os.getpid()}"


def main() -> int:
    """Record this process, and do what it stands for; return its exit status."""
    name = os.path.basename(sys.argv[0])
    if name == "probe":
        flags, traps, path, *arguments = sys.argv[1:]
        shell = os.getppid()
        leads = os.getpgid(shell) == shell
        of_shell = {"flags": flags, "traps": traps, "path": path, "leads its group": leads}
        note({**describe("script", "", arguments, shell), **of_shell})
        return 0
    words = sys.argv[1:]
    if name in LAUNCHERS or words[:2] in MODULES:
        note(describe("launcher", name, words, os.getpid()))
        return start_ranks(words[2:] if words[:2] in MODULES else words)
    note(describe("program", name, sys.argv[1:], os.getpid()))
    return run(name)


def note(fields: dict[str, object]) -> None:
    """Add a line to this process's record."""
    with RECORD.open("a") as file:
        file.write(json.dumps(fields) + "\n")


def describe(kind: str, name: str, arguments: list[str], pid: int) -> dict[str, object]:
    """Return what a process was given.

    Args:
        pid: the process whose signals and descriptors count: a script's own, not its probe's.
    """
    umask = os.umask(0)
    os.umask(umask)
    return {
        "kind": kind,
        "name": name,
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": oct(umask),
        "limits": [resource.getrlimit(getattr(resource, limit)) for limit in LIMITS],
        "nice": os.nice(0),
        "cpus": len(os.sched_getaffinity(0)),
        "stdin": kind_of_stdin(),
        "descriptors": open_descriptors(pid),
        "signals": signal_masks(pid),
    }


def kind_of_stdin() -> str:
    """Return what standard input is."""
    try:
        target = os.readlink("/proc/self/fd/0")
    except OSError:
        return "closed"
    if target.startswith(("pipe:", "socket:")):
        return "pipe"
    return target if target == "/dev/null" else "file"


def open_descriptors(pid: int) -> list[str]:
    """Return what a process has open besides its three streams, without bash's copy of its script.

    A file is named by its kind alone.
    """
    kinds = []
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        if int(descriptor) < 3 or descriptor == "255":
            continue
        try:
            target = os.readlink(f"/proc/{pid}/fd/{descriptor}")
        except OSError:  # that of the folder that was listed
            continue
        if not target.endswith(f"/{pid}/fd"):
            kinds.append(target.partition(":")[0] if ":[" in target else "file")
    return sorted(kinds)


def signal_masks(pid: int) -> dict[str, str]:
    """Return the signals that a process ignores and blocks."""
    masks = {}
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("SigIgn", "SigBlk"):
            masks[name] = value.strip()
    return masks


def start_ranks(words: list[str]) -> int:
    """Start the ranks of a launcher on this node; return its exit status."""
    options = {}
    words = words[1:] if words[:1] == ["launch"] else words
    while words and words[0].startswith("-") and words[0] != "-m":
        name, equals, value = words[0].lstrip("-").replace("_", "-").partition("=")
        words = words[1:]
        if not equals and name in VALUES:
            value, words = words[0], words[1:]
        options[name] = value
    count = next((options[name] for name in RANKS if name in options), "1")
    command = [sys.executable, "-u", *words]
    ranks = [
        subprocess.Popen(command, env=environment_of_rank(n, count)) for n in range(int(count))
    ]

    def stop(number: int, _: FrameType | None) -> None:
        note({"signal": signal.Signals(number).name})
        for rank in ranks:
            rank.terminate()
        for rank in ranks:
            rank.wait()
        sys.exit(1)

    for number in ENDING:
        signal.signal(number, stop)
    statuses = [rank.wait() for rank in ranks]
    return int(any(statuses))


def environment_of_rank(number: int, count: str) -> dict[str, str]:
    """Return the environment that torchrun gives a rank, as far as a program would look at it."""
    sizes = {"LOCAL_WORLD_SIZE": count, "WORLD_SIZE": count}
    return {**os.environ, "LOCAL_RANK": str(number), "RANK": str(number), **sizes}


def run(name: str) -> int:
    """Do what a training does: print, work for a while, and end as the case says."""
    for signal_name in SIGNALS:
        signal.signal(getattr(signal, signal_name), on_signal)
    behaviour = json.loads((ROOT / "behaviour.json").read_text())
    task = os.environ.get("RANK") or os.environ.get("SLURM_PROCID") or "0"
    # each in one piece: the ranks of a node write into one file
    os.write(1, " ".join(["ran", name, *sys.argv[1:], "as", f"{task}\n"]).encode())
    os.write(2, f"standard error of {task}\n".encode())
    while behaviour["waits"] and not (ROOT / "signalled").exists():
        time.sleep(0.05)
    is_endless = any(word in behaviour["endless"] for word in sys.argv)
    until = time.monotonic() + (ENDLESS_S if is_endless else behaviour["seconds"])
    while time.monotonic() < until:
        time.sleep(0.05)
    return int(behaviour["fails"].get(task, 0))


def on_signal(number: int, _: FrameType | None) -> None:
    """Note a signal, and end as a program without a handler would."""
    note({"signal": signal.Signals(number).name})
    if number in ENDING:
        sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
