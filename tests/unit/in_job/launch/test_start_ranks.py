"""One node: the rendezvous of its command, its record, and what it does with signals."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder
from hpcrun.in_job.launch.start_ranks import Node
from tests.harness import wait_for
from tests.unit.in_job.attempts import LAUNCH, Attempt

RANK = [*LAUNCH, "rank", "--once", "--"]


def node(*command: str) -> list[str]:
    """Return the words of a node that runs a command."""
    return ["node", "--", *command]


def is_running(pid: int) -> bool:
    """Whether a process has not ended."""
    return Path(f"/proc/{pid}/exe").exists()


# --- the rendezvous ------------------------------------------------------------------------------

ECHO = "echo ${NODE_RANK-none} ${MASTER_ADDR-none} ${MASTER_PORT-none} ${PET_RDZV_ENDPOINT-none}"


@pytest.mark.parametrize(
    ("option", "env", "expected"),
    [
        pytest.param((), {}, "2 127.0.0.1 20001 none", id="once a node"),
        pytest.param(
            (), {"MASTER_ADDR": "n9", "MASTER_PORT": "5"}, "2 n9 5 none", id="chosen master"
        ),
        pytest.param(("--as-is",), {}, "none none none none", id="of a script"),
        pytest.param(("--torchrun",), {}, "none none none 127.0.0.1:20001", id="torchrun"),
    ],
)
def test_the_command_gets_the_rendezvous(
    attempt: Attempt, option: tuple[str, ...], env: dict[str, str], expected: str
) -> None:
    words = ["node", *option, "--", "sh", "-c", ECHO]
    done = attempt.launch(*words, **{"HPCRUN_NODE_RANK": "2", **env})
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{expected}\n", "")


@pytest.mark.parametrize(
    ("arguments", "endpoint"),
    [
        pytest.param(("--standalone",), "none", id="torchrun's own"),
        pytest.param(("--no-python", "--standalone"), "127.0.0.1:20001", id="the program's"),
    ],
)
def test_a_torchrun_that_stands_alone_gets_no_rendezvous(
    attempt: Attempt, arguments: tuple[str, ...], endpoint: str
) -> None:
    shell = ["sh", "-c", "echo ${PET_RDZV_ENDPOINT-none}", "sh", *arguments]
    done = attempt.launch("node", "--torchrun", "--", *shell)
    assert done.stdout == f"{endpoint}\n"


def test_a_node_that_does_not_find_the_head_node_fails(attempt: Attempt) -> None:
    env = {"HPCRUN_HEAD": "no-such-host.invalid", "HPCRUN_HEAD_ADDR": "no-such-host.invalid"}
    done = attempt.launch("node", "--torchrun", "--", "echo", "started", **env)
    assert (done.returncode, done.stdout) == (1, "")
    assert "n1 cannot resolve no-such-host.invalid, the host of rank 0" in done.stderr
    assert attempt.record("node-n1.exit")["status"] == 1


# --- its end -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("no-such-program",), 127),
    ],
)
def test_the_status_of_the_command_is_recorded(
    attempt: Attempt, command: tuple[str, ...], status: int
) -> None:
    assert attempt.launch(*node(*command)).returncode == status
    record = attempt.record("node-n1.exit")
    assert (record["node"], record["status"]) == ("n1", status)


def test_roles_that_share_a_node_have_records_of_their_own(attempt: Attempt) -> None:
    attempt.launch(*node("true"), HPCRUN_ROLE="actor")
    assert attempt.record("node-n1.actor.exit")["status"] == 0


def test_a_node_leaves_no_process_and_no_folder(attempt: Attempt) -> None:
    done = attempt.launch(*node("sh", "-c", "sleep 60 >&- 2>&- & echo $! $HPCRUN_NODE_DIR"))
    pid, folder = done.stdout.split()
    assert not is_running(int(pid))
    assert not Path(folder).exists()


def test_a_node_whose_process_is_killed_ends_its_command(attempt: Attempt, tmp_path: Path) -> None:
    process = attempt.start(*node("sh", "-c", f"echo $$ >{tmp_path}/pid; exec sleep 60"))
    wait_for(lambda: (tmp_path / "pid").exists(), 20, "the command")
    process.kill()
    process.wait()
    attempt.until("}", "node-n1.exit")
    assert attempt.record("node-n1.exit")["status"] == 137
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not is_running(pid), 20, "the end of the command")


@pytest.mark.parametrize(
    ("rank_ends_s", "waited_s"),
    [
        pytest.param(0.0, 0.0, id="no rank"),
        pytest.param(1.0, 1.0, id="a rank that records its end"),
        pytest.param(60.0, 3.0, id="a rank that hangs"),
    ],
)
def test_a_node_waits_three_seconds_for_its_last_rank(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, rank_ends_s: float, waited_s: float
) -> None:
    ended = Node.__new__(Node)
    ended._folder = node_folder.make()
    ended._tree = "none"
    ended._compiled = None
    if rank_ends_s:
        ended._folder.claim("rank-3.17")
    now_s = [100.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if now_s[0] >= 100.0 + rank_ends_s:
            Path(ended._folder.path, "rank-3.17").unlink(missing_ok=True)

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    ended._leave(0)
    assert now_s[0] == pytest.approx(100.0 + waited_s, abs=0.1)
    assert not Path(ended._folder.path).exists()


# --- signals -------------------------------------------------------------------------------------


def test_before_there_are_ranks_a_terminated_node_ends_at_once(
    attempt: Attempt, tmp_path: Path
) -> None:
    text = f"trap '' TERM; touch {tmp_path}/up; exec sleep 60"
    process = attempt.start(*node("sh", "-c", text))
    wait_for(lambda: (tmp_path / "up").exists(), 20, "the command")
    process.terminate()
    assert process.wait(20) == 143
    assert attempt.record("node-n1.exit")["status"] == 143
    assert os.listdir(attempt.folder / "stop") == ["terminated"]


def end_of_rank(attempt: Attempt, text: str, number: int, **env: str) -> dict[str, object]:
    """Run a text of a shell as the rank of a node, signal the node, and return the rank's record.

    Args:
        attempt: the attempt.
        text: what the rank runs; it prints "up".
        number: the signal; 0 for none.
        env: more variables of the node.
    """
    process = attempt.start(*node(*RANK, "sh", "-c", text), **env)
    attempt.until("up", "rank-0.out")
    if number:
        process.send_signal(number)
    record = attempt.folder / "rank-0.exit"
    wait_for(record.exists, 20, "the end of the rank")
    process.wait(20)
    return attempt.record("rank-0.exit")


def test_a_terminated_node_lets_its_ranks_end(attempt: Attempt) -> None:
    text = "trap 'sleep 0.1; echo saved; exit 9' TERM; echo up; sleep 60 & wait"
    record = end_of_rank(attempt, text, signal.SIGTERM)
    assert (record["status"], record["told"], record["heard"]) == (9, "TERM", True)
    assert attempt.text("rank-0.out") == "up\nsaved\n"
    assert os.listdir(attempt.folder / "stop") == ["terminated"]
    assert attempt.record("node-n1.exit")["status"] == 9


def test_after_a_failure_the_other_ranks_are_cleared(attempt: Attempt) -> None:
    failed = '{"rank": 5, "status": 1, "ended": 1.0, "told": ""}'
    (attempt.folder / "rank-5.exit").write_text(failed)
    text = "trap 'exit 9' TERM; echo up; sleep 60 & wait"
    record = end_of_rank(attempt, text, signal.SIGTERM)
    assert (record["status"], record["told"]) == (9, "cleared")
    assert os.listdir(attempt.folder / "stop") == []


def test_another_signal_reaches_the_ranks(attempt: Attempt) -> None:
    text = "trap 'echo got; exit 4' USR2; echo up; sleep 60 & wait"
    record = end_of_rank(attempt, text, signal.SIGUSR2)
    assert (record["status"], record["told"]) == (4, "")


def test_ranks_with_a_handler_are_warned_of_the_time_limit(attempt: Attempt) -> None:
    (attempt.folder / "stop/time_limit").touch()
    text = "trap 'echo warned; exit 0' USR1; echo up; for i in 1 2 3 4 5 6; do sleep 0.2; done"
    record = end_of_rank(attempt, text, 0, HPCRUN_MANAGED="1")
    assert attempt.text("rank-0.out") == "up\nwarned\n"
    assert (record["told"], record["heard"]) == ("", True)


def test_a_rank_without_a_handler_survives_the_time_limit(attempt: Attempt) -> None:
    (attempt.folder / "stop/time_limit").touch()
    text = "echo up; sleep 1.2; ls $HPCRUN_NODE_DIR | grep stop"
    record = end_of_rank(attempt, text, 0, HPCRUN_MANAGED="1")
    assert attempt.text("rank-0.out") == "up\nstop-time_limit\n"
    assert (record["status"], record["heard"]) == (0, False)


def test_a_node_of_a_managed_job_has_a_heartbeat(attempt: Attempt) -> None:
    process = attempt.start(*node(*RANK, "sleep", "60"), HPCRUN_MANAGED="1")
    start = attempt.folder / "node-n1.start"
    wait_for(start.exists, 20, "the rank")
    os.utime(start, (0, 0))
    wait_for(lambda: start.stat().st_mtime > 0, 20, "a heartbeat")
    process.terminate()
    process.wait(20)


@pytest.mark.parametrize(
    ("env", "preempt_time", "is_recorded"),
    [
        pytest.param({"SLURM_JOB_ID": "7"}, "2026-01-01T00:00:00", True, id="preempted"),
        pytest.param({"SLURM_JOB_ID": "7"}, "None", False, id="cancelled"),
    ],
)
def test_the_preemption_is_recorded_before_slurm_forgets_it(
    attempt: Attempt, tmp_path: Path, env: dict[str, str], preempt_time: str, is_recorded: bool
) -> None:
    scontrol = tmp_path / "bin/scontrol"
    scontrol.parent.mkdir()
    scontrol.write_text(f"#!/bin/sh\necho JobState=RUNNING PreemptTime={preempt_time}\n")
    scontrol.chmod(0o755)
    path = f"{scontrol.parent}:{attempt.env['PATH']}"
    text = "trap 'exit 0' TERM; echo up; sleep 60 & wait"
    end_of_rank(attempt, text, signal.SIGTERM, PATH=path, **env)
    assert (attempt.folder / "preempted").exists() == is_recorded
