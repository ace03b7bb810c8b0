"""--cancel-idle and the profile's cancel_idle: a limit for idle GPUs, where there are GPUs and samples of them."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.profile import Profile
from hpcrun.views.plan import plan_lines
from tests.unit.given import cluster, cpu_cluster, plan, script


@pytest.mark.parametrize(
    ("profile", "asked", "idle_s"),
    [
        ({}, {}, None),
        ({}, {"cancel_idle_s": "30m"}, 1800),
        ({"cancel_idle": "2h"}, {}, 7200),
        ({"cancel_idle": "2h"}, {"cancel_idle_s": "30m"}, 1800),
        ({"cancel_idle": "2h"}, {"cancel_idle_s": "0"}, None),
        ({"cancel_idle": "2h"}, {"gpus": "0"}, None),
        ({"cancel_idle": "2h"}, {"preflight": "only"}, None),
    ],
)
def test_the_limit_is_that_of_the_option_then_that_of_the_profile(
    profile: dict[str, Any], asked: dict[str, Any], idle_s: int | None
) -> None:
    assert plan(cluster(**profile), **asked).cancel_idle_s == idle_s


@pytest.mark.parametrize(
    ("profile", "asked", "message"),
    [
        (cpu_cluster(), {"cancel_idle_s": "30m"}, "this job has no GPU that could be idle"),
        (cluster(), {"cancel_idle_s": "30m", "gpus": "0"}, "this job has no GPU that could be idle"),
        (cluster(sample_use=False), {"cancel_idle_s": "30m"}, "--cancel-idle needs samples of the GPUs"),
        (cluster(sample_use=False, cancel_idle="2h"), {}, "^cancel_idle needs samples of the GPUs"),
        (cluster(), {"cancel_idle_s": "30"}, "'30' has no unit; write 30m for minutes"),
        (cluster(), {"cancel_idle_s": "soon"}, "--cancel-idle: 'soon' is not a time"),
    ],
)
def test_a_limit_that_cannot_be_is_refused(profile: Profile, asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        plan(profile, **asked)


def test_the_script_and_the_plan_show_it() -> None:
    decided = plan(cancel_idle_s="90m", requeue="2", gpus="8", nodes="2")
    text = script(decided).text
    assert 'job --came "$came" --warn 100 --requeue 2 --cancel-idle 5400 -- \\\n' in text
    assert len(text.splitlines()) <= 70
    assert [line for line in plan_lines(decided) if line.startswith("idle ")] == [
        "idle       ends if all of its GPUs are idle for 01:30:00"
    ]


def test_a_site_can_switch_the_samples_off() -> None:
    assert 'job --came "$came" --sample 0 -- \\\n' in script(plan(cluster(sample_use=False))).text
    assert "--sample" not in script(plan()).text
