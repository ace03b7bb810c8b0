"""The table of offers: when, in words; and the command for the best."""

from __future__ import annotations

from datetime import datetime

import pytest

from hpcrun.features.where.command import (
    Misfit,
    Offer,
    Placement,
    misfit_lines,
    offers_table,
    start_text,
    submit_line,
)
from hpcrun.schedulers.job_start import JobStart
from tests.unit.builders import drawn, plan, request

NOW = datetime(2026, 11, 21, 4, 20).timestamp()


def test_a_start_in_words_and_the_command_for_the_best() -> None:
    starts = {
        -5: "now",
        59: "now",
        60: "in 60 s, 04:21",
        600: "in 10 min, 04:30",
        7800: "in 2 h, 06:30",
        26 * 3600: "in 26 h, Nov 22 06:20",
        20 * 3600: "in 20 h, Nov 22 00:20",
    }
    assert {wait_s: start_text(NOW + wait_s, NOW) for wait_s in starts} == starts
    asked = request(
        "true",
        gpus="h100:8",
        walltime_s="4h",
        constraint="ib&big",
        sbatch=["nice=5", "comment=two words"],
    )
    line = submit_line(
        Offer(Placement("my own.yaml", None, asked, plan()), JobStart(NOW, "n1"), None)
    )
    assert line == (
        "hpcrun submit -P 'my own.yaml' --gpus h100:8 --time 04:00:00 --constraint 'ib&big' "
        "--sbatch nice=5 --sbatch "
        "'comment=two words' SCRIPT"
    )


def shown(width: int, *offers: Offer) -> list[str]:
    return drawn(offers_table(offers, NOW, width), width)


def test_the_table_fits_eighty_columns() -> None:
    candidate = Placement("our-own-cluster", "a100-40gb", request(), plan(gpus="16", nodes=4))
    start = JobStart(
        NOW + 10 * 86400 + 82800, "a100-[1-2,7],b100-[12-13]", "gpu-long-preempt", ("1", "2")
    )
    lines = shown(80, Offer(candidate, start, 1234567.0))
    assert max(map(len, lines)) <= 80
    assert len(lines) < 9
    assert "4 × 4 a100" in lines[1]
    assert "in 10 d, Dec 2 03:20" in lines[1]
    assert lines[1].endswith(" 1234567")


@pytest.mark.parametrize("width", [56, 60, 72, 100])
def test_a_narrow_table_loses_columns_and_no_digit(width: int) -> None:
    starts = {
        "l40s": JobStart(NOW + 8640, "l-[1-2]", "gpu"),
        "a100-40gb": JobStart(NOW + 52000, "a100-[1-2]", "gpu"),
    }
    job = plan(gpus="8", nodes=2)
    offers = (
        Offer(Placement(name, None, request(), job), start, 32.0) for name, start in starts.items()
    )
    heading, *rows = shown(width, *offers)
    assert heading.endswith("GPU-HOURS")
    assert [row.split()[-1] for row in rows] == ["32", "32"]
    assert ("NODES" in heading) == (width >= 60)


def test_a_reason_stands_on_one_line_and_cannot_act_on_a_terminal() -> None:
    misfits = (
        Misfit("p", "h100", "sbatch: error: no\nallocation failure: \x1b[2Jno"),
        Misfit("longer", None, "x"),
    )
    heading, *lines = misfit_lines(misfits)
    assert heading == "does not fit:"
    assert lines == ["  p h100  sbatch: error: no; allocation failure: ?[2Jno", "  longer  x"]
