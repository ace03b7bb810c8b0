"""What modules of scenarios share: they say in SCENARIOS, SCRIPTS and THREADS what is run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import Cluster, new_researcher
from tests.slurm.lab import Lab, Scenarios, run_all


@pytest.fixture(scope="module")
def lab(
    request: pytest.FixtureRequest,
    slurm_cluster: Cluster,
    _shown_checkout: tuple[Path, Path],
    _researchers_folders: Path,
) -> Lab:
    """A person on the cluster for all tests of a module, in a folder with the module's SCRIPTS."""
    person = new_researcher(_researchers_folders, slurm_cluster, _shown_checkout)
    for name, text in getattr(request.module, "SCRIPTS", {}).items():
        person.write(name, text)
    return Lab(person, slurm_cluster)


@pytest.fixture(scope="module")
def scenarios(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Scenarios]:
    """The module's SCENARIOS, as many of them at a time as its THREADS."""
    module: Any = request.module
    with run_all(lab, module.SCENARIOS, getattr(module, "THREADS", None)) as results:
        yield results
