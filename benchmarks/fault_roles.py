"""Kills of every part of a job with two roles, at random moments: a server on one node, a trainer
on another.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from cluster import wait_for
from fault_site import HPCRUN, Site, Tally

_PROFILES = ("a100", "h100", "v100", "l40s")  # two nodes each
_FOR_S = 6.0
# Both have a child in their process group. The trainer asks the server at each of its steps.
_SERVER = """
import http.server, subprocess, sys
subprocess.Popen(["sleep", "300"])
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *words):
        pass
print("up", flush=True)
http.server.ThreadingHTTPServer(("", int(sys.argv[1])), Handler).serve_forever()
"""
_TRAINER = """
import subprocess, sys, time, urllib.request
child = subprocess.Popen(["sleep", "300"])
for step in range(8):
    urllib.request.urlopen(sys.argv[1], timeout=60).close()
    print("step", step, flush=True)
    time.sleep(0.4)
child.kill()
"""
_PARTS = [
    *product(("program", "rank", "role"), ("server", "trainer")),
    ("torchrun", "trainer"),
    ("job", ""),
]


@dataclass(frozen=True)
class Process:
    """A process of a run."""

    pid: int
    argv: list[str]
    env: dict[str, str]
    parent: int

    @property
    def part(self) -> str:
        """What it is: a part of launch, torchrun's agent, or the program of a role."""
        for name, argument in (
            ("torchrun", "torch.distributed.run"),
            ("program", "server.py"),
            ("program", "trainer.py"),
        ):
            if argument in self.argv[:4] and "launch" not in "".join(self.argv[2:3]):
                return name
        return "".join(self.argv[3:4]) if "-ISB" in self.argv else ""

    @property
    def role(self) -> str:
        """The role it belongs to; that of the process of a node is known by its number."""
        by_number = ("server", "trainer")[int(self.env.get("SLURM_PROCID", 0))]
        return "" if self.part == "job" else self.env.get("HPCRUN_ROLE", by_number)


@dataclass(frozen=True)
class Kill:
    """One killed process of one job."""

    part: str
    role: str
    job: str
    folder: Path
    was_alive: bool
    left: list[str]

    def __str__(self) -> str:
        return f"{self.job}, {self.role or 'job'} {self.part}"


def role_killed(site: Site, kills: int) -> list[Tally]:
    """Kill (SIGKILL) programs, wrappers, processes of nodes and of the job: half as often as
    submit.
    """
    site = site.with_runs("runs-roles")
    for name, text in (("server", _SERVER), ("trainer", _TRAINER)):
        (site.folder / f"{name}.py").write_text(text, "ascii")
    chosen = (_PARTS * kills)[: max(len(_PARTS), kills // 2)]
    with ThreadPoolExecutor(len(_PROFILES)) as pool:
        each = [
            pool.submit(_one_after_another, site, profile, chosen[at :: len(_PROFILES)])
            for at, profile in enumerate(_PROFILES)
        ]
        done = [kill for future in each for kill in future.result()]
    trained = {kill.job for kill in done if _record(kill.folder, "rank-1.exit").get("status") == 0}
    killed = {kill.job for kill in done if kill.was_alive}

    def expected(job: str) -> set[str]:
        return (
            {"FAILED"}
            if job in killed - trained
            else {"COMPLETED", "FAILED"}
            if job in killed
            else {"COMPLETED"}
        )

    tally = site.tally("part of a role killed", expected)
    for kill in done:
        tally.orphaned += [f"{kill}: {process} is left" for process in kill.left]
        tally.wrong += [
            f"{kill}: {what}" for what in _mistakes(site, kill, fails=kill.job in killed - trained)
        ]
    counts = Counter(
        " ".join(filter(None, (kill.role, kill.part))) for kill in done if kill.was_alive
    )
    tally.remark = ", ".join(f"{count} × {what}" for what, count in counts.items())
    return [tally]


def _one_after_another(site: Site, profile: str, parts: list[tuple[str, str]]) -> list[Kill]:
    return [_kill(site, profile, part, role) for part, role in parts]


def _kill(site: Site, profile: str, part: str, role: str) -> Kill:
    """Submit a job, kill a part of it some seconds after that part's start, and wait for the job's
    end.
    """
    ranks = ("--launcher", "python") if part != "torchrun" else ()
    job = site.submit(
        "-P",
        profile,
        "-p",
        "gpu",
        "--gpus-per-node",
        "1",
        "--cpus",
        "1",
        "--mem",
        "1G",
        "-t",
        "5m",
        *ranks,
        "--role",
        "server:1,ready=tcp:{port}",
        "server.py",
        "{port}",
        "--role",
        "trainer:1",
        "trainer.py",
        "{server.url}",
    )
    records = site.runs.glob("*/run.json")
    (folder,) = [it.parent for it in records if json.loads(it.read_text())["job_id"] == job]
    victims: list[Process] = []

    def is_there() -> bool:
        victims[:] = [it for it in processes(folder) if (it.part, it.role) == (part, role)]
        return bool(victims) or _is_over(site, job)

    wait_for(is_there, f"the {part} of the {role} of {job}", 120)
    time.sleep(random.uniform(0, _FOR_S))
    was_alive = bool(victims) and Path(f"/proc/{victims[0].pid}").exists()
    if was_alive:
        os.kill(victims[0].pid, signal.SIGKILL)
    wait_for(lambda: _is_over(site, job), f"the end of {job} without its {role} {part}", 120)
    until = time.monotonic() + 5
    while processes(folder) and time.monotonic() < until:
        time.sleep(0.2)
    return Kill(
        part, role, job, folder, was_alive, [f"{it.pid} {it.argv[:5]}" for it in processes(folder)]
    )


def _is_over(site: Site, job: str) -> bool:
    state = site.run("squeue", "--noheader", "--format=%T", f"--jobs={job}").stdout.strip()
    return state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def processes(folder: Path) -> list[Process]:
    """Return the processes of a run, without the copies that watch over a wrapper."""
    all_of_it = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            pairs = (path / "environ").read_text(errors="replace").split("\0")
            if f"HPCRUN_RUN_DIR={folder}" in pairs:
                env = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
                argv = (path / "cmdline").read_text().split("\0")
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                all_of_it[int(path.name)] = Process(int(path.name), argv, env, parent)
        except OSError:
            continue
    return [
        it
        for it in all_of_it.values()
        if it.parent not in all_of_it or all_of_it[it.parent].argv != it.argv
    ]


def _record(folder: Path, name: str) -> dict[str, Any]:
    path = folder / "elements/0/attempts/0" / name
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _mistakes(site: Site, kill: Kill, *, fails: bool) -> Iterator[str]:
    """Yield what is wrong with the records, the logs, the explanation and the accounts of a job."""
    attempt = kill.folder / "elements/0/attempts/0"
    for log in attempt.glob("rank-?.out"):
        lines = log.read_text().splitlines()
        if (
            lines
            != (
                ["up"]
                if log.name == "rank-0.out"
                else [f"step {step}" for step in range(len(lines))]
            )[: len(lines)]
        ):
            yield f"{log.name}: {lines}"
        if not log.with_suffix(".exit").exists():
            yield f"{log.name} has no record of its rank's end"
    code, _, number = (
        site.run("sacct", "-XnPo", "ExitCode", "-j", kill.job).stdout.strip().partition(":")
    )
    if fails and (code, number) == ("0", "0"):
        yield "Slurm's accounts have exit status 0"
    if fails:
        answer = " ".join(site.run(HPCRUN, "explain", kill.job).stdout.split())
        sentence = answer.split("batch script")[0]
        # who killed the job's own process is not recorded: it is said that the record is missing
        ends = ("killed", "status 137", "left no record of its end")
        if not any(end in sentence for end in ends) or kill.role not in sentence:
            yield f"explain: {answer[:400]}"
