"""The runs of others, which are only read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcrun.errors import NotFoundError, UsageError
from hpcrun.files.foreign_folder import ForeignFolder
from hpcrun.runs.foreign_runs import ForeignRuns, open_foreign_runs, readable_hint
from hpcrun.runs.record import LastStatus
from hpcrun.runs.store import RunStore, UnsafeRunError
from tests.unit.builders import run

RUN = run()
RUN_ID = RUN.run_id


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForeignRuns]:
    monkeypatch.setattr(ForeignFolder, "path", "")
    RunStore(tmp_path / "runs").create(RUN, "")
    yield open_foreign_runs(tmp_path / "runs")


def test_the_runs_of_others_are_read(foreign: ForeignRuns) -> None:
    assert foreign.run_ids() == [RUN_ID]
    assert foreign.load(RUN_ID) == RUN
    assert foreign.active_ids() == [RUN_ID]


def test_nothing_of_others_is_written(foreign: ForeignRuns) -> None:
    assert foreign.change(RUN, job_id="9").job_id == "9"
    foreign.save_status(RUN_ID, LastStatus("COMPLETED", 1.0, final=True))
    foreign.leave_active(RUN_ID)
    foreign.note_job(RUN)
    assert foreign.load(RUN_ID).job_id == RUN.job_id
    assert foreign.last_status(RUN_ID) is None
    assert foreign.active_ids() == [RUN_ID]


def test_a_run_behind_a_link_is_ignored(foreign: ForeignRuns, tmp_path: Path) -> None:
    foreign.folder(RUN_ID).rename(tmp_path / "there")
    foreign.folder(RUN_ID).symlink_to(tmp_path / "there")
    with pytest.raises(UnsafeRunError, match=f"run {RUN_ID} is ignored: it is a link"):
        foreign.load(RUN_ID)


def test_the_root_of_all_files_is_no_folder_of_runs() -> None:
    with pytest.raises(UsageError, match="--runs /: this is not a folder of runs"):
        open_foreign_runs(Path("/"))


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=f"--runs {tmp_path}/none: No such file"):
        open_foreign_runs(tmp_path / "none")


def test_the_owner_can_let_the_group_read() -> None:
    hint = "its owner can let the group read it: chmod -R g+rX '/a b'"
    assert readable_hint(Path("/a b")) == hint
