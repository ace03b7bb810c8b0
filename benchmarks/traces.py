"""What the processes of a job ask of file systems: a trace of strace, counted for each part of the
job.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

STRACE = "strace -qq -f -y -s 300 -e trace=%file,%process -o"
AT_MOST = {"node": 60, "rank": 48}
"""What each process of hpcrun may ask of the folders of runs."""
TORCHRUN = "torchrun"
PROGRAM = "program"
_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)(.*)")
_PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<[^>]*>, )?"([^"]+)"')
_PART = re.compile(r'"[^"]*", \["[^"]*", "-ISB", "[^"]*launch/__main__\.py", "(\w+)"')
_STARTS = frozenset({"clone", "clone3", "fork", "vfork"})


def trace_tasks(launcher: str, folder: Path, home: Path, repo: Path) -> None:
    """Let a person's own template start each task of a launcher with strace.

    The traces are ``folder/JOB.TASK``, on this machine ``folder/JOB.NODE``.

    Args:
        launcher: the name of the launcher.
        folder: the folder of the traces.
        home: the person's home.
        repo: the checkout with the template.
    """
    wrapper = folder / "trace"
    trace = f'{shlex.quote(str(folder))}/"$HPCRUN_JOB_ID.${{SLURM_PROCID:-$HPCRUN_NODE}}"'
    wrapper.write_text(f'#!/bin/sh\nexec {STRACE} {trace} "$@"\n', "ascii")
    wrapper.chmod(0o755)
    name = f"{launcher}.sh.j2"
    template = home / ".config/hpcrun/templates/launch" / name
    template.parent.mkdir(parents=True, exist_ok=True)
    text = (repo / "templates/launch" / name).read_text("utf-8")
    template.write_text(f"  {shlex.quote(str(wrapper))} {text.lstrip()}", "utf-8")


def count_requests(
    trace: Path, folders: Mapping[str, Sequence[str]]
) -> dict[str, list[Counter[str]]]:
    """Count the system calls that name a path in some folders.

    Args:
        trace: what strace has written.
        folders: the name of a group of folders → the folders.

    Returns:
        Part of the job (node, rank, torchrun, program) → for each of its processes the number of
        calls in each group. A process that only forks counts with the process that started it.
    """
    owner: dict[str, str] = {}  # process → the process with which it counts
    parts: dict[str, str] = {}
    counts: dict[str, Counter[str]] = {}
    for line in trace.read_text("utf-8", errors="replace").splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        pid, call, rest = match.groups()
        if call in _STARTS:
            child = re.search(r"= (\d+)(?:<[^>]*>)?$", rest)
            if child is not None:
                owner.setdefault(child[1], owner.get(pid, pid))
            continue
        if call == "execve" and rest.startswith('"'):
            owner[pid] = pid
            parts[pid] = _part_of(rest)
        path = _PATH.match(rest)
        if path is None:
            continue
        for name, below in folders.items():
            if path[1].startswith(tuple(below)):
                counts.setdefault(owner.get(pid, pid), Counter())[name] += 1
    result: dict[str, list[Counter[str]]] = {}
    for pid, part in parts.items():
        result.setdefault(part, []).append(counts.get(pid, Counter()))
    return result


def _part_of(words: str) -> str:
    """Return which part of a job a process is, by the words of its execve."""
    part = _PART.match(words)
    if part is not None:
        return part[1]
    return TORCHRUN if '"torch.distributed.run"' in words else PROGRAM
