"""What Ray gets of a node, and what is left of its files."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcrun.in_job.launch import node_folder, ray
from hpcrun.in_job.launch.rendezvous import ANOTHER_USER, CHANCE
from hpcrun.in_job.preflight.node import free_port
from tests.launch.ray_stub import write_ray
from tests.unit.in_job.attempts import Attempt


@pytest.fixture
def on_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM_", "CUDA_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(tmp_path))
    (tmp_path / "hosts").write_text("a\nb\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ({}, ["--num-cpus=4", "--num-gpus=0"]),  # two nodes of one machine
        ({"SLURM_CPUS_ON_NODE": "6", "SLURM_GPUS_ON_NODE": "2"}, ["--num-cpus=6", "--num-gpus=2"]),
        ({"SLURM_CPUS_PER_TASK": "2", "SLURM_CPUS_ON_NODE": "6"}, ["--num-cpus=2", "--num-gpus=0"]),
        # of which this step may use 8
        ({"SLURM_CPUS_ON_NODE": "64"}, ["--num-cpus=8", "--num-gpus=0"]),
        (
            {"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,GPU-3f"},
            ["--num-cpus=4", "--num-gpus=2"],
        ),
        ({"SLURM_GPUS_ON_NODE": "4", "CUDA_VISIBLE_DEVICES": ""}, ["--num-cpus=4", "--num-gpus=0"]),
    ],
    ids=str,
)
@pytest.mark.usefixtures("on_node")
def test_ray_gets_the_share_of_the_job(
    env: dict[str, str], options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert ray.resources() == options


@pytest.mark.parametrize(
    "env", [{"SLURM_MEM_PER_NODE": "200"}, {"SLURM_MEM_PER_CPU": "50"}], ids=str
)
@pytest.mark.usefixtures("on_node")
def test_the_object_store_is_a_part_of_the_job_s_memory(
    env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    memory, store = (int(option.partition("=")[2]) for option in ray.resources()[2:])
    assert memory == 120 << 20
    assert store == 80 << 20  # Ray's minimum, which is more than its 30 %


def test_a_folder_with_folders_is_removed_and_what_links_lead_to_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/data").write_text("x")
    monkeypatch.setattr(node_folder, "PLACES", (str(tmp_path),))
    folder = node_folder.enter("hpcrun-node-7.0")
    (tmp_path / "hpcrun-node-7.0/r/session/logs").mkdir(parents=True)
    (tmp_path / "hpcrun-node-7.0/r/session/logs/raylet.out").write_text("x")
    (tmp_path / "hpcrun-node-7.0/r/latest").symlink_to("session")
    (tmp_path / "hpcrun-node-7.0/mine").symlink_to(tmp_path / "mine")
    other = node_folder.enter("hpcrun-node-7.0")  # another node on this machine
    folder.leave()
    assert (tmp_path / "hpcrun-node-7.0/r/session").exists()
    other.leave()
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "data"]


# --- one node, with a stub in place of Ray -------------------------------------------------------


def run_ray(attempt: Attempt, tmp_path: Path, text: str, then: str) -> int:
    """Run a program of a shell with a Ray that does something once it listens."""
    write_ray(tmp_path / "packages", then)
    (attempt.folder / "hosts").write_text("n1\n")
    env = {"PYTHONPATH": str(tmp_path / "packages"), CHANCE: "abcd"}
    env["HPCRUN_PORT"] = str(free_port("127.0.0.1"))
    return attempt.launch("ray", "--", "sh", "-c", text, **env).returncode


def test_the_program_of_the_head_runs_beside_ray(attempt: Attempt, tmp_path: Path) -> None:
    text = "echo $RAY_ADDRESS ${MASTER_ADDR-none} $RAY_USAGE_STATS_ENABLED; exit 7"
    assert run_ray(attempt, tmp_path, text, "time.sleep(60)") == 7
    address, master, usage = attempt.text("rank-0.out").split()
    assert address.startswith("127.0.0.1:")
    assert (master, usage) == ("none", "0")
    record = attempt.record("rank-0.exit")
    assert (record["status"], record["told"]) == (7, "")
    assert (attempt.folder / "ray-listens").exists()


def test_a_node_whose_ray_ends_fails_and_shows_why(attempt: Attempt, tmp_path: Path) -> None:
    then = "print('raylet [exit code=-9]', flush=True); time.sleep(1.5); sys.exit(3)"
    assert run_ray(attempt, tmp_path, "exec sleep 60", then) == 1
    assert attempt.record("rank-0.exit")["status"] == 1
    log = attempt.text("rank-0.err").splitlines()
    assert log[-1] == "hpcrun: Ray has ended on n1: raylet ended by signal 9"
    options = ["start", "--block", "--head", "--include-dashboard=false"]
    assert [word for word in options if word in log] == options
    assert [line for line in log if line.startswith("--node-")] == [
        "--node-ip-address=127.0.0.1",
        "--node-name=n1",
    ]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("", ""),
        ("x [exit code=1]\n", ": x ended by exit status 1"),
        ("\x1b[31mgcs_server\x1b[0m [exit code=-6]\n", ": gcs_server ended by signal 6"),
    ],
)
@pytest.mark.parametrize("head", ["n1", "n0"])
def test_the_end_of_ray_is_told(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, output: str, words: str, head: str
) -> None:
    monkeypatch.setenv("HPCRUN_HEAD", head)
    (attempt.folder / "log.out").write_text(output)
    (attempt.folder / "log.err").write_text("error\n")
    node = ray.RayRank.__new__(ray.RayRank)
    node._ray_log = str(attempt.folder / "log")
    # the log of another node's rank has the lines of Ray already
    before = f"error\n{output}" if head == "n1" else ""
    assert node._last_words_of_ray() == f"{before}hpcrun: Ray has ended on n1{words}\n"


def test_a_node_waits_until_the_head_accepts_no_connections(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HPCRUN_PORT", str(server.getsockname()[1]))
        thread = threading.Thread(target=ray._wait_for_end_of_head)
        thread.start()
        for _ in range(2):  # Ray closes an idle connection
            connection, _ = server.accept()
            connection.close()
        assert thread.is_alive()
        last, _ = server.accept()
    last.close()
    thread.join(20)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    ("problem", "is_own"),
    [("", True), ("the program listens elsewhere", True), (ANOTHER_USER, False)],
)
def test_the_head_does_not_give_its_token_to_another_user(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    problem: str,
    is_own: bool,
) -> None:
    monkeypatch.setattr(ray, "problem_of_listeners", lambda port, _: problem)
    assert ray._head_is_own() == is_own
    message = "hpcrun: another user's program listens on port 20001 of n1, which Ray needs\n"
    assert capsys.readouterr().err == ("" if is_own else message)


def test_a_node_alone_has_the_loopback_address(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_NODE_ADDR", "n1")
    (attempt.folder / "hosts").write_text("n1\n")
    assert ray._address() == "127.0.0.1"


def test_the_route_to_another_node_shows_the_address(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCRUN_NODE_ADDR", "n1")
    monkeypatch.setenv("HPCRUN_HOST_SUFFIX", ".9")
    (attempt.folder / "hosts").write_text("n1\n127.0.0\n")
    assert ray._address() == "127.0.0.1"


# --- the wrapper, with small programs in place of Ray and of the program -------------------------


def start(*words: str) -> subprocess.Popen[bytes]:
    """Start a program in a group of its own; if it is "true", wait until it has ended."""
    process = subprocess.Popen(words, start_new_session=True)
    if words == ("true",):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


@pytest.mark.parametrize(
    ("ray_words", "signalled", "end", "log"),
    [
        pytest.param(("sleep", "60"), "", signal.SIGTERM, "", id="Ray runs"),
        pytest.param(("true",), "TERM", signal.SIGTERM, "", id="Ray ended with the job"),
        pytest.param(
            ("true",), "", signal.SIGKILL, "hpcrun: Ray has ended on n1\n", id="Ray ended alone"
        ),
    ],
)
def test_a_program_that_loses_ray_is_killed_once(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    ray_words: tuple[str, ...],
    signalled: str,
    end: int,
    log: str,
) -> None:
    monkeypatch.setenv("HPCRUN_ROLE", "a")
    program = start("sleep", "60")
    beside = start(*ray_words)
    node = ray.RayRank.__new__(ray.RayRank)
    node._rank = 3
    node._pid = program.pid
    node._ray = beside.pid
    node._ray_log = str(attempt.folder / "none")
    node._has_lost_ray = False
    node._signalled = signalled
    node._canary = SimpleNamespace(is_orphan=lambda: False, renew=lambda: None)  # type: ignore[assignment]
    node._insist_at = float("inf")
    node._writer = 0
    node._is_task = False
    node._tick()
    node._tick()
    program.terminate()  # the first of two signals ends it
    beside.kill()
    beside.wait()
    assert program.wait() == -end
    assert attempt.text("rank-3.err") == log


@pytest.mark.parametrize(
    ("head", "signalled", "text", "end"),
    [
        pytest.param("n1", "", "trap 'exit 5' TERM; echo; sleep 60 & wait", 5, id="has time"),
        pytest.param("n1", "TERM", "trap '' TERM; echo; exec sleep 60", -9, id="job ends"),
        pytest.param("n0", "", "trap '' TERM; echo; exec sleep 60", -9, id="no head"),
    ],
)
def test_ray_of_the_head_has_time_to_end_its_actors(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    head: str,
    signalled: str,
    text: str,
    end: int,
) -> None:
    monkeypatch.setenv("HPCRUN_HEAD", head)
    monkeypatch.setattr(ray, "STOP_S", 20.0)
    beside = subprocess.Popen(["sh", "-c", text], stdout=subprocess.PIPE, start_new_session=True)
    assert beside.stdout
    beside.stdout.readline()
    node = ray.RayRank.__new__(ray.RayRank)
    node._ray = beside.pid
    node._signalled = signalled
    monkeypatch.setattr(node, "_clear", lambda: os.killpg(beside.pid, signal.SIGKILL))
    node._end_ray()
    beside.stdout.close()
    assert beside.wait(5) == end


@pytest.mark.parametrize(("has_lost_ray", "status"), [(False, 0), (True, 1)])
def test_a_rank_that_lost_ray_has_failed(attempt: Attempt, has_lost_ray: bool, status: int) -> None:
    node = ray.RayRank.__new__(ray.RayRank)
    node._rank = 3
    node._pid = 9
    node._signalled = ""
    node._links = None
    node._has_lost_ray = has_lost_ray
    node._write_exit(0, heard=False)
    assert attempt.record("rank-3.exit")["status"] == status
