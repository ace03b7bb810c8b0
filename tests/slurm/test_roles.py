"""Several programs in one job on a real Slurm: status and accounting, failures, requeue, and what
is left behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.harness import wait_for
from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, attempt, begun, processes, without

pytestmark = pytest.mark.slurm

SCRIPTS = {
    "serve.py": """
import http.server, sys, threading, time
server = http.server.HTTPServer(("", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("serving", flush=True)
time.sleep(float(sys.argv[2]))
sys.exit(int(sys.argv[3]))
""",
    "train.py": """
import os, sys, time, urllib.request
import hpcrun_runtime
names = "HPCRUN_ROLE RANK WORLD_SIZE NNODES HPCRUN_NODE_RANK CUDA_VISIBLE_DEVICES".split()
values = [os.environ.get(name, "-") for name in names]
print(urllib.request.urlopen(sys.argv[1]).status, *values, flush=True)
again = os.environ["HPCRUN_ATTEMPT"] != "0"
until = time.time() + (1 if again else float(sys.argv[2]))
while time.time() < until and (again or not hpcrun_runtime.should_stop()):
    time.sleep(0.2)
sys.exit(int(sys.argv[3]))
""",
}
SERVER = ("--role", "server:1", "serve.py {port} 100 0")
TRAINER = ("--role", "trainer:2", "train.py {server.url} 100 0")


def serves(lab: Lab) -> Ended:
    """A server and a trainer of four ranks on two nodes: each role has the rendezvous of its
    own.
    """
    ranks = (
        "--nproc-per-node",
        "2",
        "--role",
        "server:1,ready=http:{port}/",
        "serve.py {port} 100 0",
    )
    trainer = ("--role", "trainer:2,launcher=torchrun", "train.py {server.url} 1 0")
    return lab.ended(lab.submit("serves", *SMALL, "-p", "gpu", *ranks, *trainer, requeue=0))


def trainer_fails(lab: Lab) -> Ended:
    role = ("--role", "trainer:2", "train.py {server.url} 1 3")
    return lab.ended(lab.submit("fails", *SMALL, "-p", "gpu", *SERVER, *role, requeue=0))


def server_dies(lab: Lab) -> Ended:
    server = ("--role", "server:1", "serve.py {port} 2 5")
    return lab.ended(lab.submit("dies", *SMALL, "-p", "gpu", *server, *TRAINER, requeue=0))


def not_ready(lab: Lab) -> Ended:
    server = ("--role", "server:1,timeout=1s,ready=tcp:{port}", "sleep 100")
    return lab.ended(lab.submit("late", *SMALL, "-p", "gpu", *server, *TRAINER, requeue=0))


def warned(lab: Lab) -> Ended:
    """The time limit comes near: the trainer stops, the server ends with it, and both start again.

    The trainer waits for the warning, however late that comes on a busy machine.
    """
    trainer = ("--role", "trainer:1", "train.py {server.url} 60 0")
    folder = lab.submit("warned", *without("a100-1", "v100-1"), *SERVER, *trainer)
    begun(folder, ranks=2)
    lab.warn(folder)
    return lab.ended(folder)


def cancelled(lab: Lab) -> Ended:
    folder = lab.submit("cancelled", *SMALL, "-p", "gpu", *SERVER, *TRAINER, requeue=0)
    begun(folder, ranks=3)
    assert len(processes(folder)) > 6
    states = ["ready", "running"]
    wait_for(
        lambda: [role["state"] for role in lab.status(folder)["roles"]] == states,
        20,
        "both roles to start",
    )
    lab.person.run("scancel", lab.job(folder))
    return lab.ended(folder)


def shared(lab: Lab) -> Ended:
    """One node: a GPU for the server, and three for the trainer."""
    gpus = ("-P", "a100", "--gpus", "a100:4", "--cpus", "4", "--mem", "1G")
    roles = (
        "--role",
        "server:1gpu",
        "serve.py {port} 100 0",
        "--role",
        "trainer:3gpus",
        "train.py {server.url} 1 0",
    )
    return lab.ended(lab.submit("shared", *gpus, *roles, requeue=0))


SCENARIOS: dict[str, Callable[[Lab], Any]] = {
    each.__name__: each
    for each in (serves, trainer_fails, server_dies, not_ready, warned, cancelled, shared)
}


def test_each_role_has_its_own_ranks_and_the_end_of_the_trainer_ends_the_job(
    scenarios: Scenarios,
) -> None:
    run: Ended = scenarios["serves"].result()
    assert (run.state, run.status["exit_status"]) == ("COMPLETED", 0), run.account
    seen = sorted(run.log(0, rank).split() for rank in range(1, 5))
    assert seen == [
        ["200", "trainer", str(rank), "4", "2", str(rank // 2), "-"] for rank in range(4)
    ]
    assert run.rank_exit(0)["told"] == "cleared"
    server, *trainers = (attempt(run.folder, 0) / "hosts").read_text().split()
    assert [run.rank_exit(0, rank)["node"] for rank in (0, 1, 3)] == [server, *trainers]


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("trainer_fails", 3, "role trainer on {} ended with status 3"),
        ("server_dies", 5, "role server on {} ended with status 5, before trainer"),
        ("not_ready", 1, "role server on {} was not ready after 1 s: tcp:"),
    ],
)
def test_a_role_that_fails_is_named_and_its_status_is_the_job_s(
    scenarios: Scenarios, name: str, status: int, message: str
) -> None:
    run: Ended = scenarios[name].result()
    assert (run.state, run.status["exit_status"]) == ("FAILED", status), run.account
    nodes = (attempt(run.folder, 0) / "hosts").read_text().split()
    assert run.exit(0)["message"].startswith(tuple(message.format(node) for node in nodes))
    assert message.split()[1] in run.table


def test_both_roles_start_again_after_the_warning(scenarios: Scenarios) -> None:
    run: Ended = scenarios["warned"].result()
    assert (run.state, run.starts) == ("COMPLETED", 2), run.account
    assert run.exit(0)["reason"] == "time_limit"
    assert run.exit(0)["how"] == "requeue"


def test_a_cancelled_job_leaves_no_process_of_any_role(scenarios: Scenarios) -> None:
    run: Ended = scenarios["cancelled"].result()
    assert run.state == "CANCELLED", run.account
    wait_for(lambda: not processes(run.folder), 30, "all processes of the job to end")


def test_roles_share_the_gpus_of_one_node(scenarios: Scenarios) -> None:
    run: Ended = scenarios["shared"].result()
    assert run.state == "COMPLETED", run.account
    assert {tuple(run.log(0, rank).split()[-5:]) for rank in (1, 2, 3)} == {
        (str(rank), "3", "1", "0", "1,2,3") for rank in range(3)
    }


def test_what_people_see_names_the_role(
    scenarios: Scenarios, lab: Lab, subtests: pytest.Subtests
) -> None:
    """Of ranks as their role counts them; and the terminated server of a trainer that failed is no
    failure.
    """
    for name, role, first in (
        ("trainer_fails", "trainer", r"trainer( rank \d)? on \S+ failed first with exit status 3"),
        ("server_dies", "server", r"server on \S+ failed first with exit status 5"),
        ("not_ready", "server", r"role server on \S+ was not ready after 1 s: .*"),
    ):
        with subtests.test(name=name):
            run: Ended = scenarios[name].result()
            explained = lab.person("explain", run.folder.name).stdout
            assert re.fullmatch(first, explained.splitlines()[0]), explained
            assert f"next  hpcrun logs {lab.job(run.folder)} --role {role}" in explained
    run = scenarios["serves"].result()
    logs = lab.person("logs", run.folder.name, "--role", "trainer", "--rank", "3", "--merge").stdout
    assert logs == f"[trainer 3] {run.log(0, 4)}"
    assert lab.person("logs", run.folder.name).stdout == run.log(0, 1)
    server, trainer = lab.status(run.folder)["roles"]
    assert (server["state"], server["exit_status"], len(server["nodes"])) == ("terminated", 143, 1)
    assert (trainer["state"], trainer["exit_status"], len(trainer["nodes"])) == ("ended", 0, 2)
