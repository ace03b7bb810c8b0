"""What the shared file system is asked for: by who follows many logs, and by the ranks of a job."""

from __future__ import annotations

import json
import re
import runpy
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness import REPO, Hpcrun, wait_for
from tests.local.recorded import Recorded, record

RANKS = 512
_CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\d+\.\d+) (\w+)\((.*)")


def traced(trace: Path, folder: Path) -> Iterator[tuple[int, float, str, str]]:
    """System calls on files below a folder, as strace -f -ttt -y noted them: process, time, name,
    arguments. Links of /proc, whose answer names an open file, ask no file system.
    """
    for line in trace.read_text(errors="replace").splitlines():
        match = _CALL.match(line)
        if match and str(folder) in match[3] and not match[3].startswith('"/proc/'):
            yield int(line.split()[0]), float(match[1]), match[2], match[3]


def parts_of(trace: Path) -> dict[int, str]:
    """The processes that became a part of the launch."""
    found = {}
    for line in trace.read_text(errors="replace").splitlines():
        match = re.match(
            r'(\d+) +\d+\.\d+ execve\([^\[]*\["[^"]*", "-ISB", "[^"]*launch/__main__\.py", '
            r'"(\w+)"',
            line,
        )
        if match:
            found[int(match[1])] = match[2]
    return found


def program_began(trace: Path) -> float:
    """When the last rank's program began."""
    began = re.findall(
        r'^\d+ +(\d+\.\d+) execve\([^\[]*\["python", "rank.py"\]',
        trace.read_text(errors="replace"),
        re.MULTILINE,
    )
    return max(map(float, began))


def running(hpcrun: Hpcrun, ranks: int) -> Recorded:
    """A run of another host that has not ended, as far as anybody knows."""
    run = record(hpcrun, ranks=ranks)
    (run.folder / "status.json").write_text(
        json.dumps({"state": "RUNNING", "asked_s": time.time(), "final": False})
    )
    attempt = run.attempt(over=False)
    for rank in range(ranks):
        for stream in ("out", "err"):
            (attempt / f"rank-{rank}.{stream}").touch()
    return run


@contextmanager
def following(
    hpcrun: Hpcrun, trace: Path | None
) -> Iterator[tuple[list[tuple[float, str]], subprocess.Popen[str]]]:
    """Follow all ranks; gives the lines as they come, with their times."""
    strace = (
        (
            "strace",
            "-D",
            "-f",
            "-ttt",
            "-y",
            "-s",
            "300",
            "-e",
            "trace=%file,%desc",
            "-o",
            str(trace),
        )
        if trace
        else ()
    )
    argv = [*strace, *hpcrun.argv("logs", "-f", "--all-ranks")]
    with subprocess.Popen(
        argv,
        env=hpcrun.environ,
        cwd=hpcrun.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        lines: list[tuple[float, str]] = []

        def read() -> None:
            assert process.stdout
            for line in process.stdout:
                lines.append((time.monotonic(), line.strip()))

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield lines, process
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(10)
            finally:
                process.kill()
                reader.join()


def say(run: Recorded, rank: int, text: str) -> float:
    with (run.attempt(over=False) / f"rank-{rank}.out").open("a") as file:
        file.write(text + "\n")
    return time.monotonic()


def delay(lines: list[tuple[float, str]], text: str, since: float) -> float:
    """How long a line took to come."""
    return wait_for(
        lambda: next((at - since for at, line in lines if line.endswith(text)), None), 90, text
    )


@pytest.mark.needs("strace")
def test_following_512_ranks_makes_under_50_calls_a_second(hpcrun: Hpcrun, tmp_path: Path) -> None:
    run = running(hpcrun, RANKS)
    say(run, 0, "begin")
    with following(hpcrun, tmp_path / "trace") as (lines, _):
        delay(lines, "begin", 0)
        for speaking in (4, RANKS):
            for second in range(5):
                for rank in range(speaking):
                    say(run, rank, f"{rank} in second {second}")
                time.sleep(1)
            if speaking == 4:
                spoke = say(run, 3, "last"), say(run, 300, "after a long time")
                assert delay(lines, "last", spoke[0]) < 20
                # one that was silent is not forgotten
                assert delay(lines, "after a long time", spoke[1]) < 50
    calls = [*traced(tmp_path / "trace", run.folder)]
    begun = next(at for _, at, call, with_ in calls if "rank-511" in with_)
    counted = Counter(int(at - begun) for _, at, _, _ in calls if at - begun >= 3)
    for few in (slice(3), slice(-4, -1)):  # while few ranks write, and while all do
        assert sum(number for _, number in sorted(counted.items())[few]) / 3 < 50, counted


def test_a_few_ranks_are_followed_at_once(hpcrun: Hpcrun) -> None:
    run = running(hpcrun, 16)
    say(run, 0, "begin")
    with following(hpcrun, None) as (lines, _):
        delay(lines, "begin", 0)
        delays = [
            delay(lines, f"hello {rank}", say(run, rank, f"hello {rank}")) for rank in (0, 7, 15)
        ]
    assert max(delays) < 5


@pytest.mark.needs("strace")
def test_a_start_asks_no_more_of_its_folder_than_it_did(hpcrun: Hpcrun) -> None:
    """The ranks of srun: tests/slurm/test_launchers.py."""
    traces = runpy.run_path(str(REPO / "benchmarks/traces.py"))
    traces["trace_tasks"]("python", hpcrun.folder, hpcrun.home, REPO)
    hpcrun.write("rank.py", "")
    job = ("-P", "local", "--gpus", "0", "--launcher", "python", "--wait", "rank.py")
    folder = hpcrun.submit(*job, check=True)
    (trace,) = hpcrun.folder.glob("L*.*")
    below = {"run": [str(folder), str(hpcrun.runs / ".programs")]}
    counts = traces["count_requests"](trace, below)
    for part, most in traces["AT_MOST"].items():
        (count,) = counts[part]
        assert most / 2 < count["run"] <= most, counts


@pytest.mark.needs("strace")
def test_what_a_job_asks_of_its_folder(hpcrun: Hpcrun) -> None:
    """Per rank two logs and one record, per node two; nothing in between but one look for the stop,
    of each node.
    """
    hpcrun.write("rank.py", "")
    options = {"plain": (), "managed": ("--requeue", "1")}
    with ThreadPoolExecutor() as pool:
        jobs = {
            name: pool.submit(traced_job, hpcrun, name, *more) for name, more in options.items()
        }
    for name, job in jobs.items():
        made, steady = job.result()
        # the logs of a rank are opened by its program, just before it begins
        assert (made["rank"], made["node"]) == (4, 2), made
        assert not [what for what in steady if what.startswith("rank")], steady
        if name == "managed":
            # three seconds of two nodes, fewer on a busy machine
            assert 1 <= steady["node getdents64"] // 2 <= 8, steady
        else:
            assert not steady, steady


def traced_job(hpcrun: Hpcrun, name: str, *options: str) -> tuple[Counter[str], Counter[str]]:
    """The files that a job makes, and what it calls for three seconds, two seconds after its last
    program has begun.
    """
    job = (
        "-P",
        "local",
        "--gpus",
        "0",
        "--nodes",
        "2",
        "--launcher",
        "command",
        *options,
        "python",
        "rank.py",
    )
    hpcrun.write_script(f"{name}.sh", *job)
    trace, own = hpcrun.folder / f"{name}.trace", hpcrun.folder / name
    own.mkdir()
    (own / "rank.py").write_text("import time\ntime.sleep(8)\n")
    strace = (
        "strace",
        "-f",
        "-ttt",
        "-y",
        "-s",
        "300",
        "-e",
        "trace=%file,%desc",
        "-o",
        str(trace),
    )
    hpcrun.run(*strace, "bash", f"../{name}.sh", cwd=own, timeout=60)
    (folder,) = own.glob("hpcrun-L*")
    parts = parts_of(trace)
    began = program_began(trace)
    made, steady = Counter[str](), Counter[str]()
    for pid, at, call, with_ in traced(trace, folder):
        if "O_CREAT" in with_ and pid in parts:
            made[parts[pid]] += 1
        if pid in parts and began + 2 <= at < began + 5:
            steady[f"{parts[pid]} {call}"] += 1
    return made, steady
