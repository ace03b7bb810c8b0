"""Programs that start others, handle signals or crash: on a real Slurm they behave as without hpcrun."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.harness import Cluster
from tests.programs import LAST, RIGHT, SCRIPTS, WAYS, Left
from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, begun, run_all

pytestmark = [pytest.mark.slurm, pytest.mark.versions]


def run(name: str, way: str, lab: Lab) -> Ended:
    folder = lab.submit(f"{name[:-3]}-{way}", *SMALL, "-p", "cpu", *WAYS[way], name, requeue=0)
    if name == LAST:
        begun(folder)
        lab.person.run("scancel", lab.job(folder))
    return lab.ended(folder)


@pytest.fixture(scope="module")
def scenarios(
    slurm_cluster: Cluster, _shown_checkout: tuple[Path, Path], _researchers_folders: Path
) -> Iterator[Scenarios]:
    every = {f"{name} {way}": partial(run, name, way) for name in SCRIPTS for way in WAYS}
    with run_all(every, SCRIPTS, slurm_cluster, _shown_checkout, _researchers_folders, threads=4) as results:
        yield results


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_as_without_hpcrun(scenarios: Scenarios, name: str, way: str) -> None:
    ended: Ended = scenarios[f"{name} {way}"].result()
    assert Left.of(ended.folder) == RIGHT[name]
    assert ended.starts == 1
    assert ended.state == {"dies.py": "FAILED", LAST: "CANCELLED"}.get(name, "COMPLETED")
