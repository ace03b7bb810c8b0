"""Whether a program has connected to another one, as its sockets show."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcrun.in_job.launch.rank_links import SETTLED, RankLinks

PROGRAM = """
import mmap, socket, subprocess, sys
kept = []
for path in sys.argv[2:]:
    file = open(path, "rb")
    kept.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
if sys.argv[1] == "itself":
    server = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    kept.append(socket.create_connection(("127.0.0.1", server.getsockname()[1])))
    kept.append(server.accept())
elif sys.argv[1].isdigit():
    kept.append(socket.create_connection(("127.0.0.1", int(sys.argv[1]))))
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def started(connects: str, *libraries: Path, behind_a_shell: bool = False) -> Iterator[int]:
    for library in libraries:
        library.write_bytes(b"0")
    command = [sys.executable, "-c", PROGRAM, connects, *map(str, libraries)]
    if behind_a_shell:
        command = ["sh", "-c", '"$@"; exit', "sh", *command]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.communicate()


def looked_at(pid: int, times: int = SETTLED + 1) -> RankLinks:
    links = RankLinks(pid)
    for _ in range(times):
        links.observe()
    return links


@pytest.mark.parametrize("connects", ["no", "itself"])
def test_a_rank_that_connects_to_none_but_itself_is_alone(tmp_path: Path, connects: str) -> None:
    with started(connects, tmp_path / "libtorch_cpu.so", behind_a_shell=True) as pid:
        assert looked_at(pid).is_alone
        assert not looked_at(pid, SETTLED).is_alone  # it may still be importing


def test_a_rank_with_a_connection_is_not_alone_and_stays_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        with started(port, tmp_path / "libtorch_cpu.so", behind_a_shell=True) as pid:
            links = looked_at(pid)
            assert not links.is_alone
    links.observe()
    assert not links.is_alone


def test_of_programs_without_torch_or_with_mpi_nothing_is_said(tmp_path: Path) -> None:
    with started("no") as pid:
        assert not looked_at(pid).is_alone
    with started("no", tmp_path / "libtorch_cpu.so", tmp_path / "libmpi.so.40") as pid:
        assert not looked_at(pid).is_alone
    assert not looked_at(pid).is_alone  # it has ended
