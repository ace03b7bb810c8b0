"""The judge as the job runs it: what it reads, prints and writes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcrun.in_job.preflight import judge
from tests.unit.in_job.attempts import Attempt
from tests.unit.in_job.preflight.test_judge import cluster

Judged = Callable[..., int]


@pytest.fixture
def judged(attempt: Attempt, monkeypatch: pytest.MonkeyPatch) -> Judged:
    """Judge the reports of three nodes, without those that are missing; return the status."""
    hosts, reports = cluster(3)
    (attempt.folder / "hosts").write_text("\n".join(hosts))
    (attempt.folder / "preflight").mkdir()
    monkeypatch.setenv("HPCRUN_NODE_ADDR", "n0-ib")

    def run(*options: str, missing: tuple[str, ...] = ()) -> int:
        for host, report in reports.items():
            if host not in missing:
                path = attempt.folder / f"preflight/{host}.json"
                path.write_text(json.dumps(report))
        monkeypatch.setattr(sys, "argv", ["judge.py", *options])
        monkeypatch.setattr(sys.stdout, "reconfigure", lambda **_: None, raising=False)
        monkeypatch.setattr(sys.stderr, "reconfigure", lambda **_: None, raising=False)
        return judge.main()

    return run


def test_nodes_that_are_well_may_start(
    attempt: Attempt, judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged() == 0
    output, table = capsys.readouterr()
    assert output == "preflight: all nodes are ok\n"
    assert [line.split()[0] for line in table.splitlines()] == ["node", "n0", "n1", "n2"]
    assert attempt.record("preflight/verdict.json")["ok"] is True
    assert not (attempt.folder / "preflight/.verdict.json").exists()


def test_a_node_without_a_report_is_bad(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged("--exclude=m7", missing=("n1",)) == 1
    expected = "preflight: bad: n1 (did not respond); add --exclude=m7,n1\n"
    assert capsys.readouterr().out == expected


def test_on_this_machine_no_node_can_be_excluded(
    judged: Judged, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HPCRUN_NODE_ADDR", "127.0.0.1")
    assert judged(missing=("n1",)) == 1
    assert capsys.readouterr().out == "preflight: bad: n1 (did not respond)\n"


def test_the_rates_of_the_profile_are_compared(
    attempt: Attempt, judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judged("--bf16-tflops=5000") == 0
    assert "slow" in capsys.readouterr().out
    slow = attempt.record("preflight/verdict.json")["slow"]
    assert [node["node"] for node in slow] == ["n0", "n1", "n2"]


def test_if_no_node_answers_srun_s_last_line_says_why(
    attempt: Attempt, judged: Judged, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "srun: error: first\nsrun: error: Unable to create step\n\n"
    (attempt.folder / "preflight/srun.log").write_text(log)
    assert judged(missing=("n0", "n1", "n2")) == 1
    expected = "preflight: no node answered; srun said: srun: error: Unable to create step\n"
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize("text", ["", '{"node": "n1", ', "[]"])
def test_a_report_that_is_cut_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "n1.json").write_text(text)
    (tmp_path / "n2.json").write_text('{"port": 1}')
    reports = judge.read_reports(tmp_path, ["n0", "n1", "n2"])
    assert reports == {"n2": {"node": "n2", "port": 1}}


def test_the_table_has_columns(judged: Judged, capsys: pytest.CaptureFixture[str]) -> None:
    judged()
    header, *rows = capsys.readouterr().err.splitlines()
    labels = re.split(" {2,}", header)
    places = [header.index(f"  {label}") for label in labels[1:]]
    assert len(places) > 5
    assert all(row[place : place + 2] == "  " for row in rows for place in places)
    assert not any(line.endswith(" ") for line in (header, *rows))
