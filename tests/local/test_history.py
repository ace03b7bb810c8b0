"""hpcrun history, of runs that were written down."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest

from tests.harness import Hpcrun
from tests.local.recorded import record, replace_fields

HOUR = 3600.0


def of_cluster(hpcrun: Hpcrun, name: str, hours: float, status: int = 0) -> Path:
    """A run on a cluster, four GPUs for so many hours until now."""
    run, ended = record(hpcrun, name, scheduler="slurm"), time.time() - 60
    began = ended - hours * HOUR
    replace_fields(
        run.folder / "run.json", cluster="far", nodes=2, gpus_per_node=2, created_s=began - 120
    )
    run.ended(ended, status)
    replace_fields(run.attempt(over=False) / "start", job_id="7", host="n1", started=began)
    return run.folder


def test_a_history_as_a_table_csv_json_and_figure(hpcrun: Hpcrun) -> None:
    of_cluster(hpcrun, "train", 2)
    failed = of_cluster(hpcrun, "evaluate", 1, status=3)
    record(hpcrun, "laptop")
    shown = hpcrun("history", "--by", "name", check=True).stdout
    first, second, total = (line.split() for line in shown.splitlines()[1:4])
    assert first == ["train", "1", "100", "%", "8.0", "0", "2", "min", "2", "min"]
    assert second[:6] == ["evaluate", "1", "0", "%", "4.0", "4.0"]
    assert total[:6] == ["total", "2", "50", "%", "12", "4.0"]
    assert ["exit", "status", "3", "1", "4.0"] in [line.split() for line in shown.splitlines()]
    assert "lost     4.0 GPU-hours (33 %) in attempts that failed" in shown
    assert f"counted  2 runs in {hpcrun.runs} since " in shown
    assert "1 run on this machine not counted" in shown
    # it is not examined again
    assert json.loads((failed / "status.json").read_text())["rule"] == ""
    rows = csv.DictReader(
        io.StringIO(hpcrun("history", "--by", "cluster", "--csv", check=True).stdout)
    )
    assert [(row["group"], row["ended"], row["success"]) for row in rows] == [("far", "2", "0.5")]
    document = hpcrun.document("history", check=True)
    assert sum(row["ended"] for row in document["rows"]) == document["total"]["ended"] == 2
    figure = hpcrun("history", "--plot", "use.pdf", check=True)
    assert figure.stdout == "written  use.pdf\n"
    assert (hpcrun.folder / "use.pdf").read_bytes().startswith(b"%PDF")
    exists = hpcrun("history", "--plot", "use.pdf")
    assert (exists.returncode, "replace it with --force" in exists.stderr) == (4, True)


def test_what_history_does_not_understand(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    for words, message in (
        (("--by", "weak"), "--by weak: no such choice\nhint: did you mean 'week'?"),
        (("--since", "30"), "--since: '30' has no unit; write 30m for minutes, or 30s, 30h or 30d"),
        (("--since", "lately"), "--since: 'lately' is not a time"),
        (("--since", "lately"), "hint: --since 30d, --since 8w, --since 2026-10-01"),
        (("--since", "2999-01-01"), "--since 2999-01-01: lies in the future"),
        (("--plot", "use.tiff"), "must end with .png, .pdf or .svg"),
        (("--csv", "--json"), "--csv and --json cannot be combined"),
    ):
        with subtests.test(words=words):
            done = hpcrun("history", *words)
            assert done.returncode == 2
            assert message in done.stdout + done.stderr
    assert (
        "no runs on a cluster in this time" in hpcrun("history", "--since", "8w", check=True).stdout
    )
