"""Commands of a script or a coding agent on Slurm: stdin closed, output captured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Completed, Hpcrun, wait_for, without_stdin

pytestmark = pytest.mark.slurm

CPU_JOB = "hpcrun submit -P a100 --gpus 0 -p cpu"
SHORT_JOB = "hpcrun submit -P a100 -p gpu --qos short --cpus 1 --mem 1G --time 5m"
LATER = ("--begin", "now+1hour")
OVER_LIMIT = f"{SHORT_JOB} --gpus 8 --nodes 2"


def closed(person: Hpcrun, line: str, *, status: int = 0) -> Completed:
    """Run a line of bash, in which stdin is closed and which ends with this exit status."""
    done = without_stdin(person, line)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


def document(person: Hpcrun, line: str, *, status: int = 0) -> dict[str, Any]:
    """What a command prints with ``--json``, which stands behind its name."""
    program, name, rest = f"{line} ".split(" ", 2)
    done = closed(person, f"{program} {name} --json {rest}", status=status)
    return dict(json.loads(done.stdout))


def pending_for(person: Hpcrun, reason: str) -> dict[str, Any]:
    """The newest run, once Slurm has this reason for it."""

    def has_reason() -> dict[str, Any] | None:
        [run] = document(person, "hpcrun status last")["runs"]
        return dict(run) if run["reason"] == reason else None

    return wait_for(has_reason, 60, f"the reason {reason}")


@pytest.mark.versions
def test_cancel_hold_and_release_say_what_they_changed(as_researcher: Hpcrun) -> None:
    for name in ("one", "two", "two"):
        closed(as_researcher, f"{CPU_JOB} -J {name} --sbatch hold sleep 300")
    runs = document(as_researcher, "hpcrun status")["runs"]
    ids = [run["job_id"] for run in runs]
    for words in ("--state pending", "last", "two"):
        refused = document(as_researcher, f"hpcrun cancel {words}", status=2)
        assert refused["changed"] == []
        assert ids[-1] in [match["job_id"] for match in refused["matches"]]
    released = document(as_researcher, f"hpcrun release {ids[0]}")
    assert [(run["job_id"], run["result"]) for run in released["changed"]] == [(ids[0], "released")]
    held = document(as_researcher, f"hpcrun hold {ids[1]}")
    assert [(run["job_id"], run["result"]) for run in held["changed"]] == [(ids[1], "held")]
    done = document(as_researcher, "hpcrun cancel --yes --state pending,running,configuring")
    assert sorted(run["job_id"] for run in done["changed"]) == sorted(ids)
    assert {run["result"] for run in done["changed"]} <= {"cancelled", "being cancelled"}


def test_hold_and_release_of_a_person_s_run_need_a_word_of_the_person(
    as_researcher: Hpcrun,
) -> None:
    words = CPU_JOB.split()[1:]
    terminal = as_researcher.terminal(*words, "-J", "mine", *LATER, "--sbatch", "hold", "true")
    terminal.expect("submitted")
    terminal.wait()
    job_id = as_researcher.status("mine")["job_id"]
    for verb in ("release", "hold"):
        refused = document(as_researcher, f"hpcrun {verb} {job_id}", status=2)
        assert [match["job_id"] for match in refused["matches"]] == [job_id]
        assert f"{job_id} was submitted at a terminal" in refused["error"]["message"]
    assert as_researcher.status("mine")["reason"] == "JobHeldUser"
    for verb, done in (("release", "released"), ("hold", "held")):
        [changed] = document(as_researcher, f"hpcrun {verb} --yes {job_id}")["changed"]
        assert changed["result"] == done


def test_hold_and_release_are_lines_of_the_log_of_actions(as_researcher: Hpcrun) -> None:
    for name in ("one", "two"):
        closed(as_researcher, f"{CPU_JOB} -J {name} {' '.join(LATER)} true")
    ids = [run["job_id"] for run in document(as_researcher, "hpcrun status")["runs"]]
    closed(as_researcher, f"HPCRUN_AGENT=mine hpcrun hold {' '.join(ids)}")
    closed(as_researcher, f"hpcrun release {ids[0]}")
    closed(as_researcher, "hpcrun hold nothing", status=6)
    text = (as_researcher.runs / "actions.jsonl").read_text()
    submitted, _, held, released = [json.loads(line) for line in text.splitlines()]
    assert (held["action"], released["action"]) == ("hold", "release")
    assert (held["job_ids"], released["job_ids"]) == (ids, ids[:1])
    assert held["arguments"] == f"hpcrun hold {' '.join(ids)}"
    assert held["by"] == {"terminal": False, "agent": "mine"}
    assert released["run_ids"] == submitted["run_ids"]
    assert released["time_s"] >= held["time_s"] >= submitted["time_s"]


@pytest.mark.versions
def test_a_job_that_alone_is_over_a_limit_never_starts(as_researcher: Hpcrun) -> None:
    submitted = closed(as_researcher, f"{OVER_LIMIT} -J wide sleep 1").stdout
    assert "this job never starts: 8 GPUs are more than the 4 that QOS short" in submitted
    run = pending_for(as_researcher, "QOSMaxGRESPerUser")
    assert run["never_starts"]
    assert run["limit"] == {
        "holder": "QOS short",
        "what": "gres/gpu",
        "requested": 8.0,
        "allowed": 4.0,
        "whose": "you",
    }
    why = "requests 8 GPUs, QOS short allows 4 per user"
    assert run["advice"].startswith("It will never start: request less")
    table = closed(as_researcher, "hpcrun status wide")
    assert f"never starts: {why}" in " ".join(table.stdout.split())
    assert f"hint: hpcrun cancel {run['job_id']}" in table.stderr
    details = closed(as_researcher, "hpcrun status -v wide").stdout
    assert why in details
    assert "It will never start" in details
    [verbose] = document(as_researcher, "hpcrun status -v wide")["runs"]
    assert "gres/gpu" in [limit["what"] for limit in verbose["limits"]]
    assert why in " ".join(closed(as_researcher, "hpcrun explain wide").stdout.split())
    assert document(as_researcher, "hpcrun explain wide")["never_starts"]
    [waited] = document(as_researcher, "hpcrun wait wide --timeout 100s", status=7)["runs"]
    assert (waited["state"], waited["never_starts"]) == ("PENDING", True)
    assert waited["limit"]["allowed"] == 4.0
    end = document(as_researcher, f"{OVER_LIMIT} -J wide-too --wait sleep 1", status=7)
    assert end["never_starts"]
    assert "never starts" in end["error"]["message"]


def test_a_job_that_waits_for_other_jobs_of_its_user_may_start(as_researcher: Hpcrun) -> None:
    for name in ("first", "second"):
        closed(as_researcher, f"{SHORT_JOB} --gpus 4 -J {name} sleep 300")
    run = pending_for(as_researcher, "QOSMaxGRESPerUser")
    assert not run["never_starts"]
    assert run["limit"] is None
    assert "Wait for them" in run["advice"]
    over = closed(as_researcher, "hpcrun wait second --timeout 5s", status=8)
    assert "PENDING" in over.stdout
    assert f"hpcrun wait --timeout 5s {run['job_id']}" in over.stderr


@pytest.mark.versions
def test_wait_ends_with_its_runs_and_elements(as_researcher: Hpcrun) -> None:
    good = closed(as_researcher, f"{CPU_JOB} --parsable sleep 3").stdout.strip()
    bad = closed(as_researcher, f"{CPU_JOB} --parsable sh -c 'exit 3'").stdout.strip()
    sweep = closed(as_researcher, f"{CPU_JOB} --parsable --sweep x=0,5 sh -c 'exit {{x}}'")
    swept = sweep.stdout.strip()
    assert good.isdecimal()
    done = document(as_researcher, f"hpcrun wait {good} {bad} {swept}/0", status=7)
    states = {run["job_id"]: run["state"] for run in done["runs"]}
    assert states == {good: "COMPLETED", bad: "FAILED", f"{swept}_0": "COMPLETED"}
    assert closed(as_researcher, f"hpcrun wait {good} {swept}/0").stdout.count("COMPLETED") == 2
    whole = closed(as_researcher, f"hpcrun wait {swept}", status=7)
    assert "FAILED" in whole.stdout


def test_waiting_for_several_runs_costs_one_squeue_in_ten_seconds(as_researcher: Hpcrun) -> None:
    calls = as_researcher.write("calls", "")
    calls.chmod(0o666)
    counted = as_researcher.shims(
        squeue=f'echo x >>{calls}\nexec /usr/bin/squeue "$@"',
    )
    ids = [
        closed(as_researcher, f"{CPU_JOB} --parsable sleep 300").stdout.strip() for _ in range(4)
    ]
    done = as_researcher("wait", *ids, "--timeout", "25s", env=counted)
    assert done.returncode == 8
    assert 1 <= len(calls.read_text().split()) <= 4


def test_the_same_command_that_is_pending_already_gets_a_remark(as_researcher: Hpcrun) -> None:
    as_researcher.write("train.py", "import time; time.sleep(300)\n")
    held = f"{CPU_JOB} --sbatch hold"
    first = document(as_researcher, f"{held} train.py --lr 1")
    assert first["remarks"] == ""
    assert document(as_researcher, f"{held} train.py --lr 2")["remarks"] == ""
    again = closed(as_researcher, f"{held} train.py --lr 1").stdout
    assert f"the same command is pending as job {first['job_id']}" in again
    same = document(as_researcher, f"{held} train.py --lr 1")
    assert "the same command is pending as job" in same["remarks"]
    closed(as_researcher, "hpcrun cancel --yes --state pending")
    assert document(as_researcher, f"{held} train.py --lr 1")["remarks"] == ""


def test_ranks_without_a_stack_are_told_apart_by_what_they_wait_for(as_researcher: Hpcrun) -> None:
    script = "if [ $RANK = 1 ]; then exec sleep 300; fi; mkfifo in-$RANK; exec cat <>in-$RANK\n"
    as_researcher.write("rank.sh", f"echo begun\n{script}")
    four = "--launcher srun --nproc-per-node 4"
    folder = Path(document(as_researcher, f"{CPU_JOB} {four} bash rank.sh")["folder"])
    logs = [folder / f"elements/0/attempts/0/rank-{rank}.out" for rank in range(4)]
    wait_for(lambda: all(log.exists() and log.read_text() for log in logs), 60, "all ranks")

    def one_is_odd() -> dict[str, Any] | None:  # each rank's shell has become its program
        explained = document(as_researcher, "hpcrun explain last --stacks")
        return explained if explained["rank"] is not None else None

    stacks = wait_for(one_is_odd, 60, "a rank that waits for something else")
    assert stacks["rank"] == 1
    assert "3 of 4 ranks are waiting (state S, in " in stacks["summary"]
    assert "; rank 1 on cpu-1 is waiting (state S, in " in stacks["summary"]
    functions = re.findall(r"in (\w+)\)", stacks["summary"])
    assert len(set(functions)) == 2
