"""Several programs in one job, as real processes of two nodes: addresses, checks, ends, and what a
kill leaves.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.harness import wait_for
from tests.launch.jobs import HOW, LAUNCH, Running, command, environment, job, parent, send

SERVER = """
import http.server, os, sys, threading, time
open("started", "w").write(os.environ["HPCRUN_ROLE_TRAINER_HOSTS"])
server = http.server.HTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving", flush=True)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""
TRAINER = """
import os, sys, time, urllib.request
url = f"http://127.0.0.1:{os.environ['HPCRUN_ROLE_SERVER_PORT']}"
print(urllib.request.urlopen(sys.argv[1]).status, sys.argv[1] == url,
      sys.argv[4], os.environ["NNODES"], os.environ["NODE_RANK"], flush=True)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
"""
OUTLASTS_SERVER = """
import os, sys, time
while not os.path.exists(os.environ["HPCRUN_ATTEMPT_DIR"] + "/rank-0.exit"):
    time.sleep(0.1)
sys.exit(int(sys.argv[1]))
"""
CHILD = "import subprocess, sys; subprocess.run(sys.argv[1:])"


def block(
    name: str,
    task: int,
    *words: str,
    options: tuple[str, ...] = (),
    on_exit: str = "fail",
    slowly: str = "",
    of_node: bool = True,
) -> list[str]:
    """A role of one node, as the script describes it; its launcher may take some time, as torchrun
    does.
    """
    place = (
        "--task",
        str(task),
        "--tasks",
        "1",
        "--first-rank",
        str(task),
        "--ranks",
        "1",
        "--launcher",
        "command",
    )
    slow = ("sh", "-c", f'{slowly}; exec "$@"', "sh") if slowly else ()
    command = (
        *slow,
        *LAUNCH,
        "rank",
        *(["--once"] if of_node else []),
        "--",
        sys.executable,
        *words,
    )
    every = [name, *place, "--on-exit", on_exit, *options, "--", *command]
    return [str(len(every)), *every]


def two(
    folder: Path,
    server: tuple[str, ...] = (SERVER, "{port}", "60", "0"),
    trainer: tuple[str, ...] = (TRAINER, "{server.url}", "0.5", "0", "{{server.url}}"),
    ready: tuple[str, ...] = ("--ready", "http:{port}/", "--ready-timeout", "20"),
    on_exit: str = "fail",
) -> AbstractContextManager[Running]:
    """A server and its trainer."""
    roles = block("server", 0, "-uc", *server, options=ready, on_exit=on_exit)
    roles += block("trainer", 1, "-uc", *trainer, options=("--after", "server"), on_exit="end")
    return job(folder, [], nodes=2, chain=[*LAUNCH, "role", "--", *roles])


def nothing_left(pids: list[int]) -> None:
    wait_for(
        lambda: not [pid for pid in pids if Path(f"/proc/{pid}/exe").exists()],
        40,
        "all processes to end",
    )


def test_a_trainer_starts_when_its_server_is_ready_and_the_server_ends_with_it(
    tmp_path: Path,
) -> None:
    # behind a program that dies of SIGTERM at once: its child gets it, too
    with two(
        tmp_path, server=(CHILD, sys.executable, "-uc", SERVER, "{port}", "60", "0")
    ) as running:
        running.until("serving")
        pids = running.processes()
        assert running.end() == 0
        assert running.out(1).split() == ["200", "True", "{server.url}", "1", "0"]
        assert (tmp_path / "started").read_text() == "127.0.0.1"
        assert running.rank(0)["told"] == "cleared"
        assert running.rank(1)["told"] == ""
        assert running.record["message"] == ""
        assert sorted(path.name for path in (running.attempt / "roles").glob("*.ready")) == [
            "server.ready",
            "trainer.ready",
        ]
        nothing_left(pids)
        assert not (running.attempt / "flight").exists()


@pytest.mark.parametrize(
    ("server", "trainer", "status", "message"),
    [
        (("2", "5"), ("60", "0"), 5, "role server on local-0 ended with status 5, before trainer"),
        (("2", "0"), ("60", "0"), 1, "role server on local-0 ended with status 0, before trainer"),
        (("60", "0"), ("0.5", "3"), 3, "role trainer on local-1 ended with status 3"),
        (("2", "0"), ("4", "0"), 0, ""),  # a server that its clients shut down
    ],
)
def test_the_role_that_ends_the_job_is_named(
    tmp_path: Path, server: tuple[str, str], trainer: tuple[str, str], status: int, message: str
) -> None:
    with two(
        tmp_path, (SERVER, "{port}", *server), (TRAINER, "{server.url}", *trainer, "x")
    ) as running:
        running.until("200", rank=1)
        pids = running.processes()
        assert running.end() == status
        assert running.record["status"] == status
        assert running.record["message"] == message
        nothing_left(pids)


def test_of_two_roles_that_end_the_job_the_later_one_completes(tmp_path: Path) -> None:
    later = "import sys, time; time.sleep(1); print(sys.argv[1])"
    with two(tmp_path, ("print('early')",), (later, "late"), ready=(), on_exit="end") as running:
        assert running.end() == 0
        assert running.out(1) == "late\n"
        assert running.rank(1)["told"] == ""


@pytest.mark.parametrize(("words", "status"), [("open('done', 'w')", 0), ("print('no file')", 1)])
def test_a_role_may_prepare_something_and_end(tmp_path: Path, words: str, status: int) -> None:
    ready = ("--ready", f"file:{tmp_path}/done", "--ready-timeout", "60")
    with two(tmp_path, (words,), ("print('after it')",), ready=ready, on_exit="ignore") as running:
        assert running.end() == status
        assert running.record["message"] == (
            f"role server on local-0 ended with status 0 before it was ready: {ready[1]}"
            if status
            else ""
        )


def test_the_failure_of_a_role_that_is_ignored_is_not_that_of_the_job(tmp_path: Path) -> None:
    trainer = (OUTLASTS_SERVER, "3")
    with two(tmp_path, (SERVER, "{port}", "1", "5"), trainer, on_exit="ignore") as running:
        assert running.end() == 3
        assert running.rank(0)["status"] == 5
        assert running.record["status"] == 3


@pytest.mark.parametrize(
    ("check", "problem"),
    [("tcp:{port}", "Connection refused"), ("file:$HPCRUN_ATTEMPT_DIR/up", "No such file")],
)
def test_a_role_that_is_not_ready_in_time_fails_the_job_with_what_was_checked(
    tmp_path: Path, check: str, problem: str
) -> None:
    server = ("import time; print('loading'); time.sleep(60)",)
    with two(tmp_path, server, ready=("--ready", check, "--ready-timeout", "1")) as running:
        running.until("loading")
        pids = running.processes()
        assert running.end() == 1
        message = running.record["message"]
        assert message.startswith(f"role server on local-0 was not ready after 1 s: {check[:4]}")
        assert problem in message
        assert message.endswith("the last line of its log: loading")
        assert not running.out(1)
        nothing_left(pids)


@pytest.mark.parametrize("whom", ["program", "wrapper", "node"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_kill_of_any_part_of_a_role_fails_the_job_and_leaves_no_process(
    tmp_path: Path, whom: str, rank: int
) -> None:
    with two(tmp_path, trainer=(TRAINER, "{server.url}", "60", "0", "x")) as running:
        running.until("200", rank=1)
        pids = running.processes()
        text = SERVER if rank == 0 else TRAINER
        program = next(
            pid for pid in pids if text[:40] in command(pid) and "launch" not in command(pid)
        )
        wrapper = parent(program)
        send(
            {"program": program, "wrapper": wrapper, "node": parent(wrapper)}[whom], signal.SIGKILL
        )
        assert running.end(60) == 137
        assert running.rank(1 - rank)["told"] in ("TERM", "cleared")
        how = {"node": "has lost its process of hpcrun, which was killed (SIGKILL)"}.get(
            whom, "ended with status 137"
        )
        assert running.record["message"].startswith(
            f"role {('server', 'trainer')[rank]} on local-{rank} {how}"
        )
        nothing_left(pids)


def test_a_node_that_is_killed_before_its_program_starts_is_named(tmp_path: Path) -> None:
    with two(tmp_path, ("import time; print('loading'); time.sleep(60)",)) as running:
        running.until("loading")
        waits = next(
            pid for pid in running.processes() if b"HPCRUN_NODE_RANK=1" in environment(pid)
        )
        send(waits, signal.SIGKILL)
        assert running.end(60) == 137
        assert running.record["message"].startswith(
            "role trainer on local-1 has lost its process of hpcrun"
        )


@pytest.mark.parametrize("how", HOW)
def test_a_role_that_is_ended_while_its_launcher_starts_runs_no_rank(
    tmp_path: Path, how: str
) -> None:
    roles = block("server", 0, "-c", "", slowly="trap '' TERM; touch starts; sleep 3")
    roles += block("trainer", 1, "-c", "import time; time.sleep(60)", on_exit="end")
    with job(tmp_path, [], nodes=2, chain=[*LAUNCH, "role", "--", *roles]) as running:
        wait_for((tmp_path / "starts").exists, 20, "the launcher")
        getattr(running, how)(signal.SIGTERM)
        assert running.end() == 143
        assert not (running.attempt / "rank-0.out").exists()


def test_roles_keep_the_dumps_of_their_own_rank_0_and_of_each_start(tmp_path: Path) -> None:
    """As two roles of torchrun, each of which starts its rank a second time."""
    flight = tmp_path / "run/elements/0/attempts/0/flight"
    text = f"""import os, time
role = os.environ["HPCRUN_ROLE"]
open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"], "x").write(role)
while role == "trainer" and len(os.listdir("{flight}/sampler")) < 2:
    time.sleep(0.1)"""
    roles = []
    for task, name in enumerate(("sampler", "trainer")):
        env = ("--env", "RANK=0", "--env", f"TORCH_FR_DUMP_TEMP_FILE={flight}/rank_")
        roles += block(
            name,
            task,
            "-c",
            text,
            options=env,
            on_exit="ignore" if task == 0 else "end",
            slowly='"$@"',
            of_node=False,
        )
    with job(tmp_path, [], nodes=2, chain=[*LAUNCH, "role", "--", *roles]) as running:
        assert running.end() == 0, running.record
        dumps = {str(path.relative_to(flight)): path.read_text() for path in flight.glob("*/*")}
        assert dumps == {
            f"{role}/{name}": role
            for role in ("sampler", "trainer")
            for name in ("rank_0", "rank_0.1")
        }


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_job_that_ends_while_a_role_waits_leaves_no_process(
    tmp_path: Path, number: int, status: int
) -> None:
    with two(tmp_path, ("import time; print('loading'); time.sleep(60)",)) as running:
        running.until("loading")
        pids = running.processes()
        os.kill(running.process.pid, number)
        assert running.end() == status
        nothing_left(pids)
