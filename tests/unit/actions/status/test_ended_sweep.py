"""A sweep that is over: its elements are read when one is needed, and their own records decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus, counts_in, counts_text
from hpcrun.actions.status.status_query import last_known
from hpcrun.files.reading import read_object
from hpcrun.views.status_table import why_text
from tests.unit.actions.status.test_poll import NOW, RUN_ID, Site

STATES = ["COMPLETED", "FAILED", "CANCELLED", "COMPLETED"]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A sweep of four elements that is over, and that squeue has forgotten."""
    site = Site(tmp_path)
    site.has("0-3")
    for element, status in ((0, 0), (1, 7), (3, 0)):
        site.starts(element, status=status)
    site.says({f"4711_{element}": state for element, state in enumerate(STATES)})
    item = site.status()
    assert item.status.state == "FAILED"
    assert item.status.final is True
    assert states(item) == STATES
    site.says({})
    assert site.status().status.forgotten
    site.is_away()
    return site


def states(item: RunStatus) -> list[str]:
    return [element.status.state for element in item.elements]


def test_a_look_at_an_ended_sweep_reads_nothing_of_its_elements(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def read(path: Path, most: int) -> dict[str, object]:
        opened.append(path.name)
        return read_object(path, most)

    monkeypatch.setattr("hpcrun.runs.elements.read_object", read)
    for item in (site.status(), *last_known([RUN_ID], store=site.store, now_s=NOW).runs):
        assert item.status.state == "FAILED"
        assert item.stale is False
        assert len(item.elements) == 4
        assert why_text(item, NOW) == "4 elements: 2 completed, 1 cancelled, 1 failed"
        assert item.never_starts is None
        assert opened == []
        assert states(item) == STATES
        assert [element.index for element in item.elements[1:3]] == [1, 2]
        assert opened == ["elements.json"]  # once, however often the elements are needed
        opened.clear()


@pytest.mark.parametrize(
    "saved",
    [
        pytest.param(None, id="lost"),
        pytest.param("{", id="damaged"),
        pytest.param('{"0": 3, "1": {"state": 7}, "x": {}}', id="other things"),
        pytest.param(json.dumps({"0": {"state": "RUNNING", "asked_s": NOW}}), id="stale"),
    ],
)
def test_of_a_lost_damaged_or_stale_summary_the_records_of_the_elements_decide(
    site: Site, saved: str | None
) -> None:
    summary = site.store.folder(RUN_ID) / "elements.json"
    if saved is None:
        summary.unlink()
    else:
        summary.write_text(saved)
    item = site.status()
    assert item.status.state == "FAILED"
    assert item.status.final is True
    # of an element without a record of its own nothing is known
    assert states(item) == ["COMPLETED", "FAILED", "UNKNOWN", "COMPLETED"]
    assert [element.status.exit_status for element in item.elements] == [0, 7, None, 0]
    assert not any(element.live for element in item.elements)
    site.store.folder(RUN_ID).joinpath("elements/2").mkdir()
    site.store.folder(RUN_ID).joinpath("elements/2/cancelled").touch()
    assert states(site.status()) == STATES


def test_a_sweep_whose_end_was_not_saved_is_over_by_its_elements(
    site: Site, subtests: pytest.Subtests
) -> None:
    folder = site.store.folder(RUN_ID)
    for saved in (None, "{", json.dumps({"state": "RUNNING", "asked_s": 1.0})):
        with subtests.test(saved=saved):
            status = folder / "status.json"
            status.unlink()
            if saved is not None:
                status.write_text(saved)
            site.says({})
            item = site.status()
            assert item.status.state == "FAILED"
            assert item.status.final is True
            assert states(item) == STATES
            assert site.store.last_status(RUN_ID) == item.status


def test_the_failed_elements_of_a_sweep_are_counted_without_a_look_at_them(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = site.store.last_status(RUN_ID)
    assert last is not None
    site.store.save_status(RUN_ID, replace(last, cause="x is 3"))
    item = site.status()
    with monkeypatch.context() as patch:
        patch.setattr("hpcrun.actions.status.status_query.load_statuses", None)
        assert why_text(item, NOW) == "1 of 4 failed: x is 3"
    # a reason that another version wrote, and some of the elements: they are read
    for changes in ({"status": replace(item.status, reason="?")}, {"elements": item.elements[:2]}):
        changed = replace(item, **changes)
        text = f"1 of {len(changed.elements)} failed: x is 3"
        assert why_text(changed, NOW).startswith(text)


@pytest.mark.parametrize("number", [1, 3, 1000])
def test_the_numbers_of_elements_are_read_as_they_are_written(number: int) -> None:
    states = ["COMPLETED"] * number + ["NODE_FAIL", "OUT_OF_MEMORY", "NODE_FAIL"]
    counts = {"completed": number, "node fail": 2, "out of memory": 1}
    assert counts_in(counts_text(states)) == counts
    assert counts_in("Dependency") == {}
