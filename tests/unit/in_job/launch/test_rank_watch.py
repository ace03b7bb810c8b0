"""What the wrapper of a rank makes of signals, of its node and of its program's connections."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from types import SimpleNamespace
from typing import Any

import pytest

from hpcrun.in_job.launch import node_folder, rendezvous
from hpcrun.in_job.launch.node_folder import NodeFolder
from hpcrun.in_job.launch.rank import Rank
from hpcrun.in_job.launch.rendezvous import ListeningSocket, problem_of_listeners
from tests.unit.in_job.attempts import Attempt


def wrapper(**attributes: Any) -> Rank:
    """Return the wrapper of rank 3, of which nothing has started."""
    rank = Rank.__new__(Rank)
    for name, value in {"rank": 3, "pid": 0, **attributes}.items():
        setattr(rank, f"_{name}", value)
    return rank


# --- the connections of its program --------------------------------------------------------------


def test_a_rank_that_is_alone_for_a_minute_is_reported(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = SimpleNamespace(is_alone=True, observe=lambda: None)
    now_s = time.monotonic()
    rank = wrapper(links=links, started_at=now_s, is_reported=False)
    mark = attempt.folder / "rank-3.alone"
    for later_s, is_alone, is_reported in (
        (59, True, False),
        (61, True, True),
        (62, True, True),
        (63, False, False),
        (64, True, True),
    ):
        links.is_alone = is_alone
        monkeypatch.setattr(time, "monotonic", lambda later_s=later_s: now_s + later_s)
        rank._look_for_links()
        assert mark.exists() == is_reported


@pytest.mark.parametrize("is_alone", [True, False])
def test_the_record_says_whether_a_rank_was_alone(attempt: Attempt, is_alone: bool) -> None:
    rank = wrapper(links=SimpleNamespace(is_alone=is_alone), signalled="")
    rank._write_exit(0, heard=False)
    assert attempt.record("rank-3.exit")["alone"] is is_alone


# --- signals -------------------------------------------------------------------------------------


def heard_from(pid: int, number: int = signal.SIGTERM) -> Any:
    return SimpleNamespace(si_pid=pid, si_signo=number)


@pytest.mark.parametrize(
    ("contained", "is_parent", "is_echo"),
    [(False, True, False), (True, True, True), (True, False, False)],
)
def test_a_signal_of_a_container_s_runtime_is_a_copy(
    contained: bool, is_parent: bool, is_echo: bool
) -> None:
    rank = wrapper(contained=contained, is_task=False, heard_at={})
    sender = os.getppid() if is_parent else os.getpid()
    assert rank._is_echo(heard_from(sender)) == is_echo


def test_a_copy_reaches_a_contained_task_within_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rank = wrapper(contained=True, is_task=True, heard_at={})
    now_s = 100.0
    echoes = []
    for later_s, number in ((0, 15), (0.5, 15), (0.6, 10), (2, 15), (3.5, 15)):
        monkeypatch.setattr(time, "monotonic", lambda later_s=later_s: now_s + later_s)
        echoes.append(rank._is_echo(heard_from(1, number)))
    assert echoes == [False, True, False, False, False]


@pytest.mark.parametrize(
    ("files", "signalled"),
    [
        ([], ""),
        (["stop-terminated"], "TERM"),
        (["stop-time_limit"], ""),
        (["stop-terminated", "cleared"], "cleared"),
    ],
)
def test_the_node_tells_why_a_program_was_ended(
    attempt: Attempt, files: list[str], signalled: str
) -> None:
    folder: NodeFolder = node_folder.make()
    for name in files:
        folder.claim(name)
    assert wrapper(folder=folder)._signalled_by_node() == signalled
    folder.leave(*files)


def started() -> subprocess.Popen[bytes]:
    """Start a program in a group of its own."""
    return subprocess.Popen(["sleep", "60"], start_new_session=True)


def first_signal(program: subprocess.Popen[bytes]) -> int:
    """Return the signal that a program has got; SIGINT if it has none yet."""
    program.send_signal(signal.SIGINT)  # the first of two signals ends a program
    return -program.wait()


def canary(*, hears: bool = False, is_orphan: bool = False) -> SimpleNamespace:
    """Return the process that knows what to do if the wrapper is killed."""
    return SimpleNamespace(heard=lambda _: hears, is_orphan=lambda: is_orphan, renew=lambda: None)


@pytest.mark.parametrize(
    ("files", "hears", "got", "is_noted"),
    [
        pytest.param([], False, signal.SIGINT, False, id="runs on"),
        pytest.param(["stop-time_limit"], False, signal.SIGINT, False, id="another stop"),
        pytest.param(["stop-terminated"], False, signal.SIGTERM, True, id="terminated"),
        pytest.param(["stop-terminated"], True, signal.SIGINT, False, id="by the canary"),
        pytest.param(["stop-terminated", "ended-3"], False, signal.SIGINT, True, id="by the node"),
        pytest.param(["stop-terminated", "ended-2"], False, signal.SIGTERM, True, id="another"),
    ],
)
def test_a_program_gets_one_sigterm_that_came_before_it(
    attempt: Attempt, files: list[str], hears: bool, got: int, is_noted: bool
) -> None:
    folder: NodeFolder = node_folder.make()
    for name in files:
        folder.claim(name)
    program = started()
    wrapper(folder=folder, pid=program.pid, canary=canary(hears=hears))._catch_up()
    assert first_signal(program) == got
    assert folder.has("heard-3") == is_noted
    folder.leave(*files)


@pytest.mark.parametrize(
    ("is_orphan", "insist_s", "got", "signalled"),
    [
        pytest.param(False, 100, signal.SIGINT, "", id="runs on"),
        pytest.param(False, -1, signal.SIGKILL, "", id="did not end in time"),
        pytest.param(True, 100, signal.SIGKILL, "cleared", id="launcher killed"),
    ],
)
def test_a_program_is_killed_after_its_time_or_its_launcher(
    attempt: Attempt,
    monkeypatch: pytest.MonkeyPatch,
    is_orphan: bool,
    insist_s: float,
    got: int,
    signalled: str,
) -> None:
    monkeypatch.setenv("HPCRUN_ROLE", "a")
    program = started()
    rank = wrapper(pid=program.pid, canary=canary(is_orphan=is_orphan), signalled="", writer=0)
    rank._is_task = False
    rank._insist_at = time.monotonic() + insist_s
    rank._tick()
    rank._tick()
    assert first_signal(program) == got
    assert rank._signalled == signalled
    # it is told once
    assert attempt.text("rank-3.err").count("the launcher of this rank on n1") == is_orphan


@pytest.mark.parametrize(
    ("number", "hears", "got", "signalled"),
    [
        (signal.SIGTERM, False, signal.SIGTERM, "TERM"),
        (signal.SIGTERM, True, signal.SIGINT, "TERM"),
        (signal.SIGUSR1, False, signal.SIGUSR1, ""),
    ],
)
def test_a_signal_reaches_a_program_by_one_way(
    attempt: Attempt, number: int, hears: bool, got: int, signalled: str
) -> None:
    program = started()
    folder: NodeFolder = node_folder.make()
    rank = wrapper(pid=program.pid, canary=canary(hears=hears), signalled="", folder=folder)
    rank._is_task = False
    rank._contained = False
    rank._on_signal(heard_from(1, number))
    assert first_signal(program) == got
    assert rank._signalled == signalled
    folder.leave()


@pytest.mark.parametrize("before", ["", "TERM"])
def test_a_program_has_its_time_from_the_first_signal_of_its_launcher(
    attempt: Attempt, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    program = started()
    rank = wrapper(pid=program.pid, signalled=before, contained=False, is_task=False)
    rank._insist_at = float("inf")
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    rank._on_signal(heard_from(os.getppid()))
    assert first_signal(program) == signal.SIGTERM
    assert rank._signalled == (before or "cleared")
    first_s = rank._insist_at
    assert 100 < first_s < 200
    monkeypatch.setattr(time, "monotonic", lambda: 101.0)
    rank._on_signal(heard_from(os.getppid()))
    assert rank._insist_at == first_s


# --- who listens where a rank's clients connect --------------------------------------------------


def at(address: str, user: int | None = None) -> ListeningSocket:
    """A socket of this user, or of another one."""
    return ListeningSocket(address=address, user=os.getuid() if user is None else user)


OTHER = os.getuid() + 1
HOST = "10.0.0.1"


@pytest.mark.parametrize(
    ("listeners", "host", "problem"),
    [
        pytest.param([], HOST, None, id="nobody"),
        pytest.param([at(HOST)], HOST, "", id="here"),
        pytest.param([at("0.0.0.0")], HOST, "", id="everywhere"),
        pytest.param([at("0.0.0.0")], "127.0.0.1", "", id="everywhere, for this node"),
        pytest.param(
            [at(HOST), at("127.0.0.1", OTHER)], HOST, "", id="another one for this node alone"
        ),
        pytest.param([at(HOST), at("::", OTHER)], HOST, rendezvous.ANOTHER_USER, id="another one"),
        pytest.param(
            [at("127.0.0.1")],
            HOST,
            f"the program listens on 127.0.0.1, and its clients connect to {HOST}",
            id="for this node alone",
        ),
        pytest.param(
            [at("10.0.0.9"), at("10.0.0.8")],
            HOST,
            f"the program listens on 10.0.0.8, 10.0.0.9, and its clients connect to {HOST}",
            id="elsewhere",
        ),
    ],
)
def test_clients_of_a_port_must_reach_this_user_alone(
    monkeypatch: pytest.MonkeyPatch,
    listeners: list[ListeningSocket],
    host: str,
    problem: str | None,
) -> None:
    monkeypatch.setattr(rendezvous, "listeners_of", lambda _: listeners)
    assert problem_of_listeners(8000, host) == problem


def test_a_socket_that_listens_is_found_with_its_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert rendezvous.listeners_of(port) == [at("127.0.0.1")]
        with socket.create_connection(("127.0.0.1", port)):
            assert len(rendezvous.listeners_of(port)) == 1
    assert rendezvous.listeners_of(port) == []
