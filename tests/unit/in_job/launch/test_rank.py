"""One rank: its number, its variables, its logs and records, and how it ends."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from hpcrun.in_job.launch import node_folder, rank
from tests.harness import wait_for
from tests.unit.in_job.attempts import LAUNCH, Attempt

TASK = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NTASKS": "8"}
TASK |= {"SLURM_NTASKS_PER_NODE": "4(x2)", "SLURM_NODEID": "1"}


def of_shell(text: str) -> list[str]:
    """Return the words that run a text of a shell as a rank."""
    return ["rank", "--", "sh", "-c", text]


def is_running(pid: int) -> bool:
    """Whether a process has not ended."""
    return Path(f"/proc/{pid}/exe").exists()


# --- its number and its variables ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "env", "number"),
    [
        pytest.param((), {"HPCRUN_RANK_BASE": "4"}, 7, id="of a role"),
        pytest.param(("--once",), {"HPCRUN_NODE_RANK": "2"}, 2, id="once a node"),
        pytest.param(("--task", "--as-is"), TASK, 5, id="task of a script"),
    ],
)
def test_the_logs_have_the_number_of_the_rank(
    attempt: Attempt, options: tuple[str, ...], env: dict[str, str], number: int
) -> None:
    done = attempt.launch("rank", *options, "--", "sh", "-c", "echo o; echo e >&2", **env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert attempt.text(f"rank-{number}.out") == "o\n"
    assert attempt.text(f"rank-{number}.err") == "e\n"
    assert attempt.record(f"rank-{number}.exit")["rank"] == number


VARIABLES = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT".split()


def variables(attempt: Attempt, number: int, *options: str, **env: str) -> list[str]:
    """Return the variables of torch that a program gets."""
    text = "echo " + " ".join(f"${{{name}--}}" for name in VARIABLES)
    attempt.launch("rank", *options, "--", "sh", "-c", text, **env)
    return attempt.text(f"rank-{number}.out").split()


def test_a_task_gets_the_variables_of_torch(attempt: Attempt) -> None:
    expected = ["5", "1", "8", "4", "127.0.0.1", "20001"]
    assert variables(attempt, 5, "--task", **TASK) == expected


def test_a_task_keeps_the_master_that_is_set(attempt: Attempt) -> None:
    env = {**TASK, "MASTER_ADDR": "n9", "MASTER_PORT": "1234"}
    assert variables(attempt, 5, "--task", **env)[4:] == ["n9", "1234"]


def test_a_task_of_a_script_keeps_its_variables(attempt: Attempt) -> None:
    expected = ["3", "-", "-", "-", "-", "-"]
    assert variables(attempt, 5, "--task", "--as-is", **TASK) == expected


def test_a_program_gets_no_variables_that_torchrun_alone_needs(attempt: Attempt) -> None:
    text = "echo ${PET_RDZV_ID-none} ${HPCRUN_FOR_TORCHRUN-none} ${PET_OTHER-none}"
    env = {"HPCRUN_FOR_TORCHRUN": "PET_RDZV_ID PET_UNSET", "PET_RDZV_ID": "7.0", "PET_OTHER": "x"}
    attempt.launch(*of_shell(text), **env)
    assert attempt.text("rank-3.out") == "none none x\n"


def test_the_folder_of_the_node_names_the_running_program(attempt: Attempt) -> None:
    text = 'until ls "$HPCRUN_NODE_DIR" | grep rank; do sleep 0.01; done; echo $HPCRUN_RANK $$'
    attempt.launch(*of_shell(f"{text}; echo $HPCRUN_NODE_DIR"))
    mark, numbers, folder = attempt.text("rank-3.out").split("\n")[:3]
    number, pid = numbers.split()
    assert mark == f"rank-{number}.{pid}" == f"rank-3.{attempt.record('rank-3.exit')['pid']}"
    assert not Path(folder).exists()


# --- how it ends ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "status"), [("exit 7", 7), ("kill -PIPE $$", 141)])
def test_the_status_of_the_program_is_recorded(attempt: Attempt, text: str, status: int) -> None:
    assert attempt.launch(*of_shell(text)).returncode == status
    record = attempt.record("rank-3.exit")
    assert record["status"] == status
    assert record["told"] == ""
    assert record["node"] == "n1"
    assert (record["heard"], record["alone"]) == (False, False)


def test_a_program_that_is_not_there_is_a_failure(attempt: Attempt) -> None:
    assert attempt.launch("rank", "--", "no-such-program").returncode == 127
    assert attempt.record("rank-3.exit")["status"] == 127
    assert attempt.record("rank-3.exit")["pid"] == 0
    assert "cannot start no-such-program" in attempt.text("rank-3.err")


@pytest.mark.parametrize(("status", "cause"), [(5, "ignored"), (0, "")])
def test_a_failure_that_the_job_ignores_is_marked(
    attempt: Attempt, status: int, cause: str
) -> None:
    attempt.launch(*of_shell(f"exit {status}"), HPCRUN_IGNORED="ignored")
    assert attempt.record("rank-3.exit")["told"] == cause


@pytest.mark.parametrize(
    ("options", "status", "stays"),
    [
        pytest.param((), 0, True, id="of a node"),
        pytest.param((), 3, False, id="failed"),
        pytest.param(("--task",), 0, False, id="task"),
    ],
)
def test_what_a_program_leaves_is_killed(
    attempt: Attempt, options: tuple[str, ...], status: int, stays: bool
) -> None:
    # in a session of its own, which no signal to the group of the program reaches
    text = f"setsid sleep 60 >&- 2>&- & echo $!; exit {status}"
    attempt.launch("rank", *options, "--", "sh", "-c", text, **{**TASK, "SLURM_PROCID": "3"})
    left = int(attempt.text("rank-3.out"))
    assert is_running(left) == stays
    if stays:
        os.kill(left, signal.SIGKILL)


def signal_running(attempt: Attempt, text: str, number: int, *, by_launcher: bool) -> None:
    """Run a text of a shell as a rank, signal its wrapper once it has printed, and let it end."""
    process = attempt.start(*of_shell(text))
    attempt.until("up", "rank-3.out")
    if by_launcher:
        process.send_signal(number)
    else:
        subprocess.run(["kill", f"-{number}", str(process.pid)], check=True)
    process.wait(20)


NO_HANDLER = "echo up; exec sleep 60"
HANDLER = "trap 'exit 9' TERM; echo up; sleep 60 & wait"
IGNORING = "trap '' TERM; echo up; sleep 0.5"


@pytest.mark.parametrize(
    ("text", "status", "heard"),
    [
        pytest.param(NO_HANDLER, 143, True, id="no handler"),
        pytest.param(HANDLER, 9, True, id="handler"),
        pytest.param(IGNORING, 0, False, id="ignored"),
    ],
)
def test_a_terminated_rank_records_whether_it_has_learned_of_it(
    attempt: Attempt, text: str, status: int, heard: bool
) -> None:
    signal_running(attempt, text, signal.SIGTERM, by_launcher=False)
    record = attempt.record("rank-3.exit")
    assert (record["status"], record["told"], record["heard"]) == (status, "TERM", heard)


def test_a_rank_ended_by_its_launcher_is_cleared(attempt: Attempt) -> None:
    text = "sh -c 'sleep 60' & echo $!; trap 'exit 9' TERM; echo up; wait"
    signal_running(attempt, text, signal.SIGTERM, by_launcher=True)
    record = attempt.record("rank-3.exit")
    assert (record["status"], record["told"], record["heard"]) == (9, "cleared", False)
    child = int(attempt.text("rank-3.out").split()[0])
    wait_for(lambda: not is_running(child), 5, "the end of the child")


def test_another_signal_is_forwarded_and_ends_nothing(attempt: Attempt) -> None:
    text = "trap 'echo got; exit 4' USR1; echo up; sleep 60 & wait"
    signal_running(attempt, text, signal.SIGUSR1, by_launcher=False)
    assert attempt.text("rank-3.out") == "up\ngot\n"
    record = attempt.record("rank-3.exit")
    assert (record["status"], record["told"], record["heard"]) == (4, "", False)


def test_a_rank_whose_wrapper_is_killed_is_ended_and_recorded(attempt: Attempt) -> None:
    process = attempt.start(*of_shell("echo $$; exec sleep 60"))
    attempt.until("\n", "rank-3.out")
    process.kill()
    process.wait(20)
    attempt.until("}", "rank-3.exit")
    record = attempt.record("rank-3.exit")
    assert (record["status"], record["told"], record["heard"]) == (137, "", False)
    assert record["pid"] == int(attempt.text("rank-3.out"))
    assert attempt.text("rank-3.err") == "hpcrun: the wrapper of this rank on n1 was killed\n"
    assert not is_running(record["pid"])


def test_a_rank_whose_launcher_is_killed_is_ended_and_recorded(attempt: Attempt) -> None:
    rank_words = " ".join([*LAUNCH, "rank", "--", "sleep", "60"])
    launcher = subprocess.Popen(["sh", "-c", f"{rank_words} & wait"], env=attempt.env)
    wait_for(lambda: (attempt.folder / "rank-3.out").exists(), 20, "the program")
    launcher.kill()
    launcher.wait()
    attempt.until("}", "rank-3.exit")
    record = attempt.record("rank-3.exit")
    assert (record["status"], record["told"]) == (137, "cleared")
    assert attempt.text("rank-3.err") == "hpcrun: the launcher of this rank on n1 was killed\n"


# --- a second start ------------------------------------------------------------------------------


def test_each_start_keeps_the_records_of_those_before(attempt: Attempt) -> None:
    (attempt.folder / "flight").mkdir()
    for status in (5, 6, 7):
        (attempt.folder / "flight/rank_3").write_text(f"dump {status}")
        local_rank = "1" if status == 6 else "0"
        done = attempt.launch(*of_shell(f"exit {status}"), LOCAL_RANK=local_rank)
        assert bool(done.stderr) == (status == 7)  # one rank of a node announces it
    statuses = [attempt.record(f"rank-3.exit{end}")["status"] for end in (".1", ".2", "")]
    assert statuses == [5, 6, 7]
    assert attempt.text("flight/rank_3.1") == "dump 6"
    assert attempt.text("flight/rank_3.2") == "dump 7"
    assert not (attempt.folder / "flight/rank_3").exists()
    for log in ("rank-3.out", "rank-3.err"):
        assert attempt.text(log) == "hpcrun: torchrun restart 1\nhpcrun: torchrun restart 2\n"
    assert done.stderr == "hpcrun: torchrun starts the ranks of n1 again: restart 2\n"


@pytest.mark.parametrize(
    ("before", "status"),
    [
        pytest.param('{"status": 5}', 5, id="failed"),
        pytest.param("{}", 143, id="unknown end"),
    ],
)
def test_a_rank_that_must_stop_does_not_start_again(
    attempt: Attempt, before: str, status: int
) -> None:
    (attempt.folder / "rank-3.exit").write_text(before)
    folder = node_folder.make()
    folder.claim("stop-terminated")
    assert attempt.launch(*of_shell("echo started")).returncode == status
    folder.leave("stop-terminated")
    assert attempt.text("rank-3.exit") == before
    assert attempt.text("rank-3.out") == ""


# --- what it records at its start ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("env", "first", "ranks"),
    [
        pytest.param({"LOCAL_WORLD_SIZE": "4"}, 3, 4, id="torchrun"),
        pytest.param({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": ""}, 3, 1, id="unknown number"),
        pytest.param({"LOCAL_WORLD_SIZE": "4", "HPCRUN_NODE_RANKS": "2:6"}, 2, 6, id="roles"),
    ],
)
def test_the_first_rank_of_a_node_records_its_ranks(
    attempt: Attempt, env: dict[str, str], first: int, ranks: int
) -> None:
    attempt.launch(*of_shell("exit 0"), **env)
    record = attempt.record("node-n1.start")
    assert (record["node"], record["first_rank"], record["ranks"]) == ("n1", first, ranks)


@pytest.mark.parametrize(
    ("options", "env"),
    [
        pytest.param((), {"LOCAL_RANK": "1"}, id="torchrun"),
        pytest.param(("--task",), {**TASK, "LOCAL_RANK": "0"}, id="task"),
    ],
)
def test_another_rank_of_a_node_records_no_node(
    attempt: Attempt, options: tuple[str, ...], env: dict[str, str]
) -> None:
    attempt.launch("rank", *options, "--", "true", **env)
    assert not (attempt.folder / "node-n1.start").exists()


def address_of(interface: str) -> str:
    """Return the IPv4 address of an interface by ioctl; empty if it has none."""
    get_address = 0x8915  # SIOCGIFADDR
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("256s", interface.encode())
        try:
            answer = fcntl.ioctl(any_socket, get_address, request)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


def test_the_addresses_of_a_node_are_those_of_its_interfaces() -> None:
    addresses = [address_of(interface) for _, interface in socket.if_nameindex()]
    expected = {address for address in addresses if address and not address.startswith("127.")}
    found = rank._addresses()
    assert expected <= {*found}
    assert len(found) == len({*found})
    assert not any(address.startswith("127.") for address in found)


def test_the_versions_are_those_of_the_program_s_python(attempt: Attempt) -> None:
    attempt.launch("rank", "--", sys.executable, "-Sc", "import time; time.sleep(0.1)", RANK="0")
    attempt.until("}", "versions")
    assert attempt.record("versions")["python"] == "{}.{}.{}".format(*sys.version_info[:3])


def test_a_script_by_the_name_of_python_is_called_once(attempt: Attempt, tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\necho called >>{tmp_path}/calls\nsleep 0.1\n")
    script.chmod(0o755)
    attempt.launch("rank", "--", str(script), RANK="0")
    assert (tmp_path / "calls").read_text() == "called\n"
    assert not (attempt.folder / "versions").exists()


@pytest.mark.parametrize(
    ("mode", "content", "is_binary"),
    [
        pytest.param(0o755, b"\x7fELF\x02\x01", True, id="program"),
        pytest.param(0o755, b"#!/bin/sh\n", False, id="script"),
        pytest.param(0o755, b"", False, id="empty"),
        pytest.param(0o644, b"\x7fELF\x02\x01", False, id="not executable"),
    ],
)
def test_a_program_is_found_where_it_is_no_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, content: bytes, is_binary: bool
) -> None:
    program = tmp_path / "bin/program"
    (tmp_path / "other/program").mkdir(parents=True)
    program.parent.mkdir()
    program.write_bytes(content)
    program.chmod(mode)
    monkeypatch.setenv("PATH", f"{tmp_path}/other:{tmp_path}/missing:{program.parent}")
    expected = str(program) if is_binary else ""
    assert rank._binary("program") == expected
    assert rank._binary(str(program)) == expected
    assert rank._binary("./program") == ""
