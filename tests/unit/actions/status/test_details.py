"""What an ended run could have asked for, and what a running one says."""

from __future__ import annotations

import json
import os
from pathlib import Path

from hpcrun.actions.status.details import advice, cpu_efficiency, last_line, last_metrics
from hpcrun.schedulers.queue import Usage
from hpcrun.views.details import bar_text
from tests.unit.given import write


def used(**said: float | None) -> Usage:
    values = {"elapsed_s": 7200, "nodes": 2, "cpus": 64, "gpus": 8, "gpu_s": 57_600, "cpu_s": 400_000.0,
              "memory_mb": 256 * 1024.0, "used_mb": 200 * 1024.0}  # fmt: skip
    return Usage(**{**values, **said})  # type: ignore[arg-type]


def test_a_job_that_used_what_it_asked_for_gets_no_advice() -> None:
    assert advice(used(), 9000, completed=True) == []


def test_far_too_much_memory_is_remarked_on_with_a_number() -> None:
    (said,) = advice(used(used_mb=9 * 1024.0), 9000, completed=True)
    assert said.startswith("--mem 12G would have been enough")
    assert advice(used(used_mb=9 * 1024.0), 9000, completed=False) == []
    assert advice(used(used_mb=9 * 1024.0, elapsed_s=20), None, completed=True) == []
    assert advice(used(memory_mb=4096.0, used_mb=10.0), 9000, completed=True) == []


def test_idle_cpus_and_too_long_a_limit_are_remarked_on() -> None:
    assert cpu_efficiency(used(cpu_s=23040.0)) == 0.05
    (said,) = advice(used(cpu_s=23040.0), 9000, completed=True)
    assert said.startswith("1.6 of 32 CPUs per node were busy")
    assert advice(used(cpus=8, cpu_s=60.0), 9000, completed=True) == []  # four of a node are not many
    assert advice(used(cpus=10, cpu_s=60.0), 9000, completed=True) != []
    assert advice(used(elapsed_s=599, cpu_s=60.0), 9000, completed=False) == []
    (said,) = advice(used(), 172_800, completed=True)
    assert "--time" in said
    assert cpu_efficiency(used(cpu_s=None)) is None


def test_the_last_line_and_the_last_metrics_of_rank_0(tmp_path: Path) -> None:
    assert (last_line(tmp_path), last_metrics(tmp_path)) == (None, {})
    attempt = tmp_path / "elements/0/attempts/0"
    write(attempt / "start", json.dumps({"job_id": "1", "host": "n1", "started": 1.0}))
    assert (last_line(tmp_path), last_metrics(tmp_path)) == (None, {})
    write(attempt / "rank-0.out", "first\nepoch 1: 10%\repoch 1: 20%\r\n\n")
    write(attempt / "rank-0.metrics", '{"step": 1, "loss": 0.5}\n{"step": 2, "loss": 0.25}\n{"st')
    assert last_line(tmp_path) == "epoch 1: 20%"
    os.utime(attempt / "rank-0.out", (1000.0, 1000.0))
    write(attempt / "rank-0.err", "INFO epoch 2\n")
    assert last_line(tmp_path) == "INFO epoch 2"  # of the stream that it wrote to last
    assert last_metrics(tmp_path) == {"step": 2, "loss": 0.25}


def test_a_bar_is_never_longer_than_it_is() -> None:
    assert bar_text(1800, 3600) == "██████████░░░░░░░░░░ 50%, 30:00 of 1:00:00"
    assert bar_text(9999, 3600).startswith("████████████████████ 100%")
    assert bar_text(-5, 3600).startswith("░░░░░░░░░░░░░░░░░░░░ 0%")
