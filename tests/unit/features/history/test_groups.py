"""The numbers of a history: each counts in the week in which it happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import date, datetime

import pytest

from hpcrun.actions.status.past_jobs import End, JobTime, PastJob
from hpcrun.features.history.history import (
    CauseCount,
    HistoryRow,
    counted_causes,
    grouped,
    is_within,
    monday,
)

HOUR = 3600.0


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The time zone of a place whose clocks change."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def job(
    *times: tuple[float, float] | tuple[float, float, bool],
    gpus: int = 4,
    end: End | None = "completed",
    wait_s: float | None = None,
    name: str = "train",
    cause: str = "",
) -> PastJob:
    spans = tuple(JobTime(*each) for each in times)
    return PastJob(
        name=name,
        project="/p",
        account="lab",
        profile="a100",
        cluster="alpha",
        gpus=gpus,
        cpus=8,
        times=spans,
        end=end,
        ended_s=spans[-1].end_s if spans else 0.0,
        wait_s=wait_s,
        cause=cause,
    )


def rows(
    *jobs: PastJob, by: str = "week", since: float = 0.0, now: float = 4e9
) -> dict[str, HistoryRow]:
    groups, total = grouped(jobs, by, since, now)
    return {group.key: group for group in [*groups, total]}


@pytest.mark.usefixtures("berlin")
def test_a_job_over_sunday_midnight_counts_in_both_weeks_new_year_in_that_of_its_thursday() -> None:
    found = rows(job((at("2026-11-15T22:00"), at("2026-11-16T03:00")), wait_s=60))
    assert {key: group.gpu_hours for key, group in found.items()} == {
        "2026-W46": 8,
        "2026-W47": 12,
        "total": 20,
    }
    assert found["2026-W46"].waits_s == [60]
    assert found["2026-W46"].ended == 0
    assert found["2026-W47"].waits_s == []
    assert found["2026-W47"].ended == 1
    assert found["2026-W47"].week == date(2026, 11, 16)
    found = rows(job((at("2027-01-01T10:00"), at("2027-01-01T11:00"))))
    assert list(found) == ["2026-W53", "total"]
    assert monday(at("2027-01-03T23:59")) == date(2026, 12, 28)


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("begin", "end", "hours", "week"),
    [
        ("2026-03-23", "2026-03-30", 167, "2026-W13"),  # clocks go forward on Sunday
        ("2026-10-19", "2026-10-26", 169, "2026-W43"),  # and back
    ],
)
def test_a_week_in_which_clocks_change(begin: str, end: str, hours: int, week: str) -> None:
    found = rows(job((at(begin), at(end)), gpus=1))
    assert found[week].gpu_hours == hours
    assert list(found) == [week, "total"] or found["total"].gpu_hours == hours


def test_only_what_is_within_the_time_counts_and_weeks_without_a_job_are_shown() -> None:
    early, late = job((0, 10 * HOUR), wait_s=5), job((15 * HOUR, 30 * HOUR), end=None, wait_s=7)
    total = rows(early, late, since=8 * HOUR, now=20 * HOUR)["total"]
    assert total.gpu_hours == (2 + 5) * 4
    assert total.waits_s == [7]
    assert total.ended == 1
    found, _ = grouped([job((0, 10)), job((21 * 86400, 21 * 86400 + 10))], "week", 0, 4e9)
    assert [group.ended for group in found] == [1, 0, 0, 1]


def test_success_leaves_out_what_was_cancelled_and_waits_are_of_those_that_started() -> None:
    ends: list[End] = ["completed", "completed", "completed", "failed", "cancelled"]
    assert rows(*(job((0, 10), end=end) for end in ends))["total"].success == 0.75
    total = rows(*(job((0, 10), wait_s=wait) for wait in range(1, 11)), by="name")["total"]
    assert total.wait_median_s == 5.5
    assert total.wait_90_percent_s == 9
    none = rows(job((0, 10), end="cancelled"))["total"]
    assert none.success is None
    assert none.wait_median_s is None
    assert none.wait_90_percent_s is None


def test_lost_is_the_time_of_failed_attempts_by_cause_and_cpu_hours_are_of_jobs_without_gpus() -> (
    None
):
    twice = job((0, HOUR, True), (2 * HOUR, 5 * HOUR))
    thin = job((0, HOUR), gpus=0, name="clean")
    found = rows(twice, thin, by="name")
    assert list(found) == ["train", "clean", "total"]
    assert found["train"].gpu_hours == 16
    assert found["train"].lost_gpu_hours == 4
    assert found["train"].cpu_hours == 0
    assert found["clean"].gpu_hours == 0
    assert found["clean"].cpu_hours == 8
    failed = [
        job((0, HOUR, True), end="failed", cause=cause)
        for cause in ("time limit", "KeyError", "KeyError")
    ]
    causes = counted_causes([*failed, job((0, HOUR))], 0)
    assert causes == [CauseCount("KeyError", 2, 8), CauseCount("time limit", 1, 4)]
    assert counted_causes(failed, 2 * HOUR) == []


def test_rows_with_equal_gpu_hours_are_in_the_order_of_their_cpu_hours() -> None:
    short = job((0, HOUR), gpus=0, name="a-short")
    long = job((0, 2 * HOUR), gpus=0, name="b-long")
    assert list(rows(short, long, by="name")) == ["b-long", "a-short", "total"]


def test_an_end_in_the_future_does_not_count() -> None:
    ahead = job((0, 10 * HOUR))
    assert rows(ahead, now=9 * HOUR)["total"].ended == 0
    assert rows(ahead, now=10 * HOUR)["total"].ended == 1


def test_a_job_that_ended_when_the_history_begins_is_within() -> None:
    ended = job((0, HOUR))
    assert is_within(ended, HOUR)
    assert not is_within(ended, HOUR + 1)
