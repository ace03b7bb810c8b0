"""The folder of a new run, and its id where another submission has drawn the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.jobs.new_run import ChainLink, Lineage, NewRun, new_run
from hpcrun.actions.jobs.prepare import prepare
from hpcrun.job.resources import Machine
from hpcrun.runs.store import RunExistsError, RunStore
from hpcrun.schedulers.local import LocalScheduler
from tests.unit.given import ports, request, surroundings, write


def made(folder: Path, run_id: str, lineage: Lineage | None = None) -> NewRun:
    write(folder / "train.py", "")
    around = surroundings(folder)
    return new_run(
        prepare(request(), "local", around, lambda: Machine(cpus=4)),
        ports(RunStore(folder / "runs"), LocalScheduler(), 1000.0),
        around,
        run_id,
        output_dir=None,
        files={"notes/why": "because"},
        lineage=lineage or Lineage(),
    )


def test_submissions_that_draw_the_same_id_are_runs_of_their_own(tmp_path: Path) -> None:
    ids = [made(tmp_path, "20260101-000000-train-00ff").run.run_id for _ in range(3)]
    assert ids == [f"20260101-000000-train-{end}" for end in ("00ff", "0100", "0101")]
    assert RunStore(tmp_path / "runs").run_ids() == ids
    made(tmp_path, "20260101-000000-train-ffff")
    with pytest.raises(RunExistsError):
        made(tmp_path, "20260101-000000-train-ffff")


def test_a_new_run_is_whole_when_it_is_seen(tmp_path: Path) -> None:
    new = made(tmp_path, "20260101-000000-train-aaaa")
    loaded = RunStore(tmp_path / "runs").load(new.run.run_id)
    assert (loaded.name, loaded.profile, loaded.host, loaded.created_s) == ("train", "local", "here", 1000.0)
    assert (new.folder / "notes/why").read_text() == "because"
    assert (new.folder / "script.sh").read_text().startswith("#!")
    assert new.run.cwd == str(tmp_path)
    assert new.run.code is None


def test_the_links_of_a_chain_name_their_first(tmp_path: Path) -> None:
    first = made(tmp_path, "20260101-000000-train-aaaa", Lineage(link=ChainLink(1, 2))).run
    second = made(tmp_path, "20260101-000000-train-bbbb", Lineage(link=ChainLink(2, 2, first.run_id))).run
    assert first.chain == {"link": 1, "links": 2, "first": first.run_id}
    assert second.chain == {"link": 2, "links": 2, "first": first.run_id}
    assert made(tmp_path, "20260101-000000-train-cccc").run.chain is None
