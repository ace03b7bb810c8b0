"""Which runs a new one waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.jobs.after_and_chain import resolve_after
from hpcrun.errors import NotFoundError
from hpcrun.job.after import parse_after
from hpcrun.runs.store import RunStore
from tests.unit.given import ports, run


@pytest.mark.parametrize(("text", "dependency"), [("19", "afterok:19"), ("19:any", "afterany:19")])
def test_a_job_that_hpcrun_did_not_submit_is_waited_for_with_sbatch_s_option(
    text: str, dependency: str, tmp_path: Path
) -> None:
    store = RunStore(tmp_path)
    store.create(run("20260101-000000-train-aaaa", job_id="100"), "")
    with pytest.raises(NotFoundError) as refused:
        resolve_after([parse_after(text)], ports(store, object(), 0.0))
    assert refused.value.message == "--after 19: there is no run '19'"
    assert refused.value.hint == "hpcrun status --all lists them"  # nobody may know the job
    assert f"--sbatch dependency={dependency} waits for it" in refused.value.if_listed
