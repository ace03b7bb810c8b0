"""Which command lines with --on write files that come to this machine."""

from __future__ import annotations

import pytest

from hpcrun.features.remote.written_files import _brings_files


@pytest.mark.parametrize(
    ("verb", "typed", "values", "brings"),
    [
        pytest.param("share", "", {}, True, id="a name of the command's own"),
        pytest.param("share", "page.html", {}, True, id="a name that was typed"),
        pytest.param("runs", "runs.csv", {}, True, id="typed, and no name of its own"),
        pytest.param("runs", "", {}, False, id="stdout"),
        pytest.param("share", "-", {}, False, id="stdout, typed"),
        pytest.param("scale report", "", {"from_csv": ["a.csv"]}, False, id="a table there"),
    ],
)
def test_what_comes_to_this_machine(
    verb: str, typed: str, values: dict[str, object], brings: bool
) -> None:
    assert _brings_files(verb, typed, values) is brings
