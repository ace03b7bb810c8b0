"""The variables of a profile, and what is refused of a job's variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.profiles.variables import (
    JobHardware,
    ProfileVariables,
    check_job_env,
    find_variables,
)
from hpcrun.errors import NotFoundError, ProfileError, UsageError
from hpcrun.job.text.recognise_secrets import MASK
from hpcrun.profiles.load import load_profile
from hpcrun.profiles.variable_catalogue import Variable
from tests.unit.builders import request, surroundings, write

OWN = """extends: a100
secrets: [HF_TOKEN]
env: {NCCL_DEBUG: INFO, MODE: fast}
"""


def found(folder: Path, name: str) -> Variable | ProfileVariables:
    write(folder / "profiles/mine.yaml", OWN)
    return find_variables(name, surroundings(folder, own=(folder,)))


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "nccl_debug"])
def test_a_variable_is_found_in_any_case(name: str, tmp_path: Path) -> None:
    variable = found(tmp_path, name)
    assert isinstance(variable, Variable)
    assert variable.name == "NCCL_DEBUG"


@pytest.mark.parametrize("by_path", [False, True], ids=["name", "path"])
def test_the_variables_of_a_profile_hide_its_secrets(by_path: bool, tmp_path: Path) -> None:
    name = f"{tmp_path}/profiles/mine.yaml" if by_path else "mine"
    variables = found(tmp_path, name)
    assert isinstance(variables, ProfileVariables)
    values = {row.name: row.value for row in variables.set_here}
    own = {"NCCL_DEBUG": "INFO", "MODE": "fast", "HF_TOKEN": MASK}
    assert own.items() <= values.items()
    assert all(variable.hpcrun for variable in variables.by_script)
    assert variables.by_script


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("min", "did you mean 'mine'?"),
        ("NCCL_DEBUGG", "did you mean 'NCCL_DEBUG'?"),
        ("qqqqqqqqqqqq", "hpcrun profile env lists the variables"),
    ],
)
def test_an_unknown_name_is_an_error_with_a_similar_one(
    name: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(NotFoundError, match="there is no variable and no profile") as refused:
        found(tmp_path, name)
    assert refused.value.hint == hint


IMPOSSIBLE = "NCCL_DEBUG=LOUD"


def check(folder: Path, profile: str, *, of_profile: bool = True, **asked: Any) -> None:
    own = write(folder / "profiles/mine.yaml", profile).parent
    loaded = load_profile("mine", surroundings(folder, own=(own.parent,)).profile_folders)
    check_job_env(request(**asked), loaded, JobHardware("a100", 2), of_profile=of_profile)


def test_an_impossible_value_of_an_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--env {IMPOSSIBLE}") as refused:
        check(tmp_path, "extends: a100\n", env=[IMPOSSIBLE])
    assert refused.value.hint == "hpcrun profile env NCCL_DEBUG explains it"


BAD = "extends: a100\nenv: {NCCL_DEBUG: LOUD}\n"


def test_an_impossible_value_is_refused_at_the_profiles_line(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=rf"mine\.yaml:2.*: env\.{IMPOSSIBLE}"):
        check(tmp_path, BAD)


def test_an_option_overrides_an_impossible_value_of_a_profile(tmp_path: Path) -> None:
    check(tmp_path, BAD, env=["NCCL_DEBUG=INFO"])


def test_variables_that_a_job_does_not_get_are_not_checked(tmp_path: Path) -> None:
    check(tmp_path, BAD, of_profile=False)
