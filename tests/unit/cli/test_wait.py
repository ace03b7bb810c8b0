"""hpcrun wait: what it says of runs that have not ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from hpcrun.actions.status.wait import waiter_for
from hpcrun.cli.context import Context
from hpcrun.cli.wait import _now
from hpcrun.errors import NotFoundError
from tests.unit import builders


def test_a_run_that_was_removed_while_it_was_waited_for_is_told(tmp_path: Path) -> None:
    context = Context({"HPCRUN_RUNS": str(tmp_path / "runs")}, tmp_path)
    run = builders.run(scheduler="local", cluster=None, host=context.host, job_id="L1")
    folder = context.store.create(run, "#!/bin/bash\n")
    waiter = waiter_for(run.run_id, context.ports)
    [status] = _now([waiter], [0], context)
    assert status.run.run_id == run.run_id
    shutil.rmtree(folder)
    with pytest.raises(NotFoundError, match=run.run_id):
        _now([waiter], [0], context)
