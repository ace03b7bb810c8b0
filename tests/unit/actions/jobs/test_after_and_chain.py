"""--after: a run that has ended is waited for only as Slurm says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.jobs.after_and_chain import resolve_after
from hpcrun.errors import PlanError
from hpcrun.job.request.after import After
from hpcrun.runs.record import LastStatus
from tests.unit.actions.status.test_known_run import ENDED_S, RUN_ID, queue_of
from tests.unit.builders import ports


def test_an_end_that_may_have_been_requeued_since_fulfils_no_condition(tmp_path: Path) -> None:
    queue = queue_of(tmp_path)
    queue.store.save_status(RUN_ID, LastStatus("COMPLETED", ENDED_S, final=True))
    site = ports(queue.store, queue, 200.0)
    queue.is_away = True
    with pytest.raises(PlanError, match="may have been requeued since"):
        resolve_after([After(RUN_ID)], site)
    queue.is_away = False
    queue.lists("PENDING", 190.0, 0)
    (waits,), _ = resolve_after([After(RUN_ID)], site)
    assert not waits.over
    queue.lists("COMPLETED", 195.0)
    (waits,), _ = resolve_after([After(RUN_ID)], site)
    assert waits.over
