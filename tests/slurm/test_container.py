"""Ranks in containers on a real Slurm, by a stand-in for apptainer that isolates nothing:
tests/launch/runtime.py.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from tests.harness import Hpcrun, wait_for
from tests.launch import runtime

pytestmark = pytest.mark.slurm

TRAIN = """
import os, signal, sys, time
def save(number, frame):
    print("handler", flush=True)
    time.sleep(1)
    open(os.environ["HPCRUN_CHECKPOINT_DIR"] + "/rank-" + os.environ["RANK"], "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print(os.environ["APPTAINER_CONTAINER"], os.environ["WORLD_SIZE"], os.environ["A"], flush=True)
time.sleep(120)
"""


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    """A person with an image that has the tests' Python and torch; the runtime is on their PATH."""
    as_researcher.write("train.py", TRAIN)
    program = as_researcher.write("runtime.py", Path(runtime.__file__).read_text())
    as_researcher.program("image/bin/python3", f'exec {as_researcher.python_word} "$@"')
    runtime_line = shlex.join([str(Path(sys.executable).resolve()), str(program)])
    as_researcher.program("bin/apptainer", f'exec {runtime_line} "$@"')
    return as_researcher


def test_cancelled_ranks_in_containers_save_once(person: Hpcrun) -> None:
    """tests/launch/test_container.py has torchrun."""
    size = ["-P", "a100", "--gpus", "4", "--nodes", "2", "--launcher", "srun", "--env", "A=b c"]
    env = {"PATH": f"{person.folder}/bin:{person.environ['PATH']}"}
    person("submit", *size, "--container", "image", "train.py", env=env, check=True)
    (run,) = person.runs.glob("2*")
    outs = [run / f"elements/0/attempts/0/rank-{rank}.out" for rank in range(4)]
    wait_for(lambda: all(out.exists() and out.read_text() for out in outs), 60, "all ranks")
    person("cancel", run.name, check=True)
    saved = run / "elements/0/checkpoints"
    wait_for(lambda: len(list(saved.iterdir())) == 4, 30, "what the ranks save")
    assert {out.read_text() for out in outs} == {f"{person.folder}/image 4 b c\nhandler\n"}
    wait_for(lambda: person("status", run.name).stdout.count("CANCELLED") == 1, 30, "the end")
