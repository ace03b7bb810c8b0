"""A command of the tests' server (tests/preloaded.py) does what one that was started anew does."""

from __future__ import annotations

import pytest

from tests.harness import Hpcrun


@pytest.mark.parametrize(
    ("args", "status"),
    [
        (("--version",), 0),
        (("profile", "show", "local"), 0),
        (("submit", "--gpu", "4", "train.py"), 2),
        (("status", "no-such-run"), 6),
    ],
    ids=["version", "text", "usage", "not found"],
)
def test_it_prints_and_ends_as_one_that_was_started_anew(
    hpcrun: Hpcrun, args: tuple[str, ...], status: int
) -> None:
    anew, preloaded = hpcrun.run(*hpcrun.argv(*args), check=False), hpcrun(*args)
    assert (preloaded.returncode, preloaded.stdout, preloaded.stderr) == (
        anew.returncode,
        anew.stdout,
        anew.stderr,
    )
    assert preloaded.returncode == status
