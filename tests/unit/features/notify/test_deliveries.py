"""Messages: each is claimed by one process, never sent twice, and sent to destinations that may not
respond.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hpcrun.features.notify import send
from hpcrun.features.notify.deliveries import (
    CLAIMED,
    FAILED,
    SENT,
    UNKNOWN,
    UNREACHABLE,
    UNSURE,
    UNSURE_AFTER_S,
    MessageClaim,
    deliveries,
    delivery_lines,
    unclaimed,
)
from hpcrun.features.notify.send import Message, send_message, servers_of
from hpcrun.job.run_paths import RunFolder
from tests.receivers import http_server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    RunFolder(tmp_path).messages().mkdir()
    return tmp_path


def test_one_of_many_processes_may_send(folder: Path) -> None:
    def claim(_: int) -> bool:
        try:
            MessageClaim(folder, "finished", "$A")
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(claim, range(64))) == 1
    assert unclaimed(folder, "finished", ["$A", "$B"]) == ["$B"]
    assert unclaimed(folder, "started", ["$A"]) == ["$A"]


def test_what_became_of_each_message_is_kept(folder: Path) -> None:
    MessageClaim(folder, "started", "$A").close(SENT)
    MessageClaim(folder, "finished", "$A").close(FAILED, "error=500")
    MessageClaim(folder, "finished", "$B").close(UNREACHABLE, "no route")
    assert [
        (each.event, each.to, each.state, each.reason) for each in deliveries(folder, time.time())
    ] == [
        ("started", "$A", SENT, ""),
        ("finished", "$A", FAILED, "error=500"),
        ("finished", "$B", UNREACHABLE, "no route"),
    ]
    assert unclaimed(folder, "finished", ["$A", "$B"]) == ["$B"]


def test_a_sender_that_was_killed_leaves_a_message_that_may_not_have_arrived(folder: Path) -> None:
    MessageClaim(folder, "finished", "$A")
    (path,) = RunFolder(folder).messages().iterdir()
    cut = RunFolder(folder).messages() / f"started{path.suffix}"
    cut.write_text("")
    os.utime(cut, (1, 1))
    now_s = time.time()
    states = {each.event: each.state for each in deliveries(folder, now_s)}
    assert states == {"started": UNSURE, "finished": CLAIMED}
    assert {each.state for each in deliveries(folder, now_s + UNSURE_AFTER_S + 1)} == {UNSURE}
    assert unclaimed(folder, "finished", ["$A"]) == []


def test_a_run_without_messages_has_none(tmp_path: Path) -> None:
    assert deliveries(tmp_path, 0.0) == []


def test_a_message_that_could_not_be_sent_is_shown_until_another_command_sends_it(
    folder: Path,
) -> None:
    for event in ("started", "attempt-0", "attempt-1", "idle-1"):
        MessageClaim(folder, event, "$A").close(UNREACHABLE, "A Connection error occurred")
    assert unclaimed(folder, "started", ["$A"]) == ["$A"]
    (line,) = delivery_lines(deliveries(folder, time.time()))
    assert sorted(line.partition(" NOT")[0].split(", ")) == ["failed (2)", "idle", "started"]
    assert line.endswith(" NOT sent to $A: cannot connect")
    for event in ("started", "attempt-0", "attempt-1", "idle-1"):
        MessageClaim(folder, event, "$A").close(SENT)
    assert delivery_lines(deliveries(folder, time.time())) == [
        "started, failed (2), idle sent to $A"
    ]


@pytest.mark.parametrize(
    ("state", "is_sent_again"),
    [(UNREACHABLE, True), (UNKNOWN, True), (UNSURE, False), (FAILED, False), (SENT, False)],
)
def test_a_message_that_has_not_left_its_host_is_sent_again(
    folder: Path, state: str, is_sent_again: bool
) -> None:
    MessageClaim(folder, "finished", "$A").close(state, "no such destination")
    assert unclaimed(folder, "finished", ["$A"]) == (["$A"] if is_sent_again else [])
    assert [each.state for each in deliveries(folder, time.time())] == [state]


class Clock:
    """The time module of a sender for which the time of all destinations is over when the first one
    has responded.
    """

    def __init__(self) -> None:
        self._asked = 0

    def monotonic(self) -> float:
        self._asked += 1
        # for the deadline, then for each destination
        return time.monotonic() + (send.ALL_S if self._asked > 2 else 0)


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")  # apprise imports it
def test_all_destinations_together_have_one_deadline(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # send_message replaces both
    monkeypatch.setattr(socket.socket, "connect", socket.socket.connect)
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    before = set(threading.enumerate())
    with http_server() as responds, http_server(hangs_s=2) as hangs:
        to = [f"json://127.0.0.1:{server.port}" for server in (responds, hangs, hangs)]
        servers_of(to[0], {})  # loads apprise
        monkeypatch.setattr(send, "time", Clock())
        sent = send_message(
            Message("title", "body"),
            [to[0], *(f"{to[1]}/{n}" for n in range(3))],
            {},
            run_folder=folder,
            event="test",
        )
        states = [each.state for each in sent]
        for thread in set(threading.enumerate()) - before:
            if "_run" in thread.name:
                thread.join()  # nothing of it may be left for the next test
    assert states == [SENT, UNSURE, UNSURE, UNSURE]


@pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")
@pytest.mark.parametrize("query", ["", "?redirect=yes"])
@pytest.mark.parametrize("status", [302, 307])
def test_a_destination_that_redirects_is_not_followed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, query: str
) -> None:
    monkeypatch.setattr(socket.socket, "connect", socket.socket.connect)
    monkeypatch.setattr(socket, "getaddrinfo", socket.getaddrinfo)
    with (
        http_server() as other,
        http_server(status, location=f"http://127.0.0.1:{other.port}/") as hook,
    ):
        to = f"json://127.0.0.1:{hook.port}/{query}"
        (sent,) = send_message(Message("title", "body"), [to], {}, run_folder=folder, event="test")
        assert len(hook.messages) == 1
        assert other.messages == []
        assert sent.state == FAILED
