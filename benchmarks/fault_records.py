"""Faults of what lies on the disk: damaged records, records of a newer hpcrun, a runs folder full
of other things.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from fault_site import HPCRUN, SMALL, Site, Tally

LOOK_WITHIN_S = 20.0
"""How long one look at all runs may take, whatever lies in one of their folders."""
DAY_S = 86400.0


def _rewrite(path: str, text: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        (run / path).parent.mkdir(parents=True, exist_ok=True)
        (run / path).write_text(text)

    return damage


def _fifo(path: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        (run / path).unlink(missing_ok=True)
        os.mkfifo(run / path)

    return damage


def _link(path: str, target: str) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        (run / path).unlink(missing_ok=True)
        (run / path).symlink_to(target)

    return damage


def _change(**fields: object) -> Callable[[Path], None]:
    def damage(run: Path) -> None:
        record = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**record, **fields}))

    return damage


ATTEMPT = "elements/0/attempts/0"
DAMAGES: dict[str, Callable[[Path], None]] = {
    "an empty rank record": _rewrite(f"{ATTEMPT}/rank-7.exit", "{}"),
    "a rank that is no number": _rewrite(f"{ATTEMPT}/rank-7.exit", '{"rank": "x"}'),
    "a time that is infinite": _rewrite(
        f"{ATTEMPT}/exit", '{"status": 0, "signal": "", "ended": 1e999}'
    ),
    "200,000 brackets": _rewrite("run.json", "[" * 200_000),
    "a record that was cut off": _rewrite("run.json", '{"schema": 1,\n "run_id": "2026'),
    "wrong types": _change(request=[1], plan="x", after=7, nodes="many"),
    "a FIFO as record": _fifo(f"{ATTEMPT}/start"),
    "a FIFO as log": _fifo("batch.log"),
    "an endless log": _link(f"{ATTEMPT}/rank-0.err", "/dev/zero"),
    "a status of brackets": _rewrite("status.json", "[" * 200_000),
}


def records_damaged(site: Site) -> list[Tally]:
    """Damage the records of some runs in a way each, and look at all runs at once."""
    healthy = [
        site.submit(*SMALL, "true"),
        site.submit(*SMALL, "false"),
        site.submit(*SMALL, "true"),
    ]
    damaged = [site.submit(*SMALL, "true") for _ in DAMAGES]
    site.settle()
    runs = {str(run["job_id"]): str(run["run_id"]) for run in site.all_runs()}
    _change(a_field_of_tomorrow=[1, 2, 3])(site.runs / runs[healthy[2]])  # a record like any other
    for job, damage in zip(damaged, DAMAGES.values(), strict=True):
        damage(site.runs / runs[job])
    tally = Tally(
        "damaged records", len(runs), remark=f"{len(DAMAGES)} damaged, each in a way of its own"
    )
    began = time.monotonic()
    done = site.run(HPCRUN, "status", "--all", "--json")
    took_s = time.monotonic() - began
    shown = {str(run["job_id"]): str(run["state"]) for run in site.all_runs()}
    for job, state in zip(healthy, ("COMPLETED", "FAILED", "COMPLETED"), strict=True):
        if shown.get(job) != state:
            tally.wrong.append(f"{job} is {shown.get(job, 'not shown')}, not {state}")
    output = done.stdout + done.stderr
    tally.lost = [
        f"{what}: {runs[job]}"
        for job, what in zip(damaged, DAMAGES, strict=True)
        if runs[job] not in output
    ]
    if took_s > LOOK_WITHIN_S or "Traceback" in output:
        tally.wrong.append(
            f"status took {took_s:.0f} s and ended with {done.returncode}: {output[-200:]}"
        )
    return [tally]


def runs_in_a_home(site: Site) -> list[Tally]:
    """Let clean loose on a runs folder that is somebody's home and repository, all of it old."""
    home = site.folder / "home-of-somebody"
    kept = [
        home / name
        for name in (
            ".ssh/id",
            ".git/HEAD",
            ".venv/pyvenv.cfg",
            ".config/x",
            "thesis.tex",
            "active/x",
        )
    ]
    for path in kept:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text("mine")
    old = time.time() - 90 * DAY_S
    for path in (*home.rglob("*"), home):
        os.utime(path, (old, old))
    there = Site(site.folder, {**site.env, "HPCRUN_RUNS": str(home), "HOME": str(home)}, site.since)
    for argv in (("--yes",), ("--yes", "--json"), ("--yes", "--older-than", "1d")):
        there.run(HPCRUN, "clean", *argv)
    return [Tally("clean in a home", 0, lost=[str(path) for path in kept if not path.exists()])]


def another_folder(site: Site) -> list[Tally]:
    """Resubmit from a folder that has another program of the same name."""
    mine, other = site.folder / "mine", site.folder / "other"
    for folder in (mine, other):
        folder.mkdir()
        (folder / "go.py").write_text(f"open({str(folder / 'ran')!r}, 'a').write('x')\n")
    at_home = Site(mine, site.env, site.since)
    job = at_home.submit("-P", "cpu", "--cpus", "1", "-t", "5m", "--launcher", "python", "go.py")
    site.settle()  # resubmit refuses a run that has not ended
    Site(other, site.env, site.since).run(HPCRUN, "resubmit", job)
    site.settle()
    tally = site.tally("resubmit from another folder")
    if (other / "ran").exists():
        tally.wrong.append("the program of the caller's folder ran")
    if (mine / "ran").read_text() != "xx":
        tally.wrong.append("the program of the run's folder did not run twice")
    return [tally]
