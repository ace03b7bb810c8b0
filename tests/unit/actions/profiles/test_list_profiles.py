"""Which shipped profiles are of other machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.profiles.list_profiles import ProfileRow, _is_elsewhere
from hpcrun.job.profile_model import Profile

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
