"""How doctor judges what a profile puts into a job's environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.features.doctor.profile import judge_modules, judge_variables
from hpcrun.profiles.folder import shipped_folder
from hpcrun.profiles.load import load_profile
from hpcrun.schedulers.host import ModuleFacts
from tests.unit.given import write


def test_a_value_that_cannot_be_is_red_and_what_submit_remarks_on_yellow(tmp_path: Path) -> None:
    text = "extends: l40s\nenv:\n  NCCL_IB_RETRY_CNT: 13\n  NCCL_TIMEOUT: 5\n"
    path = write(tmp_path / "mine.yaml", text)
    checks = judge_variables(load_profile(str(path), [shipped_folder("cluster_profiles")]))
    assert [check.level for check in checks] == ["red", "yellow"]
    assert checks[0].seen == f"NCCL_IB_RETRY_CNT=13: this value cannot be; it takes 0 to 7 ({path}:3)"
    assert all(check.fix for check in checks)


def test_right_variables_are_one_line(tmp_path: Path) -> None:
    (check,) = judge_variables(load_profile("a100", [shipped_folder("cluster_profiles")]))
    assert (check.level, check.seen) == ("green", "NCCL_DEBUG CUDA_DEVICE_ORDER")
    assert judge_variables(load_profile("local", [shipped_folder("cluster_profiles")])) == []


@pytest.mark.parametrize(
    ("facts", "level", "says"),
    [
        (ModuleFacts(True, {}), "green", "gcc cuda: loaded in this order"),
        (ModuleFacts(True, {"cuda": "is unknown"}), "red", "cuda cannot be loaded: is unknown"),
        (ModuleFacts(False, {}), "red", "no module command"),
        (ModuleFacts(True, {}, "timed out after 10 s"), "yellow", "not checked: timed out after 10 s"),
        (None, "yellow", "not checked: no response"),
    ],
)
def test_modules(facts: ModuleFacts | None, level: str, says: str) -> None:
    check = judge_modules(["gcc", "cuda"], facts)
    assert check.level == level
    assert says in check.seen
