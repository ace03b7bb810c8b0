"""Every example runs when torchrun or srun starts its ranks; and docs/submit.md says how the ranks
differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.every_example import ARGUMENTS
from tests.harness import REPO
from tests.slurm.lab import Ended, Lab, Scenarios

pytestmark = pytest.mark.slurm

LAUNCHERS = ("torchrun", "srun")
RANKS = 2
SIZE = ("--gpus", "0", "--cpus", str(RANKS), "--mem", "6G", "--nproc-per-node", str(RANKS))
PROGRAM = (REPO / "tests/every_example.py").read_text()
SCRIPTS = {"every_example.py": PROGRAM}


def run(launcher: str, lab: Lab) -> Ended:
    """Run the examples one after the other, in the ranks of one job."""
    examples = str(lab.person.checkout / "examples")
    job = ("-P", "a100", "-p", "gpu", "--time", "10m", *SIZE, "--launcher", launcher)
    folder = lab.submit(launcher, *job, "every_example.py", examples, requeue=0)
    return lab.ended(folder, 400)


SCENARIOS: dict[str, Callable[[Lab], Any]] = {name: partial(run, name) for name in LAUNCHERS}


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.needs_package("lightgbm", "recbole", "sklearn", "xgboost")
def test_every_example_runs(scenarios: Scenarios, launcher: str) -> None:
    ended: Ended = scenarios[launcher].result()
    for rank in range(RANKS):
        names = re.findall(r"^ended: (\w+)$", ended.log(0, rank), re.MULTILINE)
        assert names == [*ARGUMENTS], ended.account
    assert ended.state == "COMPLETED", ended.account


def test_this_runs_each_program_of_the_examples() -> None:
    programs = {path.stem for path in (REPO / "examples").glob("*.py")}
    parts = {"board", "movielens", "published_data", "training"}
    assert programs - parts == {*ARGUMENTS}


def rows() -> list[list[str]]:
    """Return the rows of the table that compares the launchers."""
    page = (REPO / "docs/submit.md").read_text()
    part = page.split("\n### torchrun or srun\n")[1].split("\n#")[0]
    table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return table[2:]


def environment(scenarios: Scenarios, launcher: str) -> dict[str, str]:
    folder = scenarios[launcher].result().folder / "elements/0/checkpoints"
    return dict(json.loads((folder / "environment-1.json").read_text()))


def test_a_rank_has_the_variables_that_the_table_says(scenarios: Scenarios) -> None:
    cells = {name: column for column, name in enumerate(LAUNCHERS, 1)}
    expected: dict[str, dict[str, bool]] = {name: {} for name in LAUNCHERS}
    for row in rows():
        for variable in re.findall(r"`([A-Z][A-Z_]+)`", row[0]):
            for launcher, column in cells.items():
                expected[launcher][variable] = row[column] != "no"
    for launcher in LAUNCHERS:
        has = environment(scenarios, launcher)
        assert {name: name in has for name in expected[launcher]} == expected[launcher]
    told = {*expected["torchrun"]}
    more = {*environment(scenarios, "torchrun")} - {*environment(scenarios, "srun")}
    assert {name for name in more if not name.startswith("HPCRUN_")} <= told


def test_the_variables_of_slurm_are_those_of_the_node_or_of_the_rank(scenarios: Scenarios) -> None:
    values = {}
    for launcher in LAUNCHERS:
        has = environment(scenarios, launcher)
        names = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_CPUS_PER_TASK")
        values[launcher] = [has[name] for name in names]
    assert values == {"torchrun": ["0", "0", "1", "2"], "srun": ["1", "1", "2", "1"]}
