"""When a role is ready: what its check accepts, and how long an answer may take."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpcrun.in_job.launch import rendezvous
from hpcrun.in_job.launch.start_roles import why_not_ready

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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can listen as another user")
def test_the_listener_of_another_user_is_not_the_role() -> None:
    reader, writer = os.pipe()
    other = os.fork()  # a new program might not be there for this user
    if other == 0:
        os.setuid(NOBODY)
        with socket.create_server(("127.0.0.1", 0)) as server:
            os.write(writer, str(server.getsockname()[1]).encode())
            time.sleep(60)
        os._exit(0)
    port = int(os.read(reader, 10))
    assert why_not_ready(f"tcp:{port}", "127.0.0.1") == "another user listens on this port"
    os.kill(other, signal.SIGKILL)
    os.waitpid(other, 0)


def test_a_port_outside_of_a_range_that_others_hold_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("", 0)) as taken:
        monkeypatch.setattr(rendezvous, "FIRST", taken.getsockname()[1])
        monkeypatch.setattr(rendezvous, "SPAN", 1)
        assert rendezvous.free_port(7) != taken.getsockname()[1]
