"""Limits in a configuration: which numbers they take, and which of several holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.cli.configuration import Configuration
from hpcrun.errors import ProfileError
from hpcrun.profiles.config import load_config
from hpcrun.profiles.limits import CostLimit, Limits, limits_of, read_limit, smallest

HERE = Path("/one")
THERE = Path("/two")


def test_the_smallest_of_each_kind_holds() -> None:
    first = limits_of({"gpus_per_job": 8, "gpu_hours_per_day": 100}, HERE)
    second = limits_of({"gpus_per_job": 4, "gpu_hours_per_job": 0}, THERE)
    assert smallest([first, second]) == Limits(
        CostLimit(4, THERE), CostLimit(0, THERE), CostLimit(100, HERE)
    )


def test_without_a_file_there_is_no_limit() -> None:
    assert smallest([]).is_empty
    assert not limits_of({"gpus_per_job": 0}, HERE).is_empty


@pytest.mark.parametrize("value", ["0", "8", "0.5", 8])
def test_a_limit_is_a_number(value: object) -> None:
    assert read_limit(value) == float(str(value))


@pytest.mark.parametrize("value", ["", "-1", "inf", "nan", "1e9", "8h", "none", None, True, [8]])
def test_nothing_else_is_a_limit(value: object) -> None:
    with pytest.raises(ValueError, match="takes a number, such as 8"):
        read_limit(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits: 8\n", "limits: takes a section with gpus_per_job"),
        ("limits:\n  gpus_per_job: many\n", r"limits\.gpus_per_job: takes a number"),
        ("limits:\n  gpus: 8\n", r"limits\.gpus: there is no such limit; there are: gpus_per_job"),
    ],
)
def test_a_mistake_removes_no_limit(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ProfileError, match=message):
        load_config([tmp_path])


def test_a_project_raises_no_limit_of_the_user(tmp_path: Path) -> None:
    for name, most in (("project", 1000), ("user", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"limits: {{gpus_per_job: {most}}}\n")
    limits = load_config([tmp_path / "project", tmp_path / "user"]).limits
    assert limits.gpus_per_job == CostLimit(4, tmp_path / "user/config.yaml")


def test_folders_that_no_variable_moves_limit_too(tmp_path: Path) -> None:
    for name, most in (("user", 8), ("fixed", 4)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"limits: {{gpus_per_job: {most}}}\n")
    configuration = Configuration(
        None,
        tmp_path / "user",
        tmp_path / "site",
        trusted=tmp_path / "trust",
        announce=None,
        limiting=(tmp_path / "fixed", tmp_path / "user"),
    )
    assert configuration.limits.gpus_per_job == CostLimit(4, tmp_path / "fixed/config.yaml")
