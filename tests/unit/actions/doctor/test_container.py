"""How doctor judges the container of a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.features.doctor.profile import judge_container
from tests.unit.given import cluster, laptop, write


def test_a_profile_without_an_image_has_nothing_to_judge() -> None:
    assert judge_container(cluster(), {}) == []


def test_what_is_here_is_green(tmp_path: Path) -> None:
    write(tmp_path / "torch.sif", "")
    write(tmp_path / "apptainer", "#!/bin/sh\n").chmod(0o755)
    profile = cluster(container={"image": str(tmp_path / "torch.sif")})
    checks = judge_container(profile, {"PATH": str(tmp_path)})
    assert [(check.name, check.level) for check in checks] == [("container", "green"), ("image", "green")]


@pytest.mark.parametrize(("profile", "level"), [(cluster, "yellow"), (laptop, "red")])
def test_a_runtime_that_is_not_here_may_be_on_the_nodes(profile: type, level: str, tmp_path: Path) -> None:
    checks = judge_container(profile(container={"image": "/no/torch.sif"}), {"PATH": str(tmp_path)})
    assert [(check.name, check.level) for check in checks] == [("container", level), ("image", "red")]
    assert all(check.fix for check in checks)
