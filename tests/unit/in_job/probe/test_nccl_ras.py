"""Asking NCCL's RAS, from a server that answers as src/ras/client_support.cc does, and from hostile
ones.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from hpcrun.in_job.probe.nccl_ras import (
    MOST,
    PORT,
    address_of,
    ask,
    is_theirs,
    own_address,
    reports,
)
from tests.harness import REPO, wait_for

LAG = (REPO / "tests/data/ras/lag.txt").read_text()
Address = tuple[str, int]
Serve = Callable[[socket.socket], None]


def ras(
    connection: socket.socket, report: str = LAG, version: str = "2", heard: list[str] | None = None
) -> None:
    """Answer as rasClientEventLoop does: commands in any case, and the end of the connection after
    a report.
    """
    with connection.makefile("r", encoding="ascii") as file:
        for line in file:
            command = line.rstrip("\n")
            if heard is not None:
                heard.append(command)
            if command.lower().startswith("client protocol "):
                answer = f"SERVER PROTOCOL {version}\n"
            elif command.lower().startswith("timeout ") and command[8:].isdigit():
                answer = "OK\n"
            elif command.lower() in ("status", "verbose status"):
                for start in range(0, len(report), 100):  # it comes in pieces
                    connection.sendall(report[start : start + 100].encode())
                return
            else:
                answer = f"ERROR: Unknown command {command}\n"
            connection.sendall(answer.encode())


@contextmanager
def server(serve: Serve, family: int = socket.AF_INET) -> Iterator[Address]:
    """Listen on a free port of this machine, and serve each connection in a thread."""
    with socket.socket(family) as listening:
        listening.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        listening.listen()

        def serve_one(connection: socket.socket) -> None:
            with connection, suppress(OSError):  # the client has had enough
                serve(connection)

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(
                        target=serve_one, args=[listening.accept()[0]], daemon=True
                    ).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[:2]
        listening.shutdown(socket.SHUT_RDWR)


def test_the_report_is_what_ras_sends_of_another_version_and_by_ipv6_too() -> None:
    heard: list[str] = []
    with server(lambda connection: ras(connection, heard=heard)) as (_, port):
        assert ask(("localhost", port), 5) == LAG
    assert heard == ["CLIENT PROTOCOL 2", "TIMEOUT 2", "VERBOSE STATUS"]
    with server(lambda connection: ras(connection, version="3"), socket.AF_INET6) as address:
        assert ask(address, 5) == LAG


@pytest.mark.parametrize(
    ("within_s", "seconds"), [(20.9, "10"), (5.9, "2"), (1.5, "1")], ids=["long", "usual", "least"]
)
def test_ras_waits_half_of_the_time_for_a_process(within_s: float, seconds: str) -> None:
    heard: list[str] = []
    with server(lambda connection: ras(connection, heard=heard)) as address:
        # some of the time has passed when it is told
        assert ask(address, within_s) == LAG
    assert heard[1] == f"TIMEOUT {seconds}"


def test_two_reports_are_taken_if_there_is_time_and_none_where_nobody_listens() -> None:
    with server(ras) as address:
        assert reports(address, 6) == [LAG, LAG]
        assert reports(address, 1.5) == [LAG]
    assert reports(address, 1.5) == []
    with pytest.raises(ConnectionRefusedError):
        ask(address, 2)


def test_a_stopped_process_is_passed_over_for_another_one_at_the_port() -> None:
    stopped = iter([True, False])
    with server(lambda connection: time.sleep(30) if next(stopped) else ras(connection)) as address:
        assert ask(address, 5) == LAG


def answers(*parts: bytes, then_s: float = 0.0) -> Serve:
    """Answer each line with the next part, and wait before the end of the connection."""

    def serve(connection: socket.socket) -> None:
        for part in parts:
            connection.recv(1024)
            connection.sendall(part)
        time.sleep(then_s)

    return serve


def slow(connection: socket.socket) -> None:
    for byte in b"SERVER PROTOCOL 2\n" * 100:
        connection.sendall(bytes([byte]))
        time.sleep(0.2)


NOT_RAS: dict[str, Serve] = {
    "silent": answers(then_s=30),
    "slow": slow,
    "closes": answers(b""),
    "of another kind": answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "endless": lambda connection: connection.sendall(b"x" * (64 << 20)),
}


@pytest.mark.parametrize("kind", NOT_RAS)
def test_what_is_not_ras_is_an_error_in_time(kind: str) -> None:
    begun = time.monotonic()
    refusals = r"no response within 2 s|not NCCL's RAS|closed|reset"
    with server(NOT_RAS[kind]) as address, pytest.raises(OSError, match=refusals):
        ask(address, 2)
    assert time.monotonic() - begun < 4


def test_a_report_is_bounded_in_size_and_time_and_cannot_act_on_a_terminal() -> None:
    with server(lambda connection: ras(connection, "x" * (4 * MOST))) as address:
        assert len(ask(address, 20)) == MOST
    begun = time.monotonic()
    with server(
        answers(b"SERVER PROTOCOL 2\n", b"OK\n", b"NCCL version 2.27\n", then_s=30)
    ) as address:
        assert ask(address, 1.5) == "NCCL version 2.27\n"
    assert time.monotonic() - begun < 4
    with server(lambda connection: ras(connection, "a\x1b]0;t\x07\x00\r\n\tb\x7f\n")) as address:
        assert ask(address, 5) == "a?]0;t???\n?b?\n"


def test_the_address_is_that_of_the_job_on_this_machine(subtests: pytest.Subtests) -> None:
    for env, address in (
        ({}, ("localhost", PORT)),
        ({b"NCCL_RAS_ENABLE": b"1"}, ("localhost", PORT)),
        ({b"NCCL_RAS_ENABLE": b"0"}, None),
        ({b"NCCL_RAS_ADDR": b"10.0.0.1:4000"}, ("10.0.0.1", 4000)),
        ({b"NCCL_RAS_ADDR": b"[::1]:4000"}, ("::1", 4000)),
        ({b"NCCL_RAS_ADDR": b"node-1"}, None),
        ({b"NCCL_RAS_ADDR": b"node-1:99999"}, None),
        ({b"NCCL_RAS_ADDR": b""}, ("localhost", PORT)),
        ({b"NCCL_RAS_ADDR": b"localhost:" + b"9" * 5000}, None),
        ({b"NCCL_RAS_ADDR": "localhost:²".encode()}, None),
    ):
        with subtests.test(env=env):
            assert address_of(env) == address
    assert own_address(("localhost", PORT)) == ("localhost", PORT)
    assert own_address(("127.0.0.1", PORT)) == ("127.0.0.1", PORT)
    assert own_address(("192.0.2.1", PORT)) is None


LISTEN = """
import socket, sys, time
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listening.bind(("127.0.0.1", int(sys.argv[1])))
listening.listen()
time.sleep(60)
"""


def test_only_a_port_that_nobody_else_listens_at_is_asked() -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.socket())
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        assert not is_theirs(port, [os.getpid()])
        mine = [subprocess.Popen([sys.executable, "-c", LISTEN, str(port)]) for _ in range(2)]
        for process in mine:
            stack.callback(process.wait)
            stack.callback(process.kill)
        pids = [process.pid for process in mine]
        wait_for(lambda: is_theirs(port, pids), 30, "both to listen")
        assert not is_theirs(port, pids[:1])
        assert not is_theirs(port, [os.getpid(), 2**22 + 1])
        assert not is_theirs(port, [])
