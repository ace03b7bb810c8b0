"""The files that init writes: a new profile, and the choices in one that a person has."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.actions.profiles.detect import Choices, Detected
from hpcrun.actions.profiles.edit import Place
from hpcrun.actions.profiles.init_choices import (
    Setup,
    check_choices,
    existing_profile,
    plan_setup,
    unmade,
)
from hpcrun.actions.user_choice import Choice, Option
from hpcrun.errors import ProfileError, UsageError
from hpcrun.profiles.folders import shipped_folder
from hpcrun.schedulers.cluster_facts import Association
from tests.unit.actions.profiles.test_detect import A100, GPU, facts
from tests.unit.builders import slurm_profile, write

LAB = [Association("lab", None, (), None)]
DETECTED = Detected("partition: gpu\n", slurm_profile(partition="gpu", account="lab"), (), ())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Return the folder of a person's profiles, over the shipped ones."""
    user = tmp_path / "profiles"
    return Place(user, [user, shipped_folder("cluster_profiles")])


def planned(place: Place, choices: Choices | None = None, *, anew: bool = False) -> Setup:
    config = place.user.parent / "config.yaml"
    return plan_setup("dev", DETECTED, choices or Choices(), config, None, place, anew=anew)


def after(setup: Setup) -> list[str]:
    assert setup.profile is not None
    return setup.profile.after.splitlines()


def test_a_new_profile_is_the_detected_one(place: Place) -> None:
    setup = planned(place)
    assert after(setup) == ["partition: gpu"]
    assert setup.outdated == ()
    assert [change.path.name for change in setup.files] == ["dev.yaml", "config.yaml"]


def test_a_profile_is_replaced_on_request(place: Place) -> None:
    write(place.user / "dev.yaml", "partition: old\n")
    setup = planned(place, anew=True)
    assert after(setup) == ["partition: gpu"]
    assert setup.outdated == ()


@pytest.mark.parametrize(
    ("before", "chosen", "lines"),
    [
        pytest.param("account: a", {"account": "b"}, ["account: b"], id="account"),
        pytest.param("account: a", {"account": "a"}, ["account: a"], id="same account"),
        pytest.param("account: a", {}, ["account: a"], id="nothing"),
        pytest.param("launcher: srun", {"launcher": "torchrun"}, [], id="torchrun"),
        pytest.param("launcher: srun", {"launcher": "srun"}, ["launcher: srun"], id="same"),
        pytest.param(
            "account: a", {"launcher": "torchrun"}, ["account: a"], id="torchrun is the default"
        ),
        pytest.param(
            "account: a", {"launcher": "srun"}, ["account: a", "launcher: srun"], id="srun"
        ),
    ],
)
def test_a_choice_changes_its_own_line_alone(
    before: str, chosen: dict[str, str], lines: list[str], place: Place
) -> None:
    write(place.user / "dev.yaml", f"# mine\n{before}\n")
    assert after(planned(place, Choices(**chosen))) == ["# mine", *lines]


@pytest.mark.parametrize(
    ("gpu", "chosen", "lines"),
    [
        pytest.param("  type: a100\n", "h100", ["  type: h100"], id="other"),
        pytest.param("  type: a100\n", "a100", ["  type: a100"], id="same"),
        pytest.param("  type: a100\n", "none", [], id="none"),
        pytest.param("", "none", [], id="none already"),
        pytest.param("", "h100", ["  type: h100"], id="first"),
    ],
)
def test_the_chosen_gpu_type_is_that_of_the_profile(
    gpu: str, chosen: str, lines: list[str], place: Place
) -> None:
    types = "  types: {a100: {per_node: 4}, h100: {per_node: 8}}"
    write(place.user / "dev.yaml", f"gpu:\n{types}\n{gpu}")
    assert after(planned(place, Choices(gpu_type=chosen))) == ["gpu:", types, *lines]


def test_an_inherited_gpu_type_is_removed(place: Place) -> None:
    write(place.user / "dev.yaml", "extends: a100\n")
    assert after(planned(place, Choices(gpu_type="none"))) == [
        "extends: a100",
        "gpu:",
        "  type: null",
    ]


def test_values_that_the_cluster_reports_otherwise_are_outdated(place: Place) -> None:
    write(place.user / "dev.yaml", "partition: old\naccount: other\ngpu: {per_node: 4, type: a100}")
    assert planned(place).outdated == ("partition",)


def test_a_broken_profile_may_be_replaced(place: Place) -> None:
    assert existing_profile("dev", place, anew=False) is None
    write(place.user / "dev.yaml", "partition: [\n")
    assert existing_profile("dev", place, anew=True) is None
    with pytest.raises(ProfileError):
        existing_profile("dev", place, anew=False)


@pytest.mark.parametrize(
    ("chosen", "message", "hint"),
    [
        ({"launcher": "mpirun"}, "init writes torchrun or srun", "hpcrun profile set launcher"),
        ({"account": "labb"}, "--account labb: ", "did you mean --account lab?"),
        ({"account": "zzzzzz"}, "--account zzzzzz: ", "there are: lab"),
        ({"gpu_type": "h200"}, "--gpu-type h200: ", ""),
    ],
)
def test_a_choice_that_the_cluster_does_not_have_is_refused(
    chosen: dict[str, str], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refused:
        check_choices(Choices(**chosen), facts([A100], [GPU], associations=LAB))
    assert message in refused.value.message
    assert (refused.value.hint or "").startswith(hint)


def test_choices_that_the_cluster_has_are_taken() -> None:
    found = facts([A100], [GPU], associations=LAB)
    check_choices(Choices("lab", "a100", "srun"), found)
    check_choices(Choices(gpu_type="none"), found)
    check_choices(Choices(), found)


def test_an_open_choice_is_an_error_with_the_command() -> None:
    options = (Option("lab", "--account lab"), Option("thesis", "--account thesis"))
    made = unmade([Choice("account", "account", "several", options, 1)])
    assert made.hint == "hpcrun init --account thesis"
