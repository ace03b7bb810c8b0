"""A batch script under ``hpcrun submit`` is what it is under sbatch: all cases of
tests/as_without, both ways, on a real Slurm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from tests.as_without.both_ways import BY_HPCRUN, BY_SBATCH, Seen, run_both_ways
from tests.as_without.cases import read_cases
from tests.as_without.compare import Difference, differences
from tests.as_without.wanted import IMPORT, WANTED, Wanted, unwanted
from tests.harness import REPO
from tests.slurm.lab import Lab

pytestmark = pytest.mark.slurm

CASES = read_cases()


@pytest.fixture(scope="module")
def seen(lab: Lab) -> Iterator[dict[str, dict[str, Seen]]]:
    jobs_of_others = lab.cluster.jobs()
    yield run_both_ways(lab.person, CASES)
    lab.cluster.restore(keep=jobs_of_others)


@pytest.fixture(scope="module")
def different(seen: dict[str, dict[str, Seen]]) -> dict[str, list[Difference]]:
    return {name: differences(ways[BY_SBATCH], ways[BY_HPCRUN]) for name, ways in seen.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_script_runs_as_without_hpcrun(different: dict[str, list[Difference]], name: str) -> None:
    faults = unwanted(different[name])
    assert not faults, "\n".join(map(str, faults))


def test_every_script_starts_a_program_but_those_that_sbatch_refuses(
    seen: dict[str, dict[str, Seen]],
) -> None:
    refused = {name for name, ways in seen.items() if not ways[BY_SBATCH].job}
    assert refused == {"cloud_base_height", "prototypes"}
    for name in refused:
        assert "Invalid --time specification" in seen[name][BY_HPCRUN].message
    for name in CASES.keys() - refused - {"fails_early"}:
        kinds = {record["kind"] for record in seen[name][BY_SBATCH].records}
        assert kinds >= {"script", "program"}, name


@pytest.fixture(scope="module")
def imported(lab: Lab, seen: dict[str, dict[str, Seen]]) -> Callable[[str], str]:
    """What ``hpcrun import`` prints of a case; each is asked once."""

    @cache
    def printed(name: str) -> str:
        words = ("--", CASES[name].path.name, *CASES[name].around.arguments)
        return lab.person("import", *words, cwd=seen[name][BY_HPCRUN].root / "work").stdout

    return printed


@pytest.mark.parametrize("row", WANTED, ids=lambda row: row.words)
def test_a_wanted_difference_is_said(
    imported: Callable[[str], str], different: dict[str, list[Difference]], row: Wanted
) -> None:
    names = [name for name, rows in different.items() if any(map(row.matches, rows))]
    assert names, "no case has it"
    if row.said_by == IMPORT:
        assert [name for name in names if row.words not in imported(name)] == []
    else:
        assert row.words in " ".join((REPO / row.said_by).read_text("utf-8").split())
