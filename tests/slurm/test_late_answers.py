"""What status shows while Slurm takes its time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.harness import Hpcrun, at_end

pytestmark = pytest.mark.slurm

HELD = ("submit", "-P", "cpu", "--sbatch", "hold", "-J", "held", "true")
NO_ANSWER = "no response for 3 s; showing the last known state"


def late_squeue(person: Hpcrun, seconds: float, folder: str) -> dict[str, str | None]:
    """An environment whose squeue is the real one, after some seconds."""
    return person.shims(folder, squeue=f'sleep {seconds}\nPATH=${{PATH#*:}}\nexec squeue "$@"')


def test_a_late_answer_is_bridged_by_what_was_last_known_and_one_that_never_comes_is_given_up(
    as_researcher: Hpcrun,
) -> None:
    as_researcher(*HELD, check=True)
    as_researcher("status", check=True)
    late, never = late_squeue(as_researcher, 5, "late"), late_squeue(as_researcher, 60, "never")
    never["XDG_CACHE_HOME"] = str(as_researcher.folder / "cache")  # there squeue's answer is shared
    began = time.monotonic()
    with ThreadPoolExecutor() as pool:
        piped = pool.submit(as_researcher, "status", env=late, check=True)
        bridged, given_up, impatient = (
            as_researcher.terminal("status", env=env, size=(40, 100))
            for env in (late, never, never)
        )
        impatient.expect_exact(NO_ANSWER)
        impatient.sendintr()  # Ctrl-C does not wait for the answer
        # wrapped wherever the column ends
        bridged.expect(r"held .*PENDING(?s:.*)as\s+of\s+\d+\s+s\s+ago")
        bridged.expect_exact(NO_ANSWER)
        assert at_end(impatient)[0] == 130
        assert 2.5 < time.monotonic() - began < 9
        bridged.expect("held .*PENDING")
        status, rest = at_end(bridged)
        assert status == 0
        assert "ago" not in rest
        assert time.monotonic() - began > 5
        assert (piped.result().stdout.count("PENDING"), piped.result().stderr) == (1, "")
    given_up.expect_exact(NO_ANSWER)
    given_up.expect_exact("timed out after 10 s")
    assert at_end(given_up)[0] == 5
