"""The hooks of features are wired: what the core learns reaches them, and what they know is
shown.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.hooks import HOOKS, Hooks, hooks_of
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.cli.context import make_context
from hpcrun.runs.record import LastStatus
from hpcrun.views.details_text import detail_lines
from tests.unit.builders import run, write


@pytest.mark.parametrize("feature", HOOKS)
def test_every_row_is_a_class_of_hooks(feature: str) -> None:
    assert type(hooks_of(feature)) is not Hooks


def test_a_feature_that_was_taken_away_has_hooks_that_do_nothing(tmp_path: Path) -> None:
    item = RunStatus(run(), tmp_path, LastStatus("RUNNING", 0.0))
    hooks = hooks_of("none")
    assert list(hooks.run_rows(item)) == []
    assert hooks.run_json(item) == []
    hooks.on_status([item], tmp_path, 0.0)
    hooks.on_end(item.run, tmp_path, {})
    hooks.check_destination("mail://x", {})


def test_what_a_question_about_the_status_tells_reaches_the_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(
        "hpcrun.features.notify.due.send_late",
        lambda items, *_: heard.extend(item.run.run_id for item in items),
    )
    without = RunStatus(run(), tmp_path, LastStatus("RUNNING", 0.0))
    wanting = replace(
        without, run=replace(without.run, run_id="wanting", plan={"notify": {"to": ["x"]}})
    )
    make_context(announce=None).ports.on_status([without, wanting], tmp_path, 0.0)
    assert heard == ["wanting"]


def test_rows_of_features_stand_in_the_details_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcrun.features.notify.due.delivery_lines", lambda _: ["one was sent"])
    item = RunStatus(
        replace(run(), plan={"notify": {"to": ["x"]}}), tmp_path, LastStatus("RUNNING", 0.0)
    )
    write(
        tmp_path / "elements/0/attempts/1/start", '{"job_id": "4711", "host": "n", "started": 1.0}'
    )
    assert "  logs         elements/0/attempts/1/rank-N.out and rank-N.err" in detail_lines(
        item, 80
    )
    assert any("one was sent" in line for line in detail_lines(item, 80))
