"""Monarch as two roles: workers that wait for a controller, and the controller, whose actors train
on both nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.harness import Hpcrun
from tests.recipes.conftest import output

pytestmark = [pytest.mark.slurm, pytest.mark.recipes, pytest.mark.timeout(900)]

JOB = ("-P", "a100", "--gpus", "4", "--nodes", "2", "--cpus", "4", "--mem", "4G", "--time", "10m")
ROLES = (
    *("--role", "workers:1,launcher=python", "worker.py", "{port}"),
    *("--role", "main:1,launcher=python", "main.py", "{workers.port}", "{port}"),
)
WORKER = """
import os, sys
from monarch.actor import run_worker_loop_forever
role = os.environ["HPCRUN_ROLE"].upper()
host = os.environ[f"HPCRUN_ROLE_{role}_HOSTS"].split(",")[int(os.environ["NODE_RANK"])]
run_worker_loop_forever(address=f"tcp://{host}:{sys.argv[1]}", ca="trust_all_connections")
"""
TRAINER = """
import os, torch
from monarch.actor import Actor, endpoint

class Trainer(Actor):
    @endpoint
    def train(self):
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        before = model.module.weight.item()
        optimizer = torch.optim.SGD(model.parameters(), 1.0)
        (model(torch.ones(1, 1)) * rank).sum().backward()
        optimizer.step()
        if os.environ.get("FAIL") and rank == 1: {}["recall"]
        return rank, os.environ["HPCRUN_NODE"], round(before - model.module.weight.item(), 3)
"""
MAIN = """
import os, subprocess, sys
from monarch.actor import attach_to_workers, enable_transport
from monarch.spmd import setup_torch_elastic_env
from trainer import Trainer

port, own_port = sys.argv[1:]
own_worker = subprocess.Popen([sys.executable, "worker.py", own_port])
addresses = [f"tcp://{host}:{port}" for host in os.environ["HPCRUN_ROLE_WORKERS_HOSTS"].split(",")]
addresses.append(f"tcp://{os.environ['HPCRUN_ROLE_MAIN_HOSTS']}:{own_port}")
enable_transport("tcp")
workers = attach_to_workers(workers=addresses, ca="trust_all_connections")
ranks = workers.spawn_procs(per_host={"gpus": 2})
setup_torch_elastic_env(ranks)
for _, result in ranks.spawn("trainer", Trainer).train.call().get().items():
    print(*result, flush=True)
workers.shutdown().get()
"""


def test_actors_train_on_both_nodes(person: Hpcrun) -> None:
    run = submit(person)
    assert person.ended(run.name, 600)["state"] == "COMPLETED"
    # the mean of the gradients of all ranks is that of 0, 1, 2 and 3
    printed = {f"[main] {rank} a100-{1 + rank // 2} 1.5" for rank in range(4)}
    assert printed <= {*output(person)}


def test_the_error_of_an_actor_is_the_cause(person: Hpcrun) -> None:
    run = submit(person, "--env", "FAIL=1")
    assert person.ended(run.name, 600)["state"] == "FAILED"
    cause = person("explain", run.name).stdout.splitlines()[0]
    line = 1 + next(place for place, text in enumerate(TRAINER.splitlines()) if "recall" in text)
    failed = rf"main.* failed first: KeyError: 'recall' at trainer.py:{line}"
    assert re.fullmatch(failed, cause), cause


def submit(person: Hpcrun, *options: str) -> Path:
    person.write("worker.py", WORKER)
    person.write("trainer.py", TRAINER)
    person.write("main.py", MAIN)
    return person.submit(*JOB, *options, *ROLES, check=True)
