"""Sending messages to destinations that do not respond."""

from __future__ import annotations

import socket
import time

import pytest

from hpcrun.actions.notify import send
from hpcrun.actions.notify.send import Message, send_message
from hpcrun.runs.messages import UNSURE
from tests.receivers import http_server


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # apprise imports it
def test_all_destinations_together_have_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", socket.socket.connect)  # send_message replaces both
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    monkeypatch.setattr(send, "ALL_S", 0.5)
    with http_server(hangs_s=5) as hangs:
        to = [f"json://127.0.0.1:{hangs.port}/{number}" for number in range(6)]
        began = time.monotonic()
        sent = send_message(Message("title", "body"), to, {}, run_folder=None, event="test")
        took_s = time.monotonic() - began
    assert [(each.to, each.state) for each in sent] == [(each, UNSURE) for each in to]
    assert took_s < 2
