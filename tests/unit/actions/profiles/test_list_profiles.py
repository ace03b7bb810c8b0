"""Which shipped profiles are of other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.profiles.list_profiles import ProfileRow, _is_elsewhere, list_profiles
from hpcrun.job.profile_model import Profile
from hpcrun.profiles.config import Config
from tests.unit.builders import surroundings, write

CLUSTER = Profile(
    name="detected",
    gpu={"types": {"nvidia_h100_80gb_hbm3": {"per_node": 8}, "own": {"per_node": 1}}},
)


def row(*, default: bool = False, shipped: bool = True, **values: Any) -> ProfileRow:
    return ProfileRow("a", Path("a"), default, Profile(name="a", **values), shipped=shipped)


@pytest.mark.parametrize(
    ("listed", "cluster", "expected"),
    [
        (row(gpu={"type": "a100"}), CLUSTER, True),
        (row(gpu={"type": "h100"}), CLUSTER, False),  # under another name
        (row(gpu={"type": "own"}), CLUSTER, False),
        (row(), CLUSTER, False),  # for CPUs
        (row(gpu={"type": "a100"}, shipped=False), CLUSTER, False),  # the user's own
        (row(gpu={"type": "a100"}, default=True), CLUSTER, False),
        (row(gpu={"type": "h100"}), None, True),  # there is no Slurm
        (row(), None, True),
        (row(scheduler="local"), None, False),
        (ProfileRow("a", Path("a"), False, None, "broken", shipped=True), CLUSTER, False),
    ],
)
def test_a_shipped_profile_is_of_another_machine(
    listed: ProfileRow, cluster: Profile | None, expected: bool
) -> None:
    assert _is_elsewhere(listed, cluster) is expected


@pytest.mark.parametrize(
    ("env", "configured", "default"),
    [
        pytest.param({"HPCRUN_PROFILE": "mine"}, "a100", "mine", id="variable"),
        pytest.param({}, "a100", "a100", id="configuration"),
        pytest.param({}, None, "local", id="neither"),
    ],
)
def test_one_profile_is_the_default(
    env: dict[str, str], configured: str | None, default: str, tmp_path: Path
) -> None:
    write(tmp_path / "profiles/mine.yaml", "extends: a100\n")
    config = Config(profile=configured)
    rows = list_profiles(surroundings(tmp_path, env, own=(tmp_path,), config=config))
    assert [row.name for row in rows if row.default] == [default]


def test_a_broken_profile_is_listed_with_its_problem(tmp_path: Path) -> None:
    write(tmp_path / "profiles/broken.yaml", "gpus: 4\n")
    write(tmp_path / "profiles/mine.yaml", "extends: a100\n")
    rows = {row.name: row for row in list_profiles(surroundings(tmp_path, {}, own=(tmp_path,)))}
    assert list(rows) == sorted(rows)
    assert rows["broken"].profile is None
    assert "gpus" in (rows["broken"].problem or "")
    assert rows["mine"].problem is None
    assert not rows["mine"].shipped
    assert not rows["mine"].elsewhere
    assert rows["a100"].shipped
    assert rows["a100"].elsewhere  # there is no Slurm here
