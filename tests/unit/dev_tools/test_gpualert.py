"""The benchmark of GPUAlert: a log counts only if hpcrun's summary names its class."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.harness import REPO
from tests.unit.builders import write


@pytest.fixture(scope="module")
def gpualert() -> dict[str, Any]:
    return runpy.run_path(str(REPO / "benchmarks/gpualert.py"))


@pytest.mark.parametrize(
    ("summary", "label"),
    [
        ("RuntimeError: Expected all tensors to be on the same device", "device_mismatch"),
        ("RuntimeError: a size is wrong", "runtime_error"),
        ("rank 3 on gpu-1 failed first: KeyError: 'lr' at train.py:9", "traceback"),
        ("AssertionError at model.py:130", "assertion"),
        ("no failure is recognized in this log", "generic"),
    ],
)
def test_a_summary_counts_as_the_class_that_it_names(
    gpualert: dict[str, Any], summary: str, label: str
) -> None:
    assert gpualert["class_of"](summary) == label


def test_a_wrong_log_is_shown_and_fails_the_demand(
    gpualert: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"log_path": "corpus/wild/a-wild-01.log", "source": "wild", "mode": "nccl"}
    write(tmp_path / "corpus/labels.jsonl", json.dumps(row))
    write(tmp_path / "corpus/wild/wild_labels.tsv", "# id\na-wild-01\tnccl\t1\n")
    write(tmp_path / row["log_path"], "all is well\n")
    for name in ("exp1_summary.csv", "exp1_by_source.csv"):
        write(tmp_path / "results" / name, "source,classifier,macro_f1,accuracy\n")
    names = ("accuracy", "macro_f1", "grep")
    functions = {name: lambda *_: 0.0 for name in names}
    assert gpualert["measure"](gpualert["Benchmark"](tmp_path, **functions)) == 1
    shown = capsys.readouterr().out
    assert "not nccl: corpus/wild/a-wild-01.log: no failure is recognized in this log" in shown
