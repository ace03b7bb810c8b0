"""How much of a run the page shows, and what it says of the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.runs.run_metrics import Metrics
from hpcrun.actions.status.run_status import ElementStatus
from hpcrun.explain.ended import Explanation
from hpcrun.explain.evidence import Evidence
from hpcrun.features.share.gather_page import AttemptSpan, SharedRun, SharedText
from hpcrun.features.share.page import share_page
from hpcrun.features.sweep.compare_elements import SweepRow, SweepTable
from hpcrun.job.run_paths import AttemptFolder
from hpcrun.job.text.hide_secrets import SecretHider
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.metric_files import MetricsRow, Value
from hpcrun.runs.record import LastStatus
from tests.unit.builders import run
from tests.unit.features.share.test_page_rows import shared
from tests.unit.features.share.test_share import Page

FAILED = LastStatus("FAILED", 5000.0, final=True, cause="rank 0 failed first")
LINE = "x" * 99 + "\n"


def page(of: SharedRun) -> Page:
    """The page of what was gathered."""
    return Page(share_page(of, SecretHider({}), "/home/me"))


def text_between(shown: Page, start: str, end: str) -> str:
    """The text of a part of the page."""
    return shown.text.partition(start)[2].partition(end)[0]


def elements(number: int) -> tuple[ElementStatus, ...]:
    """Elements that have failed."""
    return tuple(ElementStatus(index, None, (), FAILED) for index in range(number))


def with_metrics(number: int, steps: Sequence[float]) -> SharedRun:
    """A run that logged so many metrics at each step."""
    names = tuple(f"m{index}" for index in range(number))
    values: dict[str, Value] = dict.fromkeys(names, 1.0)
    rows = tuple(MetricsRow(0, 0, step, None, values) for step in steps)
    return shared(metrics=Metrics(names, rows))


def with_table(rows: int, columns: int) -> SharedRun:
    """A sweep without metrics, and with so many elements and parameters."""
    names = tuple(f"p{number}" for number in range(columns))
    parameters = tuple((name, f"{name}-value") for name in names)
    row = SweepRow(run(), 0, None, parameters, FAILED, None, {}, Metrics((), ()))
    table_rows = tuple(replace(row, index=index) for index in range(rows))
    return shared(table=SweepTable(table_rows, None, names, ()))


def with_evidence(*evidence: Evidence) -> SharedRun:
    """A run that failed, with what explain found."""
    item = shared(status=FAILED).item
    return shared(status=FAILED, explanation=Explanation(item, "summary", evidence=evidence))


def test_the_first_twenty_failed_elements_are_named() -> None:
    shown = page(shared(status=FAILED, elements=elements(23)))
    section = text_between(shown, "Failed elements", "Run\n")
    assert section.count("rank 0 failed first") == 20
    assert "3 more did not complete" in section


def test_the_time_line_has_forty_elements() -> None:
    spans = []
    for index in range(42):
        attempt = Attempt(AttemptFolder(Path("/x")), 0, "1", "n0", 1000.0, None, 0.0)
        spans.append(AttemptSpan(attempt, index, ("n0",), 1100.0))
    sweep = shared(status=FAILED, elements=elements(42))
    shown = page(replace(sweep, attempts=tuple(spans)))
    assert "2 more elements are left out." in shown.text


def test_the_table_of_a_sweep_has_five_hundred_rows() -> None:
    shown = page(with_table(502, 1))
    assert shown.text.count("p0-value") == 500
    assert "2 more elements are left out." in shown.text


def test_the_table_of_a_sweep_has_thirty_parameters() -> None:
    assert page(with_table(1, 32)).text.count("-value") == 30


def test_the_table_of_a_sweep_has_thirty_metrics() -> None:
    table = with_table(1, 0).table
    assert table is not None
    names = tuple(f"metric-{number}" for number in range(32))
    shown = page(shared(table=replace(table, names=names)))
    assert shown.text.count("metric-") == 30


def test_twenty_four_metrics_have_charts_the_others_last_values() -> None:
    shown = page(with_metrics(26, (1.0, 2.0)))
    assert shown.text.count("last 1 at step 2") == 24
    assert "\nm241\nm251\n" in shown.text


def test_a_hundred_metrics_without_a_chart_are_shown() -> None:
    assert "2 more metrics are left out." in page(with_metrics(102, (1.0,))).text


def test_a_cause_shows_forty_lines_of_each_source() -> None:
    lines = tuple(f"line {number}." for number in range(42))
    shown = page(with_evidence(Evidence("rank 0", None, lines)))
    assert "line 39." in shown.text
    assert "line 40." not in shown.text


@pytest.mark.parametrize(
    ("who", "number", "is_row"),
    [
        pytest.param("a" * 29, 1, True, id="a short name"),
        pytest.param("a" * 30, 1, False, id="a long name"),
        pytest.param("a" * 29, 2, False, id="two lines"),
    ],
)
def test_one_line_stands_beside_a_short_name_of_its_source(
    who: str, number: int, *, is_row: bool
) -> None:
    first = Evidence("rank 0", None, ("first",))
    second = Evidence(who, None, ("second",) * number)
    shown = page(with_evidence(first, second))
    assert (f"{who}second" in shown.text) == is_row


def test_a_line_of_two_thousand_characters_is_whole() -> None:
    whole = "a" * 2000
    longer = "b" * 2001
    shown = page(shared(script=SharedText(f"{whole}\n{longer}\n")))
    assert f"{whole}\n{longer[:2000]}… (2001 characters)" in shown.text


def test_a_name_of_two_hundred_characters_is_whole() -> None:
    assert f"{'a' * 200}: " in page(shared(run(name="a" * 200))).text
    assert f"{'a' * 199}…: " in page(shared(run(name="a" * 201))).text


@pytest.mark.parametrize(("part", "characters"), [("script", 200_000), ("diff", 400_000)])
def test_the_script_and_the_changes_have_their_room(part: str, characters: int) -> None:
    whole = LINE * (characters // 100 - 1) + "x" * 100
    fields: dict[str, Any] = {part: SharedText(whole)}
    assert "not shown" not in page(shared(**fields)).text
    fields = {part: SharedText(f"{whole}y")}
    shown = page(shared(**fields))
    assert "xy" not in shown.text
    assert "1 kB more are not shown." in shown.text


def test_five_thousand_lines_of_changes_are_shown() -> None:
    shown = page(shared(diff=SharedText("+a\n" * 5100)))
    assert shown.text.count("+a\n") == 5000
    assert "1 kB more are not shown." in shown.text


@pytest.mark.parametrize(("lines", "is_open"), [(60, True), (61, False)])
def test_changes_of_sixty_lines_are_open(lines: int, *, is_open: bool) -> None:
    shown = page(shared(diff=SharedText("+a\n" * lines)))
    opened = [name for tag, name, _ in shown.attributes if tag == "details"]
    assert opened == (["open"] if is_open else [])


def test_the_end_of_a_log_has_sixty_thousand_characters() -> None:
    whole = LINE * 600
    assert "not shown" not in page(shared(logs=(("rank 0", SharedText(whole)),))).text
    shown = page(shared(logs=(("rank 0", SharedText(f"{whole}y")),)))
    assert shown.text.count(LINE) == 599
    assert "1 kB before these lines are not shown." in shown.text


def test_the_first_two_logs_are_open() -> None:
    end = SharedText("text\n")
    shown = page(shared(logs=(("rank 0", end), ("rank 1", end), ("rank 2", end))))
    assert [name for tag, name, _ in shown.attributes if tag == "details"] == ["open", "open"]
