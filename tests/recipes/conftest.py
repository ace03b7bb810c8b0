"""The person of these tests: in the environment of `make recipes`, with other people's launchers on
PATH.
"""

from __future__ import annotations

import pytest

from tests.harness import RECIPES, SYSTEM_PATH, Hpcrun


@pytest.fixture
def person(as_researcher: Hpcrun) -> Hpcrun:
    """The cluster's ordinary user with `.venv-recipes` active, and hpcrun on PATH from an
    environment of its own.
    """
    venv = as_researcher.checkout / RECIPES.name
    path = f"{venv}/bin:{as_researcher.venv}/bin:{SYSTEM_PATH}"
    assert isinstance(as_researcher.extra, dict)
    as_researcher.extra.update(VIRTUAL_ENV=str(venv), PATH=path)
    return as_researcher


def output(person: Hpcrun, run: str = "last") -> list[str]:
    """Return the lines of a run, those of rank 0 first."""
    return sorted(person("logs", run, "--merge", check=True).stdout.splitlines())
