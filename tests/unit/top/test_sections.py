"""When a section of a run's page is read."""

from __future__ import annotations

from dataclasses import replace

from hpcrun.features.top.sections import SHARE_OF_TIME, AttemptsSection
from tests.unit.top.test_rows import item
from tests.unit.top.test_run_page import _Desk


def test_a_section_is_read_again_when_it_is_due_or_its_run_has_changed() -> None:
    running = item("a")
    section = AttemptsSection(_Desk(running).reader)
    assert section.is_due(running, 100.0)
    section.begin(running, 100.0)
    assert not section.is_due(running, 200.0), "it is being read"
    section.end(100.5, data=())
    assert [section.is_due(running, now_s) for now_s in (110.4, 110.6)] == [False, True]
    assert section.is_due(replace(running, status=replace(running.status, attempt=1)), 101.0)
    ended = item("a", "FAILED")
    section.begin(ended, 120.0)
    section.end(120.5, data=())
    assert not section.is_due(ended, 10_000.0)
    section.begin(ended, 200.0)
    section.end(200.5, error="the file system does not respond")
    assert [section.is_due(ended, now_s) for now_s in (210.4, 210.6)] == [False, True]


def test_a_section_that_takes_long_is_read_after_many_times_as_long() -> None:
    running = item("a")
    section = AttemptsSection(_Desk(running).reader)
    section.begin(running, 100.0)
    section.end(104.0, error="slow")
    due_s = 104.0 + SHARE_OF_TIME * 4.0
    assert [section.is_due(running, now_s) for now_s in (due_s - 0.1, due_s)] == [False, True]
