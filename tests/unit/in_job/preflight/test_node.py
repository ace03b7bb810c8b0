"""What a node finds: its peers over real sockets, and what driver and kernel say, as recorded."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.in_job.preflight.node import (
    Door,
    LocalNode,
    NodeReport,
    Ranks,
    ask,
    free_port,
    main,
    parse_ecc,
    parse_rows,
    parse_xids,
    reach,
    resolve,
)


@pytest.fixture
def nodes(tmp_path: Path) -> Callable[[int], LocalNode]:
    """The nodes of a local job of three, by rank."""
    (tmp_path / "hosts").write_text("local-0\nlocal-1\nlocal-2\n")
    job = {
        "HPCRUN_ATTEMPT_DIR": str(tmp_path),
        "HPCRUN_NODE_ADDR": "127.0.0.1",
        "HPCRUN_JOB_ID": "L1",
    }
    job["HPCRUN_PORT"] = str(free_port("127.0.0.1"))
    return lambda rank: LocalNode(
        {**job, "HPCRUN_NODE": f"local-{rank}", "HPCRUN_NODE_RANK": str(rank)}
    )


def test_a_node_that_cannot_write_in_the_runs_folder_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text("a\n")
    (tmp_path / "preflight").write_text("no folder")
    job = {"ATTEMPT_DIR": str(tmp_path), "NODE": "a", "NODE_RANK": "0", "NODE_ADDR": "a"}
    for name, value in {**job, "JOB_ID": "7", "PORT": "20001"}.items():
        monkeypatch.setenv(f"HPCRUN_{name}", value)
    with pytest.raises(SystemExit, match=r"^hpcrun: a cannot write in the run's folder "):
        main()


def test_a_node_is_reached_once_it_listens_and_given_up_where_it_does_not(
    nodes: Callable[[int], LocalNode],
) -> None:
    assert reach(nodes(0), 1, time.monotonic() + 0.5) == {"error": "Connection refused"}
    threading.Timer(0.5, lambda: Door(nodes(1))).start()
    answer = reach(nodes(0), 1, time.monotonic() + 5)
    assert answer["ms"] < 1000
    assert abs(answer["clock_s"]) < 1


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH_9.2\r\n", b"null\n", b'{"node": "local-2", "job": "L1"}\n', b""]
)
def test_another_program_at_the_port_is_no_node(
    nodes: Callable[[int], LocalNode], answer: bytes
) -> None:
    node = nodes(0)
    with socket.create_server((node.address(1), node.port)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises((ValueError, OSError)):
            ask(node, 1)
        thread.join()


def test_the_time_in_a_step_counts_from_its_beginning(
    nodes: Callable[[int], LocalNode], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = 'import sys, time\ntime.sleep(1)\nprint(\'{"doing": "gemm"}\', flush=True)\n'
    (tmp_path / "rank.py").write_text(
        step + "print('{\"right\": true}', flush=True)\nsys.stdin.read()\n"
    )
    monkeypatch.setattr("hpcrun.in_job.preflight.node.__file__", str(tmp_path / "node.py"))
    node = nodes(0)
    node.folder.mkdir()
    ranks = Ranks(node, 1, 0)
    assert ranks.wait("gemm", time.monotonic() + 20)
    (said,) = ranks.results()
    ranks.end()
    assert not ranks.wait("done", time.monotonic() + 20)
    assert said["for_s"] < 0.9


def test_what_is_not_a_node_s_question_ends_no_door(nodes: Callable[[int], LocalNode]) -> None:
    node = nodes(1)
    Door(node)
    for said in (b"GET / HTTP/1.0\r\n\r\n", b"[]\n", b"", b"\xff\xfe\n"):
        with socket.create_connection((node.address(1), node.port), timeout=5) as connection:
            connection.sendall(said)
    assert "ms" in reach(nodes(0), 1, time.monotonic() + 5)


def test_of_many_nodes_each_connects_to_some_and_to_the_first(
    nodes: Callable[[int], LocalNode],
) -> None:
    node = nodes(0)
    node.hosts, node.rank = [f"n{number}" for number in range(500)], 100
    assert node.peers() == [0, *range(101, 164)]
    node.hosts, node.rank = ["n0", "n1", "n2"], 1
    assert node.peers() == [0, 2]


def test_what_the_resolver_the_driver_and_the_kernel_say() -> None:
    assert resolve("localhost")
    assert isinstance(resolve("no-such-host.invalid"), str)
    assert parse_ecc("00000000:07:00.0, 0\n00000000:0F:00.0, 3\n00000000:47:00.0, [N/A]\n") == [
        0,
        3,
    ]
    assert parse_rows("00000000:07:00.0, No, No\n00000000:0F:00.0, Yes, No\n") == [
        ["No", "No"],
        ["Yes", "No"],
    ]
    assert parse_ecc("No devices were found\n") == []
    assert parse_rows("No devices were found\n") == []
    log = (
        "[ 12.3] NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for "
        "remapping\n"
        "kernel: NVRM: Xid (PCI:0000:b4:00): 79, GPU has fallen off the bus.\n"
        "kernel: NVRM: Xid (PCI:0000:b4:00): 79, GPU has fallen off the bus.\n"
    )
    assert parse_xids(log) == [63, 79]


def test_a_report_is_whole_at_every_moment(tmp_path: Path) -> None:
    report = NodeReport(tmp_path / "n0.json", node="n0")
    for number in range(3):
        report.put(step=number)
        assert json.loads((tmp_path / "n0.json").read_text()) == {"node": "n0", "step": number}
    assert [path.name for path in tmp_path.iterdir()] == ["n0.json"]
