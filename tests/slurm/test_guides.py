"""The commands of docs/guides that are for Slurm, as tests/docs runs the others."""

from __future__ import annotations

import pytest

from tests.docs.test_guides import PAGES, commands_of, follow
from tests.harness import Hpcrun

pytestmark = pytest.mark.slurm


NEEDS = {"on-a-node.md": ("sshd", "ssh-keygen")}
NAMES = [name for name in PAGES if any(one.slurm for one in commands_of(name))]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.needs(*NEEDS.get(name, ()))) for name in NAMES]
)
def test_a_page(as_researcher: Hpcrun, name: str) -> None:
    follow(as_researcher, name, slurm=True)
