"""Sending messages to destinations that do not respond."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from hpcrun.features.notify import send
from hpcrun.features.notify.messages import FAILED, SENT, UNSURE
from hpcrun.features.notify.send import Message, send_message, servers_of
from tests.receivers import http_server


class Clock:
    """The time module of a sender for which the time of all destinations is over when the first one has responded."""

    def __init__(self) -> None:
        self._asked = 0

    def monotonic(self) -> float:
        self._asked += 1
        return time.monotonic() + (send.ALL_S if self._asked > 2 else 0)  # for the deadline, then for each destination


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # apprise imports it
def test_all_destinations_together_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", socket.socket.connect)  # send_message replaces both
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    before = set(threading.enumerate())
    with http_server() as responds, http_server(hangs_s=2) as hangs:
        to = [f"json://127.0.0.1:{server.port}" for server in (responds, hangs, hangs)]
        servers_of(to[0], {})  # loads apprise
        monkeypatch.setattr(send, "time", Clock())
        sent = send_message(
            Message("title", "body"), [to[0], *(f"{to[1]}/{n}" for n in range(3))], {}, run_folder=None, event="test"
        )
        states = [each.state for each in sent]
        for thread in set(threading.enumerate()) - before:
            if "_send_one" in thread.name:
                thread.join()  # nothing of it may be left for the next test
    assert states == [SENT, UNSURE, UNSURE, UNSURE]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
@pytest.mark.parametrize("query", ["", "?redirect=yes"])
@pytest.mark.parametrize("status", [302, 307])
def test_a_destination_that_redirects_is_not_followed(monkeypatch: pytest.MonkeyPatch, status: int, query: str) -> None:
    monkeypatch.setattr(socket.socket, "connect", socket.socket.connect)
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    with http_server() as other, http_server(status, location=f"http://127.0.0.1:{other.port}/") as hook:
        to = f"json://127.0.0.1:{hook.port}/{query}"
        (sent,) = send_message(Message("title", "body"), [to], {}, run_folder=None, event="test")
        assert (len(hook.messages), other.messages, sent.state) == (1, [], FAILED)
