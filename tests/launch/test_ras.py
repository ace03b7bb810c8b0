"""What explain --stacks hears from the RAS of a job's NCCL: a program in the job that answers as
NCCL does.
"""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from hpcrun.explain.diagnosis.nccl_report import ras_remarks
from hpcrun.explain.stacks import Answers, read_answers
from hpcrun.machine.process import Completed
from tests.harness import REPO, wait_for
from tests.launch.jobs import PROBE, Running, job, python
from tests.remote import free_port

ANSWERS = """
import os, socket, sys
listening = socket.socket()
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
listening.bind(("127.0.0.1", int(os.environ["NCCL_RAS_ADDR"].rpartition(":")[2])))
listening.listen()
print("go", flush=True)
report = open(sys.argv[1]).read().replace("process 1650386", "process %d" % os.getpid())
while True:
    connection, _ = listening.accept()
    with connection, connection.makefile("r") as lines:
        for line in lines:
            if line == "VERBOSE STATUS\\n":
                connection.sendall(report.encode())
                break
            connection.sendall(b"SERVER PROTOCOL 2\\n" if line.startswith("CLIENT") else b"OK\\n")
"""
LAG = REPO / "tests/data/ras/lag.txt"


def asked(running: Running) -> Answers:
    """What the program on the node says."""
    command = [*PROBE, str(running.attempt)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return read_answers(Completed("stacks", 0, done.stdout, done.stderr))


def answered(running: Running, kind: str) -> Answers:
    """What the program says once it has an answer of this kind: a busy node may be late."""

    def with_answer() -> Answers | None:
        answers = asked(running)
        return answers if getattr(answers, kind) else None

    return wait_for(with_answer, 60, f"an answer with {kind}")


def test_the_ras_of_the_job_is_asked_twice_and_its_processes_are_ranks(tmp_path: Path) -> None:
    env = {"NCCL_RAS_ADDR": f"localhost:{free_port()}"}
    with job(tmp_path, [*python(tmp_path, ANSWERS), str(LAG)], env=env) as running:
        running.until("go")
        found = answered(running, "ras")
    said = ras_remarks(found.ras, found.rank_of)
    assert len(found.ras) == 2
    assert said[1].startswith(
        "rank 0 has launched AllReduce 60 last, 7 other ranks AllReduce 64 (NCCL communicator"
    )


def test_another_program_at_the_port_is_not_asked(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        env = {"NCCL_RAS_ADDR": f"localhost:{other.getsockname()[1]}"}
        program = python(tmp_path, "import time\nprint('go', flush=True)\ntime.sleep(60)\n")
        with job(tmp_path, program, env=env) as running:
            running.until("go")
            found = answered(running, "ranks")
        other.setblocking(False)
        assert found.ras == ()
        assert len(found.ranks) == 1
        with pytest.raises(BlockingIOError):
            other.accept()
