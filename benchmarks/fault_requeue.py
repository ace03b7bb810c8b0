"""An administrator requeues jobs and elements of a sweep after hpcrun has shown their ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster import wait_for
from fault_site import HPCRUN, SMALL, Site, Tally

RUNS = 5
AGAIN = "again"
PROGRAM = ("--requeue", "2", "sh", "-c", f"[ -e {AGAIN} ] || exit 3; sleep 20")


def requeued(site: Site) -> list[Tally]:
    """Requeue runs, and then elements, cancel the first of each and let the others complete."""
    return [_runs(site), _elements(site.with_runs("runs-requeued-elements"))]


def _runs(site: Site) -> Tally:
    (site.folder / AGAIN).unlink(missing_ok=True)
    jobs = [site.submit(*SMALL, *PROGRAM) for _ in range(RUNS)]
    wrong = _requeue(site, jobs, still_ended=lambda: _ended(site.all_runs()))
    tally = _tally(site, "requeue after the end", RUNS, wrong)
    for run in site.all_runs():
        expected = "CANCELLED" if run["job_id"] == jobs[0] else "COMPLETED"
        if run["state"] != expected:
            tally.wrong.append(f"{run['job_id']} is {run['state']}")
    return tally


def _elements(site: Site) -> Tally:
    (site.folder / AGAIN).unlink(missing_ok=True)
    values = ",".join(map(str, range(2 * RUNS)))
    array = site.submit(*SMALL, "--sweep", f"x={values}", *PROGRAM)
    jobs = [f"{array}_{index}" for index in range(0, 2 * RUNS, 2)]

    def elements() -> list[dict[str, Any]]:
        (run,) = site.all_runs()
        return [each for each in run["elements"] if each["job_id"] in jobs]

    wrong = _requeue(site, jobs, still_ended=lambda: _ended(elements()))
    tally = _tally(site, "administrator's requeue of an element", RUNS, wrong)
    for element in elements():
        expected = "CANCELLED" if element["job_id"] == jobs[0] else "COMPLETED"
        if element["state"] != expected:
            tally.wrong.append(f"{element['job_id']} is {element['state']}")
    return tally


def _requeue(site: Site, jobs: list[str], still_ended: Callable[[], list[str]]) -> list[str]:
    """Requeue ended jobs, try to clean them, and cancel the first; return what went wrong."""
    site.settle()
    (site.folder / AGAIN).touch()
    site.run("scontrol", "requeue", ",".join(jobs))
    wrong = [f"{job} has ended by its status, although it was requeued" for job in still_ended()]
    site.run(HPCRUN, "clean", "--all", "--yes")
    cancelled = site.run(HPCRUN, "cancel", jobs[0])
    if f"cancelled  job {jobs[0]}" not in cancelled.stdout:
        wrong.append(f"{jobs[0]} was not cancelled: {cancelled.stdout}{cancelled.stderr}")
    for job in jobs[1:]:
        site.run("scontrol", "update", f"JobId={job}", "StartTime=now")
    wait_for(lambda: "RUNNING" in site.states().values(), "the requeued jobs to run", 60)
    site.run(HPCRUN, "clean", "--state", "running", "--yes")
    site.settle()
    return wrong


def _ended(items: list[dict[str, Any]]) -> list[str]:
    return [str(item["job_id"]) for item in items if item["final"]]


def _tally(site: Site, fault: str, runs: int, wrong: list[str]) -> Tally:
    known = site.states()
    tally = Tally(fault, runs, wrong=wrong, remark="the first cancelled, the others completed")
    for job, (_, script) in site.jobs().items():
        folder = Path(script).parent
        if folder.name not in known:
            tally.lost.append(job)
        if not folder.exists():
            tally.orphaned.append(f"{job} {script}")
    return tally
