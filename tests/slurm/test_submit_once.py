"""A submission ends in one job that status knows, or in none, whatever is killed at which
moment.
"""

from __future__ import annotations

import inspect
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.harness import RESEARCHER, Cluster, Hpcrun, fill, full_disk, wait_for
from tests.preloaded import compile_templates_once, parse_shipped_files_once

pytestmark = pytest.mark.slurm

KILLS = 60  # `make faults` has 200
AT_ONCE = 30
HELD = ("submit", "-P", "cpu", "--sbatch", "hold")

# Forks after a dry run, so that a kill's delay falls into the submission and not into slow imports.
# A child is killed alone, as by the OOM killer, or with all it started, as by a terminal that is
# closed.
KILLER = (
    f"{inspect.getsource(compile_templates_once)}\ncompile_templates_once()\n"
    f"{inspect.getsource(parse_shipped_files_once)}\nparse_shipped_files_once()\n"
    """
import atexit, gc, os, pathlib, signal, sys, threading, time
import hpcrun.actions.jobs.submission, hpcrun.cli.main, hpcrun.cli.submit
import hpcrun.schedulers.sbatch, hpcrun.views.plan_text

def start(name):
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        out = os.open("/dev/null", os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(out, number)
        sys.argv = ["hpcrun", *sys.argv[3:-1], "--name", name, sys.argv[-1]]
        try:
            hpcrun.cli.main.main()
        finally:
            # as Python ends, but for the modules, which take the longest to be taken down
            threading._shutdown()
            atexit._run_exitfuncs()
            os._exit(0)
    return pid

def whole_s():
    began = time.monotonic()
    os.waitpid(start("whole"), 0)
    return time.monotonic() - began

def warm_up():
    argv, sys.argv = sys.argv, ["hpcrun", *sys.argv[3:-1], "--dry-run", sys.argv[-1]]
    try:
        hpcrun.cli.main.main()
    except SystemExit:
        sys.argv = argv

def kill(name, delay_s, whole_group):
    pid = start(name)
    time.sleep(delay_s)
    try:
        (os.killpg if whole_group else os.kill)(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    os.waitpid(pid, 0)

def some_before_sbatch():
    return any(pathlib.Path(os.environ["HPCRUN_RUNS"]).glob("[0-9]*/submit.ready"))

kills, at_once = int(sys.argv[1]), int(sys.argv[2])
warm_up()
gc.collect()
gc.freeze()
longest = min(whole_s() for _ in range(2)) * 1.1
for number in range(kills):
    kill(f"kill{number}", longest * number / kills, number % 2)
# between a run's record and sbatch there are a few milliseconds,
# which so many kills may all have missed
for number in range(10 * kills):
    if some_before_sbatch():
        break
    kill(f"more{number}", longest * (number % kills) / kills / 2, True)
for pid in [start(f"many{number}") for number in range(at_once)]:
    os.waitpid(pid, 0)
"""
)
# A slow controller: as long before it takes the job as after.
SLOW_SBATCH = """
sleep 0.05
PATH=${PATH#*:}
sbatch "$@" || exit
sleep 0.05
"""


def runs_of(person: Hpcrun) -> list[dict[str, Any]]:
    return list(person.document("status", "--all")["runs"])


def jobs_of(person: Hpcrun, cluster: Cluster) -> dict[str, str]:
    """Job id → run id, of all jobs that were submitted from this person's runs folder."""
    lines = cluster.slurm(
        "squeue", "--noheader", "--states=all", f"--user={RESEARCHER}", "--format=%i %o"
    )
    split = (line.split(maxsplit=1) for line in lines.splitlines())
    return {job: Path(path).parent.name for job, path in split if path.startswith(str(person.runs))}


def recorded_job(folder: Path) -> str | None:
    found: str | None = json.loads((folder / "run.json").read_text())["job_id"]
    return found


def test_whatever_is_killed_every_job_has_its_run_and_every_run_its_end(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    killer = as_researcher.write("killer.py", KILLER)
    python = as_researcher.argv()[0]
    command = (python, str(killer), str(KILLS), str(AT_ONCE), *HELD, "true")
    as_researcher.run(*command, env=as_researcher.shims(sbatch=SLOW_SBATCH), timeout=300)
    folders = [path for path in as_researcher.runs.iterdir() if path.name[0].isdigit()]
    unrecorded = {path.name for path in folders if recorded_job(path) is None}

    def settled() -> list[dict[str, Any]]:
        runs = runs_of(as_researcher)
        return [] if any(run["state"] == "SUBMITTING" for run in runs) else runs

    runs = wait_for(settled, 60, "every submission to be known as one or as none")
    jobs = jobs_of(as_researcher, cluster)
    with_job = {str(run["job_id"]): run["run_id"] for run in runs if run["job_id"]}
    assert with_job == jobs, "a job without a run, a run without its job, or two of one"
    without = [run for run in runs if not run["job_id"]]
    assert {run["state"] for run in without} == {"NOT_SUBMITTED"}
    assert {run["state"] for run in runs if run["job_id"]} == {"PENDING"}
    assert len([run for run in runs if run["name"].startswith("many")]) == AT_ONCE
    assert not [run for run in without if run["name"].startswith(("many", "whole"))]
    # the kills have met every stage
    adopted = unrecorded & set(jobs.values())
    assert len(adopted) > 0
    assert len([run for run in without if "interrupted before submission" in run["reason"]]) > 0
    assert len([folder for folder in folders if "-kill" in folder.name]) < KILLS
    assert not list((as_researcher.runs / "active").glob("*[!0-9a-f]"))


@pytest.mark.versions
def test_a_job_that_squeue_has_forgotten_is_found_by_its_command_line(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    as_researcher("submit", "-P", "cpu", "-J", "lost", "bash", "-c", "exit 3", check=True)
    run = wait_for(lambda: [run for run in runs_of(as_researcher) if run["final"]], 30, "its end")[
        0
    ]
    folder = Path(run["folder"])
    shutil.rmtree(folder / "elements")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(
        json.dumps({**record, "job_id": None, "created_s": time.time() - 1000})
    )
    (folder / "status.json").unlink()
    (as_researcher.runs / "active" / folder.name).touch()
    blind = as_researcher.shims(squeue="")

    def found() -> dict[str, Any] | None:
        (folder / "status.json").unlink(missing_ok=True)
        (said,) = as_researcher.document("status", env=blind)["runs"]
        return said if said["job_id"] else None

    said = wait_for(found, 30, "accounting to know the job")
    assert (said["job_id"], said["state"], said["exit_status"]) == (run["job_id"], "FAILED", 3)


def test_of_several_resubmissions_of_a_run_one_is_submitted(as_researcher: Hpcrun) -> None:
    as_researcher("submit", "-P", "cpu", "-J", "rr", "true", check=True)
    job = as_researcher.ended("rr")["job_id"]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: as_researcher("resubmit", job, "--sbatch", "hold"), range(3)))
    as_researcher("resubmit", job)
    runs = as_researcher.document("status", "--all")["runs"]
    assert [run["state"] for run in runs if run["name"] == "rr"] == ["COMPLETED", "PENDING"]


def test_a_site_that_removes_requeues_is_named_at_the_submission(as_researcher: Hpcrun) -> None:
    filtered = as_researcher.shims(sbatch='PATH=${PATH#*:} exec sbatch --no-requeue "$@"')
    job = (*HELD, "--cpus", "1", "--requeue", "2", "true")
    said = "(Slurm shows Requeue=0): --requeue 2 has no effect"
    assert said in as_researcher(*job, env=filtered, check=True).stdout
    assert said not in as_researcher(*job, check=True).stdout


def test_wherever_the_disk_is_full_there_is_no_job_without_a_run(
    cluster: Cluster, as_researcher: Hpcrun
) -> None:
    with full_disk(as_researcher.folder / "small", f"size=4096k,mode=700,uid={RESEARCHER}") as disk:
        runs = disk / "runs"
        env = {"HPCRUN_RUNS": str(runs)}
        outcomes = []
        for room in range(0, 1600, 100):
            (disk / "filler").unlink(missing_ok=True)
            fill(disk, room)
            done = as_researcher(*HELD, "-J", f"room{room}", "true", env=env)
            assert "Traceback" not in done.stderr
            outcomes.append(done.returncode)
            if room == 0:
                assert "No space left on device" in done.stderr
                assert "HPCRUN_RUNS" in done.stderr
                assert [path.name for path in runs.glob("*") if path.name != "active"] == []
        (disk / "filler").unlink()
        runs_now = as_researcher.document("status", "--all", env=env)["runs"]
    lines = cluster.slurm("squeue", "-h", f"--user={RESEARCHER}", "--format=%i %o").splitlines()
    jobs = {
        line.split()[0]: Path(line.split()[1]).parent.name for line in lines if str(runs) in line
    }
    assert {run["job_id"]: run["run_id"] for run in runs_now if run["job_id"]} == jobs
    assert (4 in outcomes) and (0 in outcomes), outcomes
