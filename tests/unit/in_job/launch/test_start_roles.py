"""When a role is ready: what its check accepts, and how long an answer may take."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpcrun.in_job.launch import node_folder, rendezvous, start_roles
from hpcrun.in_job.launch.start_roles import RoleBlock, RoleNode, why_not_ready
from tests.unit.in_job.attempts import Attempt

NOBODY = 65534


@contextmanager
def answering(answer: bytes, pause_s: float = 0.0) -> Iterator[int]:
    """A server that answers each connection with these bytes, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                    with client:
                        client.recv(1024)  # what is not read would reset the connection
                        for byte in answer:
                            client.send(bytes([byte]))
                            time.sleep(pause_s)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.0 301 Moved\r\n", ""),
        (b"HTTP/1.1 399 Odd\r\n\r\n", ""),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "status 400"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "status 404"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", "status 503"),
        (b"SSH-2.0-OpenSSH\r\n", "the answer is not HTTP"),
    ],
)
def test_the_status_line_decides(answer: bytes, problem: str) -> None:
    with answering(answer) as port:
        assert why_not_ready(f"http:{port}/health", "127.0.0.1") == problem


def test_a_server_of_one_connection_gets_none_from_the_check() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert why_not_ready(f"tcp:{server.getsockname()[1]}", "127.0.0.1") == ""
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_an_answer_that_drips_ends_the_check_in_time() -> None:
    with answering(b"x" * 1000, pause_s=0.3) as port:
        began = time.monotonic()
        assert why_not_ready(f"http:{port}/", "127.0.0.1") == "timed out"
        assert time.monotonic() - began < 5


NODE = "10.9.8.7"
OTHER_NETWORK = "10.9.7.7"
LISTENERS = """
import os, signal, socket, sys, time
from hpcrun.in_job.launch.start_roles import why_not_ready
kind, host, *places = sys.argv[1:]
for place in places:
    user, _, address = place.partition("@")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setuid(int(user))
        with socket.socket(family) as server:
            if family == socket.AF_INET6:
                server.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            server.bind((address, 8000))
            server.listen()
            os.write(writer, b".")
            while True:
                client = server.accept()[0]
                client.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
    os.read(reader, 1)
print(why_not_ready(f"{kind}:8000", host))
os.killpg(0, signal.SIGKILL)
"""
"""Prints whether a role is ready while users listen at some addresses of the node: USER@ADDRESS."""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can listen as another user")
@pytest.mark.parametrize("kind", ["tcp", "http"])
@pytest.mark.parametrize(
    ("listeners", "host", "problem"),
    [
        ([f"0@{NODE}"], NODE, ""),
        (["0@0.0.0.0"], NODE, ""),
        (["0@127.0.0.1"], "127.0.0.1", ""),
        (["0@0.0.0.0"], "127.0.0.1", ""),
        ([f"0@{NODE}", f"{NOBODY}@127.0.0.1"], NODE, ""),
        (["0@127.0.0.1", f"{NOBODY}@{NODE}"], "127.0.0.1", ""),
        (["0@127.0.0.1", f"{NOBODY}@{NODE}"], NODE, "another user listens on this port"),
        ([f"0@{NODE}", f"{NOBODY}@{OTHER_NETWORK}"], NODE, "another user listens on this port"),
        (["0@0.0.0.0", f"{NOBODY}@::"], NODE, "another user listens on this port"),
        ([f"{NOBODY}@127.0.0.1"], "127.0.0.1", "another user listens on this port"),
        (
            ["0@127.0.0.1"],
            NODE,
            f"the program listens on 127.0.0.1, and its clients connect to {NODE}",
        ),
        (
            [f"0@{OTHER_NETWORK}"],
            NODE,
            f"the program listens on {OTHER_NETWORK}, and its clients connect to {NODE}",
        ),
        ([], NODE, "Connection refused"),
    ],
)
def test_a_role_is_ready_where_its_user_alone_has_the_address_of_its_clients(
    kind: str, listeners: list[str], host: str, problem: str
) -> None:
    setup = "ip link set lo up; for address in $1; do ip address add $address dev lo; done; shift"
    argv = ["unshare", "--net", "sh", "-ec", f'{setup}; exec setsid -w "$@"', "sh"]
    argv += [f"{NODE} {OTHER_NETWORK}", sys.executable, "-uc", LISTENERS, kind, host, *listeners]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert (done.stdout.removesuffix("\n"), done.stderr) == (problem, "")


def test_a_port_outside_of_a_range_that_others_hold_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("", 0)) as taken:
        monkeypatch.setattr(rendezvous, "FIRST", taken.getsockname()[1])
        monkeypatch.setattr(rendezvous, "SPAN", 1)
        assert rendezvous.free_port(7) != taken.getsockname()[1]


# --- roles that share a node ---------------------------------------------------------------------


def role(name: str, gpus: str, first_rank: int, ranks: int) -> RoleBlock:
    """A role that has some GPUs of a node: ``FIRST:COUNT:OF``."""
    options = f"--task 0 --tasks 1 --first-rank {first_rank} --ranks {ranks} --gpus {gpus}"
    return RoleBlock([name, *options.split(), "--launcher", "once", "--on-exit", "end", "--", "x"])


SERVER = role("server", "0:1:4", 0, 1)
TRAINER = role("trainer", "1:3:4", 1, 3)


@pytest.fixture
def cpus(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The CPUs of this process, of a node with GPUs."""
    cpus: set[int] = set()

    def set_affinity(_: int, numbers: list[int]) -> None:
        cpus.clear()
        cpus.update(numbers)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)
    monkeypatch.setattr(os, "sched_setaffinity", set_affinity)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("HPCRUN_NODE_RANKS", "")
    return cpus


def take_share(role: RoleBlock) -> None:
    node = RoleNode.__new__(RoleNode)
    node._role = role
    node._roles = [SERVER, TRAINER]
    node._take_share()


@pytest.mark.parametrize(
    ("number", "of_server", "of_trainer"),
    [
        (8, {0, 1}, {2, 3, 4, 5, 6, 7}),
        (4, {0}, {1, 2, 3}),
        (2, {0}, {0, 1}),
        (1, {0}, {0}),
    ],
)
def test_each_role_of_a_node_has_its_part_of_the_cpus(
    cpus: set[int], number: int, of_server: set[int], of_trainer: set[int]
) -> None:
    for role, expected in ((SERVER, of_server), (TRAINER, of_trainer)):
        cpus.update(range(number))
        take_share(role)
        assert cpus == expected


def test_each_role_of_a_node_has_its_gpus(cpus: set[int], monkeypatch: pytest.MonkeyPatch) -> None:
    cpus.update(range(8))
    take_share(TRAINER)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "1,2,3"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    take_share(SERVER)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_role_keeps_gpus_that_are_its_alone(
    cpus: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On this machine, hpcrun has given each role its GPUs."""
    cpus.update(range(8))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
    take_share(TRAINER)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "5,6,7"


def test_the_ranks_of_a_node_are_those_of_all_its_roles(cpus: set[int]) -> None:
    cpus.update(range(8))
    take_share(TRAINER)
    assert os.environ["HPCRUN_NODE_RANKS"] == "0:4"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_does_not_make_a_role_ready(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    assert why_not_ready(f"file:{ready}", "n1") == "No such file or directory"
    ready.touch()
    assert why_not_ready(f"file:{ready}", "n1") == ""
    os.chown(ready, os.getuid() + 1, -1)
    assert why_not_ready(f"file:{ready}", "n1") == "another user owns this file"


# --- texts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("--url={server.url}", "--url=http://n1:8000"),
        ("{server.host}:{server.port}", "n1:8000"),
        ("{port}", "9000"),
        ("{{server.url}}", "{server.url}"),
        ("${port}", "${port}"),
        ("{other.url} {serverxurl}", "{other.url} {serverxurl}"),
    ],
)
def test_the_addresses_of_roles_are_filled_in(text: str, filled: str) -> None:
    places = {"server.url": "http://n1:8000", "server.host": "n1", "server.port": "8000"}
    assert start_roles.fill(text, {**places, "port": "9000"}) == filled


@pytest.mark.parametrize(
    ("out", "err", "line"),
    [
        ("", "", "(it is empty)"),
        ("a\nb\n", "\n", "b"),
        ("out\n", "first\nlast\n\n", "last"),
        ("", "red \x1b[31m", "red ?[31m"),
        ("", "x" * 300, "x" * 200),
    ],
)
def test_the_last_line_of_a_log_is_shown(attempt: Attempt, out: str, err: str, line: str) -> None:
    (attempt.folder / "rank-3.out").write_text(out)
    (attempt.folder / "rank-3.err").write_text(err)
    assert start_roles.last_line(3) == line


def test_a_role_is_as_the_script_describes_it() -> None:
    place = "--task 2 --tasks 3 --first-rank 8 --ranks 12 --launcher torchrun --on-exit fail"
    more = "--ready tcp:{port} --ready-timeout 1.5 --after a,b --gpus 0:1:4"
    words = ["actor", *place.split(), *more.split(), "--env", "A=b=c", "--", "x", "--", "y"]
    block = RoleBlock(words)
    assert (block.name, block.command, block.on_exit) == ("actor", ["x", "--", "y"], "fail")
    assert (block.tasks, block.ranks) == (range(2, 5), range(8, 20))
    assert (block.ready, block.ready_timeout_s) == ("tcp:{port}", 1.5)
    assert (block.after, block.gpus, block.by_torchrun) == (["a", "b"], "0:1:4", True)
    assert block.env == {"A": "b=c"}
    assert (SERVER.after, SERVER.ready, SERVER.by_torchrun) == ([], "", False)


# --- its end -------------------------------------------------------------------------------------


def ending(attempt: Attempt, on_exit: str) -> RoleNode:
    """Return the process of a server, whose program has ended, beside a trainer that decides."""
    place = "--task 0 --tasks 1 --first-rank 0 --ranks 1 --launcher once --on-exit"
    (attempt.folder / "roles").mkdir()
    node = RoleNode.__new__(RoleNode)
    node._role = RoleBlock(["server", *place.split(), on_exit, "--", "x"])
    node._roles = [node._role, TRAINER]
    node._shared = str(attempt.folder / "roles")
    node._failure = ""
    node._is_decided = False
    node._is_signalled = False
    node._canary = SimpleNamespace(is_orphan=lambda: False)  # type: ignore[assignment]
    return node


@pytest.mark.parametrize(
    ("on_exit", "status", "done_s", "expected", "problem"),
    [
        pytest.param("fail", 0, 4.0, 0, "", id="shut down by its client"),
        pytest.param("fail", 0, 6.0, 1, "ended with status 0, before trainer", id="too early"),
        pytest.param("fail", 3, 0.0, 0, "", id="failed behind its client"),
        pytest.param("fail", 3, 4.0, 3, "ended with status 3, before trainer", id="failed"),
        pytest.param("ignore", 3, 9.0, 0, "", id="ignored"),
    ],
)
def test_a_server_may_end_five_seconds_before_its_client(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    on_exit: str,
    status: int,
    done_s: float,
    expected: int,
    problem: str,
) -> None:
    node = ending(attempt, on_exit)
    now_s = [0.0]

    def sleep(seconds: float) -> None:
        now_s[0] += seconds
        if now_s[0] >= done_s:
            (attempt.folder / "roles/trainer.done-0").touch()

    sleep(0.0)
    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    assert node._meaning(status) == expected
    assert node._failure == (f"role server on n1 {problem}" if problem else "")


def test_a_role_that_fails_while_the_job_is_stopped_says_nothing(attempt: Attempt) -> None:
    node = ending(attempt, "fail")
    (attempt.folder / "stop/terminated").touch()
    assert node._meaning(3) == 3
    assert node._failure == ""


@pytest.mark.parametrize(
    ("has_got_sigterm", "later_s", "got"),
    [
        pytest.param(False, 0, signal.SIGTERM, id="first"),
        pytest.param(True, 24, signal.SIGINT, id="it may still save"),
        pytest.param(True, 26, signal.SIGKILL, id="out of time"),
    ],
)
def test_a_program_that_is_not_needed_has_25_seconds_to_end(
    attempt: Attempt, has_got_sigterm: bool, later_s: float, got: int
) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as program:
        node = ending(attempt, "fail")
        node._folder = node_folder.make()
        node._folder.claim(f"rank-0.{program.pid}")
        node._folder.claim("rank-1.1")  # of another role
        node._kill_at = float("inf")
        node._terminated = {program.pid} if has_got_sigterm else set()
        node._terminate(100.0)
        node._terminate(100.0 + later_s)
        program.send_signal(signal.SIGINT)  # the first of two signals ends it
    assert program.returncode == -got
    assert node._folder.has("cleared") == (not has_got_sigterm)
    assert node._terminated == {program.pid}
