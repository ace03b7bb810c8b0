"""Programs that start others, handle signals or crash: on a real Slurm they behave as without hpcrun."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.programs import LAST, RIGHT, SCRIPTS, WAYS, Left  # noqa: F401
from tests.slurm.lab import SMALL, Ended, Lab, Scenarios, begun

pytestmark = [pytest.mark.slurm, pytest.mark.versions]


def run(name: str, way: str, lab: Lab) -> Ended:
    folder = lab.submit(f"{name[:-3]}-{way}", *SMALL, "-p", "cpu", *WAYS[way], name, requeue=0)
    if name == LAST:
        begun(folder)
        lab.person.run("scancel", lab.job(folder))
    return lab.ended(folder)


CASES = (
    ("sidecar.py", "plain"), ("sidecar.py", "requeue"), ("pool.py", "sweep"), ("dies.py", "plain"),
    ("dies.py", "sweep"), ("saves.py", "requeue"), ("saves.py", "sweep"),
)  # fmt: skip
"""Each program in a few of the ways: tests/launch/test_as_without.py has all of what needs no Slurm."""
SCENARIOS: dict[str, Callable[[Lab], Any]] = {f"{name} {way}": partial(run, name, way) for name, way in CASES}
THREADS = 4


@pytest.mark.parametrize(("name", "way"), CASES)
def test_it_is_as_without_hpcrun(scenarios: Scenarios, name: str, way: str) -> None:
    ended: Ended = scenarios[f"{name} {way}"].result()
    assert Left.of(ended.folder) == RIGHT[name]
    assert ended.starts == 1
    assert ended.state == {"dies.py": "FAILED", LAST: "CANCELLED"}.get(name, "COMPLETED")
