"""The end of a submitted job in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.submit_end import how_it_ended
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run


@pytest.mark.parametrize(
    ("reason", "exit_status", "text"),
    [
        ("NonZeroExitCode", 3, "job 4711 FAILED (exit status 3) after 00:01:00"),
        ("NonZeroExitCode", None, "job 4711 FAILED (NonZeroExitCode) after 00:01:00"),
        ("OutOfMemory", 3, "job 4711 FAILED (OutOfMemory) after 00:01:00"),
        (None, 3, "job 4711 FAILED after 00:01:00"),
    ],
)
def test_the_exit_status_takes_the_place_of_slurm_s_reason_for_it(
    reason: str | None, exit_status: int | None, text: str
) -> None:
    status = LastStatus(
        "FAILED", 500.0, final=True, reason=reason, exit_status=exit_status, elapsed_s=60
    )
    assert how_it_ended(RunStatus(run(), Path(), status)) == text
