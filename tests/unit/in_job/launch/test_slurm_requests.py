"""The requests to Slurm from inside a job."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch import slurm_requests
from tests.unit.builders import write

FILTERS = "SCONTROL_ALL SCANCEL_STATE SQUEUE_STATES SINFO_FORMAT SACCT_FORMAT".split()


def test_a_request_is_without_the_filters_of_the_user_and_with_what_a_step_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scancel = write(tmp_path / "scancel", "#!/bin/sh\nenv\nexit 1\n")
    scancel.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in (*FILTERS, "SLURM_JOB_ID", "SRUN_DEBUG"):
        monkeypatch.setenv(name, "1")
    names = {
        line.partition("=")[0] for line in slurm_requests.cancel_pending(["4711"]).splitlines()
    }
    assert names.isdisjoint(FILTERS)
    assert {"SLURM_JOB_ID", "SRUN_DEBUG"} <= names


@pytest.mark.parametrize(
    ("answer", "removed"),
    [
        ("JobState=RUNNING NodeList=n[2-3]", ["n1"]),
        ("JobState=RUNNING NodeList=n[1-3]", []),
        ("JobState=PENDING NodeList=(null)", []),
        ("JobState=COMPLETING NodeList=n2", []),
        ("", []),
    ],
    ids=["one node less", "all", "requeued", "ending", "away"],
)
def test_a_node_that_slurm_has_removed_from_a_running_job_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, removed: list[str]
) -> None:
    write(tmp_path / "scontrol", f"#!/bin/sh\necho '{answer}'\n").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("HPCRUN_JOB_ID", "4711")
    assert slurm_requests.removed_nodes(["n1", "n2"]) == removed


# --- what Slurm's commands are asked, and what their answers mean --------------------------------


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for programs in the place of Slurm's; each writes its words into ``calls``."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HPCRUN_JOB_ID", "7")
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return tmp_path


def program(folder: Path, name: str, text: str) -> None:
    """Put a program in the place of one of Slurm's."""
    script = f'#!/bin/sh\necho {name} "$@" >>{folder}/calls\n{text}\n'
    write(folder / name, script).chmod(0o755)


def calls(folder: Path) -> list[str]:
    """Return what was called."""
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_job_is_read_from_scontrol() -> None:
    text = (
        "JobId=7 JobName=x JobState=RUNNING Reason=None Restarts=2 PreemptTime=None "
        "ReqNodeList=(null) ExcNodeList=n9 NodeList=n[1-2] BatchHost=n1 NumNodes=2"
    )
    job = slurm_requests.parse_job(text)
    assert (job.state, job.reason, job.restarts) == ("RUNNING", "None", 2)
    assert (job.nodes, job.excluded, job.batch_host) == ("n[1-2]", "n9", "n1")
    assert not job.preempted


@pytest.mark.parametrize(
    ("value", "preempted"),
    [("2026-01-01T00:00:00", True), ("None", False), ("Unknown", False), ("N/A", False)],
)
def test_a_job_with_a_time_of_preemption_is_preempted(value: str, preempted: bool) -> None:
    assert slurm_requests.parse_job(f"PreemptTime={value}").preempted == preempted


def test_a_slurm_that_does_not_respond_says_nothing(slurm: Path) -> None:
    assert slurm_requests.job() == slurm_requests.JobSays()
    assert slurm_requests.nodes_dead(["n1"]) == {}
    assert slurm_requests.jobs_with_nodes() is None
    assert slurm_requests.node_address("n1") == ""


@pytest.mark.parametrize(
    ("batch_host", "nodes", "lost"),
    [("n1", "n[1-2]", False), ("n3", "n[1-2]", True), ("", "n1", False), ("n1", "", False)],
)
def test_a_job_loses_its_script_with_its_node(batch_host: str, nodes: str, lost: bool) -> None:
    job = slurm_requests.JobSays("RUNNING", batch_host=batch_host, nodes=nodes)
    assert job.lost_its_script == lost


@pytest.mark.parametrize(("now", "was"), [(1, False), (2, True), (None, False)])
def test_a_job_was_requeued_if_slurm_counts_more(now: int | None, was: bool) -> None:
    assert slurm_requests.JobSays(restarts=now).was_requeued_after(1) == was


@pytest.mark.parametrize(
    ("state", "dead"),
    [
        ("idle", False),
        ("down", True),
        ("down*", True),
        ("idle*", True),
        ("fail", True),
        ("failg", True),
        ("unk", True),
        ("drain", False),
        ("alloc", False),
    ],
)
def test_a_node_is_dead_by_its_state(slurm: Path, state: str, dead: bool) -> None:
    program(slurm, "sinfo", f"echo n1 '{state}'; echo a line of a site")
    assert slurm_requests.nodes_dead(["n1", "n2"]) == {"n1": dead}
    assert calls(slurm) == ["sinfo --noheader --Node --nodes n1,n2 --format=%N %t"]


def test_slurm_s_configuration_has_the_address_of_a_node(slurm: Path) -> None:
    program(slurm, "scontrol", "echo NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=n1")
    assert slurm_requests.node_address("n1") == "10.0.0.1"
    program(slurm, "scontrol", "echo NodeAddr=10.0.0.1; exit 1")
    assert slurm_requests.node_address("n1") == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("exit 0", ""),
        ("echo Job is pending execution; exit 1", ""),
        ("echo Access denied; exit 1", "Access denied"),
        ("exit 3", "scontrol requeue ended with status 3"),
    ],
)
def test_a_requeue_that_slurm_refuses_has_a_reason(slurm: Path, text: str, problem: str) -> None:
    program(slurm, "scontrol", text)
    assert slurm_requests.requeue([]) == problem
    assert calls(slurm) == ["scontrol requeue 7"]


@pytest.mark.parametrize(
    ("status", "message"),
    [(0, "hpcrun: n1,n2 is excluded from now on\n"), (1, "")],
    ids=["accepted", "refused"],
)
def test_nodes_are_excluded_besides_those_of_before(
    slurm: Path, capsys: pytest.CaptureFixture[str], status: int, message: str
) -> None:
    text = f'case "$1" in update) exit {status};; esac; echo ExcNodeList=m1'
    program(slurm, "scontrol", text)
    assert slurm_requests.requeue(["n1", "n2"]) == ""
    assert calls(slurm)[-1] == "scontrol update JobId=7 ExcNodeList=m1,n1,n2"
    assert capsys.readouterr().err == message


@pytest.mark.parametrize(("text", "accepted", "tries"), [("exit 1", False, 5), ("", True, 1)])
def test_a_requeue_is_tried_again_while_slurm_refuses(
    slurm: Path, text: str, accepted: bool, tries: int
) -> None:
    program(slurm, "scontrol", text)
    assert slurm_requests.requeue_patiently([]) == accepted
    assert len(calls(slurm)) == tries


@pytest.mark.parametrize(
    ("scancel", "squeue", "problem"),
    [
        ("exit 0", "exit 0", ""),
        ("echo Access denied; exit 1", "", "Access denied"),
        ("exit 0", "echo 8; echo 9", "Slurm still lists 8, 9 as pending"),
        ("exit 0", "echo Invalid job id; exit 1", ""),
    ],
)
def test_pending_jobs_are_cancelled_and_looked_at(
    slurm: Path, scancel: str, squeue: str, problem: str
) -> None:
    program(slurm, "scancel", scancel)
    program(slurm, "squeue", squeue)
    assert slurm_requests.cancel_pending(["8", "9"]) == problem
    assert calls(slurm)[0] == "scancel 8 9"


def test_requests_of_the_job_name_it(slurm: Path) -> None:
    program(slurm, "scancel", "echo no; exit 1")
    program(slurm, "scontrol", "exit 0")
    program(slurm, "srun", "exit 0")
    assert slurm_requests.cancel() == "no"
    assert slurm_requests.end_steps() == "no"
    slurm_requests.requeue_no_more()
    slurm_requests.skip_steps(2)
    assert calls(slurm) == [
        "scancel 7",
        "scancel --signal=TERM 7",
        "scontrol update JobId=7 Requeue=0",
        *["srun --nodes=1 --ntasks=1 true"] * 2,
    ]


@pytest.mark.parametrize(("status", "starts"), [(0, True), (1, False)])
def test_a_node_starts_a_step_or_not(slurm: Path, status: int, starts: bool) -> None:
    program(slurm, "srun", f"exit {status}")
    assert slurm_requests.starts_step("n1") == starts
    step = "--nodes=1 --ntasks=1 --nodelist=n1 --overlap --gres=none true"
    assert calls(slurm) == [f"srun {step}"]


def test_a_small_step_has_no_sizes_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NTASKS", "CPUS_PER_TASK", "MEM_PER_NODE", "NNODES", "JOB_ID", "EXACT"):
        monkeypatch.setenv(f"SLURM_{name}", "1")
    _, env = slurm_requests.small_step("n1")
    assert sorted(name for name in env if name.startswith("SLURM_")) == ["SLURM_JOB_ID"]


def test_jobs_that_are_pending_have_no_nodes(slurm: Path) -> None:
    program(slurm, "squeue", "echo 7 RUNNING; echo 8 PENDING; echo 9_1 COMPLETING")
    assert slurm_requests.jobs_with_nodes() == {"7", "9_1"}


@pytest.mark.parametrize(
    ("nodelist", "nodes"),
    [
        ("n1", ["n1"]),
        ("a[01-03,7],b1", ["a01", "a02", "a03", "a7", "b1"]),
        ("r[1-2]n[8-9]", ["r1n8", "r1n9", "r2n8", "r2n9"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
    ],
)
def test_a_list_of_nodes_is_expanded(nodelist: str, nodes: list[str]) -> None:
    assert slurm_requests.expand(nodelist) == nodes


def test_what_is_no_list_of_nodes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no list of nodes: ''$"):
        slurm_requests.expand("")
