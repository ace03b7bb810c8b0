"""The first failure is the answer: real runs whose ranks ended in another order (data/explain/make.py)."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from tests.harness import REPO
from tests.unit.explain.test_corpus import explained

RUNS = REPO / "tests/data/explain/order"
NAMES = sorted(path.parent.name for path in RUNS.glob("*/case.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_failure_is_the_answer(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(RUNS / name, folder)
    case = YAML(typ="safe").load((folder / "case.yaml").read_text("utf-8"))
    for path, written_s in json.loads((folder / "written.json").read_text()).items():
        os.utime(folder / path, (written_s, written_s))
    said = explained(folder)
    assert case["expect"] in said.summary
    assert said.rank == case["rank"]
    earlier = any("no later one came further" in line for part in said.evidence for line in part.lines)
    assert earlier == name.startswith("restart-")
