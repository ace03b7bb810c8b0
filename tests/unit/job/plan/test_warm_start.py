"""Which jobs share what their compilers make."""

from __future__ import annotations

from typing import Any

import pytest

from hpcrun.errors import UsageError
from hpcrun.job.plan.warm_start import WarmProgram, decide_warm_start
from hpcrun.job.profile_model import Profile
from tests.unit import builders

WARM = builders.slurm_profile(launch={"warm": True, "warm_variables": ["VLLM_CACHE_ROOT"]})


def decided(profile: Profile | None = None, **asked: Any) -> WarmProgram | None:
    place = {"folder": "/home/me/project", "python": "/opt/venv/bin/python", "name": "train"}
    place |= {name: asked.pop(name) for name in [*place] if name in asked}
    request = builders.request(**asked)
    return decide_warm_start(request, profile or builders.slurm_profile(), **place)


def program(**asked: Any) -> str:
    found = decided(warm=True, **asked)
    assert found
    return found.program


def test_nothing_is_kept_unasked() -> None:
    assert decided() is None


def test_a_profile_can_ask() -> None:
    found = decided(WARM)
    assert found
    assert found.variables == ("VLLM_CACHE_ROOT",)


def test_a_job_can_refuse_what_its_profile_asks() -> None:
    assert decided(WARM, no_warm=True) is None


def test_a_check_of_nodes_compiles_nothing() -> None:
    assert decided(WARM, preflight="only") is None


def test_both_options_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="--warm cannot be combined with --no-warm"):
        decided(warm=True, no_warm=True)


def test_arguments_do_not_matter() -> None:
    assert program(args=["--lr", "1"]) == program(args=["--lr", "2"])


def test_the_name_is_for_people() -> None:
    assert program().startswith("train-")


OTHERS = [
    pytest.param({"folder": "/home/me/other"}, id="folder"),
    pytest.param({"script": "other.py"}, id="program"),
    pytest.param({"python": "/opt/other/bin/python"}, id="Python"),
    pytest.param({"container": "image.sif"}, id="container"),
    pytest.param({"module": True}, id="module"),
]


@pytest.mark.parametrize("other", OTHERS)
def test_another_program_has_files_of_its_own(other: dict[str, Any]) -> None:
    assert program(**other) != program()
