"""The process of a role on one node: what its command gets, and what its end means for the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness import wait_for
from tests.unit.in_job.attempts import LAUNCH, Attempt

RANK = [*LAUNCH, "rank", "--once", "--"]


def block(name: str, options: str, *command: str) -> list[str]:
    """Return a role as the script describes it."""
    place = "--tasks 1 --ranks 1 --launcher command --on-exit end"
    given = dict(zip(place.split()[::2], place.split()[1::2], strict=True))
    given |= dict(zip(options.split()[::2], options.split()[1::2], strict=True))
    words = [name, *(word for pair in given.items() for word in pair), "--", *command]
    return [str(len(words)), *words]


TRAINER = block("trainer", "--task 1 --first-rank 1", "true")


def server(options: str, text: str) -> list[str]:
    """Return the words of a job of two roles, of which the server runs a text of a shell."""
    words = block("server", f"--task 0 --first-rank 0 {options}", "sh", "-c", text)
    return ["role", "--", *words, *TRAINER]


@pytest.fixture
def roles(attempt: Attempt) -> Path:
    """What the nodes of roles know of each other: the trainer has started."""
    folder = attempt.folder / "roles"
    folder.mkdir()
    # another node of the role was first
    (attempt.folder / "flight/server").mkdir(parents=True)
    (folder / "trainer.start").write_text('{"host": "n2", "port": 9000, "rendezvous": 9001}')
    (attempt.folder / "hosts").write_text("n1\nn2\n")
    return folder


def message(roles: Path) -> str:
    """Return why the server has failed; empty if it has not."""
    path = roles / "server.end"
    return str(json.loads(path.read_text())["message"]) if path.exists() else ""


# --- what its command gets -----------------------------------------------------------------------

NAMES = "HPCRUN_ROLE NNODES NODE_RANK HPCRUN_RANK_BASE HPCRUN_HEAD MASTER_ADDR".split()
NAMES += ["HPCRUN_ROLE_TRAINER_HOSTS", "HPCRUN_ROLE_TRAINER_PORT", "HPCRUN_IGNORED", "A"]
ECHO = "echo " + " ".join(f"${{{name}-none}}" for name in NAMES)


def test_the_command_gets_the_addresses_of_all_roles(attempt: Attempt, roles: Path) -> None:
    done = attempt.launch(*server("--env A=b", f"{ECHO} {{trainer.url}}"))
    assert done.returncode == 0
    expected = "server 1 0 0 n1 127.0.0.1 n2 9000 none b http://n2:9000"
    assert done.stdout.split() == expected.split()


def test_the_address_of_a_role_is_written_for_the_others(attempt: Attempt, roles: Path) -> None:
    done = attempt.launch(*server("", "echo {port} $HPCRUN_ROLE_SERVER_PORT $MASTER_PORT"))
    record = json.loads((roles / "server.start").read_text())
    assert record["host"] == "127.0.0.1"
    ports = [str(record["port"]), str(record["port"]), str(record["rendezvous"])]
    assert done.stdout.split() == ports
    assert len({record["port"], record["rendezvous"], 20001}) == 3


def test_the_nodes_of_each_role_count_from_its_first(attempt: Attempt, roles: Path) -> None:
    words = block("server", "--task 0 --first-rank 0", "true")
    others = "--task 1 --tasks 2 --first-rank 4 --ranks 8 --on-exit ignore"
    words += block("worker-b", others, "sh", "-c", f"{ECHO} $HPCRUN_ROLE_WORKER_B_HOSTS")
    (attempt.folder / "hosts").write_text("n1\nn2\nn3\n")
    for name in ("server", "worker-b"):
        (roles / f"{name}.start").write_text('{"host": "n2", "port": 1, "rendezvous": 2}')
    env = {"HPCRUN_NODE": "n3", "HPCRUN_NODE_RANK": "2", "HPCRUN_HOST_SUFFIX": "-ib"}
    done = attempt.launch("role", "--", *words, **env)
    assert done.stdout.split() == "worker-b 2 1 4 n2 n2 none none ignored none n2-ib,n3-ib".split()
    assert (attempt.folder / "flight/worker-b").is_dir()


# --- what its end means --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_exit", "text", "status", "failure"),
    [
        pytest.param("end", "exit 0", 0, "", id="well"),
        pytest.param("end", "exit 3", 3, "ended with status 3", id="failed"),
        pytest.param("fail", "exit 3", 3, "ended with status 3, before trainer", id="before"),
        pytest.param("ignore", "exit 3", 0, "", id="ignored"),
    ],
)
def test_the_script_says_what_the_end_of_a_role_is(
    attempt: Attempt, roles: Path, on_exit: str, text: str, status: int, failure: str
) -> None:
    words = server(f"--on-exit {on_exit}", text)
    # both of these roles end the job
    if on_exit == "end":
        words = ["role", "--", *words[2 : -len(TRAINER)]]
    assert attempt.launch(*words).returncode == status
    assert message(roles) == (f"role server on n1 {failure}" if failure else "")
    assert (roles / "server.done-0").exists() == (on_exit == "end" and status == 0)
    assert attempt.record("node-n1.server.exit")["status"] == status


def test_the_rank_that_failed_first_is_named(attempt: Attempt, roles: Path) -> None:
    for rank, status, ended in ((0, 0, 5.0), (4, 7, 2.0), (5, 8, 1.0), (9, 6, 0.5)):
        record = {"rank": rank, "node": f"n{rank}", "status": status, "ended": ended, "told": ""}
        (attempt.folder / f"rank-{rank}.exit").write_text(json.dumps(record))
    words = block("server", "--task 0 --first-rank 2 --ranks 4", "sh", "-c", "exit 1")
    assert attempt.launch("role", "--", *words, *TRAINER).returncode == 1
    assert message(roles) == "role server on n1 ended with status 8: rank 3 on n5"


def test_a_role_may_end_just_before_the_role_it_serves(attempt: Attempt, roles: Path) -> None:
    process = attempt.start(*server("--on-exit fail", "exit 0"))
    wait_for(lambda: (roles / "server.ready").exists(), 20, "the server")
    (roles / "trainer.done-1").touch()
    assert process.wait(20) == 0
    assert message(roles) == ""


def test_after_the_roles_that_decide_the_others_are_ended(attempt: Attempt, roles: Path) -> None:
    late = "sleep 60 & trap 'sleep 0.3; echo late; exit' TERM; echo up; wait"
    command = [*RANK, "sh", "-c", f'trap "wait; exit 9" TERM; sh -c "{late}" & wait']
    words = block("server", "--task 0 --first-rank 0 --on-exit fail", *command)
    process = attempt.start("role", "--", *words, *TRAINER)
    attempt.until("up", "rank-0.out")
    (roles / "trainer.done-1").touch()
    assert process.wait(20) == 0
    record = attempt.record("rank-0.exit")
    assert (record["status"], record["told"]) == (9, "cleared")
    assert attempt.text("rank-0.out") == "up\nlate\n"
    assert message(roles) == ""


def test_a_role_whose_process_is_killed_says_so(attempt: Attempt, roles: Path) -> None:
    process = attempt.start(*server("", "exec sleep 60"))
    wait_for(lambda: (roles / "server.ready").exists(), 20, "the server")
    process.kill()
    process.wait()
    wait_for(lambda: message(roles), 20, "a message")
    problem = "has lost its process of hpcrun, which was killed (SIGKILL)"
    assert message(roles) == f"role server on n1 {problem}"
    attempt.until("}", "node-n1.server.exit")
    assert attempt.record("node-n1.server.exit")["status"] == 137


# --- readiness -----------------------------------------------------------------------------------


def test_a_role_is_ready_when_its_check_passes(attempt: Attempt, roles: Path) -> None:
    check = f"--ready file:{roles}/$HPCRUN_ROLE-{{port}} --ready-timeout 60"
    text = (
        f"touch {roles}/server-{{port}}; while [ ! -e {roles}/server.ready ]; do sleep 0.05; done"
    )
    assert attempt.launch(*server(check, text)).returncode == 0


def test_a_role_that_is_not_ready_in_time_fails(attempt: Attempt, roles: Path) -> None:
    check = f"--ready file:{roles}/missing --ready-timeout 0.1"
    (attempt.folder / "rank-0.err").write_text("loading\nno memory\n")
    words = block("server", f"--task 0 --first-rank 0 {check}", *RANK, "sleep", "60")
    assert attempt.launch("role", "--", *words, *TRAINER).returncode == 1
    what = f"was not ready after 0.1 s: file:{roles}/missing: No such file or directory"
    last = "the last line of its log: no memory"
    assert message(roles) == f"role server on n1 {what}; {last}"
    assert not (roles / "server.ready").exists()


@pytest.mark.parametrize("waits", [True, False])
def test_an_awaited_role_must_be_ready_before_its_end(
    attempt: Attempt, roles: Path, waits: bool
) -> None:
    check = f"--ready file:{roles}/missing --ready-timeout 60"
    words = server(f"{check} --on-exit ignore", "exit 4")
    if waits:
        after = block("trainer", "--task 1 --first-rank 1 --after server", "true")
        words = [*words[: -len(TRAINER)], *after]
    assert attempt.launch(*words).returncode == int(waits)
    problem = f"ended with status 4 before it was ready: file:{roles}/missing"
    assert message(roles) == (f"role server on n1 {problem}" if waits else "")


def test_a_role_starts_when_those_before_it_are_ready(
    attempt: Attempt, roles: Path, tmp_path: Path
) -> None:
    words = server("--after trainer", f"touch {tmp_path}/started")
    process = attempt.start(*words)
    wait_for(lambda: (roles / "server.start").exists(), 20, "the role")
    assert not (tmp_path / "started").exists()
    (roles / "trainer.ready").touch()
    assert process.wait(20) == 0
    assert (tmp_path / "started").exists()


@pytest.mark.parametrize(("name", "status"), [("roles/trainer.done-1", 0)])
def test_a_role_that_is_not_needed_does_not_start(
    attempt: Attempt, roles: Path, tmp_path: Path, name: str, status: int
) -> None:
    words = server("--on-exit fail --after trainer", f"touch {tmp_path}/started")
    process = attempt.start(*words)
    wait_for(lambda: (roles / "server.start").exists(), 20, "the role")
    (attempt.folder / name).touch()
    assert process.wait(20) == status
    assert not (tmp_path / "started").exists()


def test_a_terminated_role_does_not_wait_for_others(attempt: Attempt, roles: Path) -> None:
    process = attempt.start(*server("--after trainer", "true"))
    wait_for(lambda: (roles / "server.start").exists(), 20, "the role")
    subprocess.run(["kill", f"-{int(signal.SIGTERM)}", str(process.pid)], check=True)
    assert process.wait(20) == 143
    assert os.listdir(attempt.folder / "stop") == ["terminated"]
    assert message(roles) == ""


def test_a_role_cleared_before_its_start_does_not_wait(
    attempt: Attempt, roles: Path, tmp_path: Path
) -> None:
    (roles / "other.end").write_text('{"message": "role other failed", "time": 1}')
    process = attempt.start(*server("--after trainer", f"touch {tmp_path}/started"))
    wait_for(lambda: (roles / "server.start").exists(), 20, "the role")
    subprocess.run(["kill", f"-{int(signal.SIGTERM)}", str(process.pid)], check=True)
    assert process.wait(20) == 143
    assert os.listdir(attempt.folder / "stop") == []
    assert not (tmp_path / "started").exists()
