"""Which running runs are silent for so long that status has a word for it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hpcrun.actions.status.run_status import RunStatus, StatusResult
from hpcrun.actions.status.status import first_silent, with_silence
from hpcrun.job.layout import RunFolder
from hpcrun.runs.record import LastStatus
from tests.unit.given import run, write

NOW_S = 1_800_000_000.0
STARTED_S = NOW_S - 36_000


def silence(path: Path, state: str = "RUNNING", elapsed_s: int = 36_000) -> float | None:
    item = RunStatus(run(), path, LastStatus(state, NOW_S, elapsed_s=elapsed_s), live=True)
    (found,) = with_silence(StatusResult((item,)), NOW_S).runs
    return found.silent_s


def wrote(path: Path, rank: int, text: str, ago_s: float, kind: str = "out") -> None:
    folder = RunFolder(path).element(0).attempt(0)
    write(folder.start, json.dumps({"job_id": "4711", "host": "n0", "started": STARTED_S}))
    file = write(folder.rank_metrics(rank) if kind == "metrics" else folder.rank_log(rank, kind), text)
    os.utime(file, (NOW_S - ago_s,) * 2)


def metrics(pause_s: float, ago_s: float) -> str:
    times = (NOW_S - ago_s - number * pause_s for number in reversed(range(20)))
    return "".join(json.dumps({"time": at_s, "step": 1, "loss": 1.0}) + "\n" for at_s in times)


@pytest.mark.parametrize(("ago_s", "expected"), [(590, None), (720, 720)])
def test_ten_minutes_are_long_for_a_run_that_writes_each_second(
    tmp_path: Path, ago_s: float, expected: float | None
) -> None:
    wrote(tmp_path, 0, metrics(1, ago_s), ago_s, "metrics")
    assert silence(tmp_path) == expected


@pytest.mark.parametrize(("ago_s", "expected"), [(1700, None), (1900, 1900)])
def test_a_run_that_writes_every_ten_minutes_may_be_silent_for_longer(
    tmp_path: Path, ago_s: float, expected: float | None
) -> None:
    wrote(tmp_path, 0, metrics(600, ago_s), ago_s, "metrics")
    assert silence(tmp_path) == expected


@pytest.mark.parametrize(("ago_s", "expected"), [(1700, None), (1900, 1900)])
def test_without_a_pace_half_an_hour_is_long(tmp_path: Path, ago_s: float, expected: float | None) -> None:
    wrote(tmp_path, 0, "begins\n", ago_s)
    assert silence(tmp_path) == expected


def test_the_times_of_lines_show_the_pace(tmp_path: Path) -> None:
    wrote(tmp_path, 0, "".join(f"[{int(NOW_S) - 9000 + 900 * n}] epoch {n}\n" for n in range(9)), 1800)
    assert silence(tmp_path) is None


def test_lines_without_times_have_a_mean_pace(tmp_path: Path) -> None:
    wrote(tmp_path, 0, "epoch\n" * 10, 6000)  # 3000 s each
    assert silence(tmp_path) is None
    wrote(tmp_path, 0, "step\n" * 64, 6000)
    assert silence(tmp_path) == 6000


def test_the_mean_pace_is_that_of_all_lines_and_not_of_the_last_ones(tmp_path: Path) -> None:
    wrote(tmp_path, 0, "step\n" * 35_000, 720)  # one each second
    assert silence(tmp_path) == 720


def test_any_rank_that_writes_counts(tmp_path: Path) -> None:
    wrote(tmp_path, 0, "step\n" * 9, 7200)
    wrote(tmp_path, 3, "step\n" * 9, 30, "err")
    assert silence(tmp_path) is None


def test_a_run_that_prints_nothing_has_just_started_or_does_not_run_is_not_silent(tmp_path: Path) -> None:
    assert silence(tmp_path) is None
    wrote(tmp_path, 0, "", 7200)
    assert silence(tmp_path) is None
    wrote(tmp_path, 0, "step\n" * 9, 20_000)
    assert silence(tmp_path) == 20_000
    assert silence(tmp_path, elapsed_s=300) is None  # requeued: a new attempt that has not begun
    assert silence(tmp_path, "PENDING") is None
    end = {"status": 0, "signal": "", "ended": NOW_S}
    write(RunFolder(tmp_path).element(0).attempt(0).exit, json.dumps(end))
    assert silence(tmp_path) is None


def test_the_hint_is_for_the_run_that_has_been_silent_for_the_longest_time() -> None:
    ages = (None, 700.0, 900.0)
    items = [RunStatus(run(), Path(), LastStatus("RUNNING", NOW_S), silent_s=age) for age in ages]
    found = first_silent(items)
    assert found is not None
    assert found.silent_s == 900
    assert first_silent(items[:1]) is None
