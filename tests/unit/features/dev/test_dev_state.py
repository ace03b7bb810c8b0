"""What tables and status say of a run of hpcrun dev."""

from __future__ import annotations

import json
import time
from pathlib import Path

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.features.dev.dev_state import DevRunHooks
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run, write
from tests.unit.explain.test_running import NOW_S, attempt


def _about(folder: Path, state: str) -> tuple[str, str]:
    final = state not in ("RUNNING", "PENDING")
    return DevRunHooks().about_run(RunStatus(run(), folder, LastStatus(state, NOW_S, final=final)))


def _warn(folder: Path) -> None:
    """Record the warning of an unused job that ends in ten minutes."""
    record = {"since": NOW_S - 3000, "warned": NOW_S, "ends": NOW_S + 600}
    write(attempt(folder).idle, json.dumps(record))


def test_a_job_that_runs_is_named(tmp_path: Path) -> None:
    assert _about(tmp_path, "RUNNING") == ("dev", "a job of hpcrun dev")


def test_of_an_unused_job_the_end_is_told(tmp_path: Path) -> None:
    _warn(tmp_path)
    end = f"unused, ends at {time.strftime('%H:%M', time.localtime(NOW_S + 600))}"
    assert _about(tmp_path, "RUNNING") == (
        f"dev, {end}",
        f"a job of hpcrun dev: {end} unless it is used",
    )


def test_a_job_that_nobody_used_says_why_it_ended(tmp_path: Path) -> None:
    _warn(tmp_path)
    short, sentence = _about(tmp_path, "COMPLETED")
    assert short == "unused for 60 min"
    assert sentence == "the job ended because it was unused for 60 min (--idle)"


def test_a_job_that_was_used_needs_no_sentence(tmp_path: Path) -> None:
    assert _about(tmp_path, "COMPLETED") == ("dev", "")
    assert _about(tmp_path, "PENDING") == ("", "")
