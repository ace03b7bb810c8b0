"""What init asks, suggests and says next; and how it writes the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcrun.actions.profiles import init_choices
from hpcrun.actions.profiles.detect import Detected
from hpcrun.actions.profiles.detect_types import gpu_offers
from hpcrun.actions.profiles.edit import FileChange, Place
from hpcrun.actions.profiles.init_choices import Setup, TrialJob, prepare_trial, trial_size
from hpcrun.actions.user_choice import Choice
from hpcrun.errors import ProfileError
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.schedulers.cluster_facts import Association, NodeKind, Partition
from tests.unit.actions.profiles.test_detect import A100, GPU, facts
from tests.unit.builders import slurm_profile, surroundings

H100 = NodeKind("gpu", 1, 64, 512000, (("h100", 8),))
LONE = replace(A100, nodes=1)
CPUS = NodeKind("gpu", 3, 64, 512000, ())
TWO = [Association(name, None, (), None) for name in ("lab", "thesis")]


def detected(kinds: list[NodeKind], partition: Partition = GPU) -> Detected:
    return Detected("", slurm_profile(), tuple(gpu_offers(facts(kinds, [partition]))), ())


def test_what_has_one_answer_is_not_asked() -> None:
    found = facts([A100], [GPU])
    assert init_choices.account_choice(found, None) is None
    assert init_choices.gpu_choice(found, None, None) is None


def test_the_launcher_is_a_choice_where_there_are_gpus_and_the_profile_has_no_other_one() -> None:
    found = facts([A100], [GPU])
    assert offered(init_choices.launcher_choice(found, None)) == (["torchrun", "srun"], "torchrun")
    chosen = init_choices.launcher_choice(found, slurm_profile(launcher="srun"))
    assert offered(chosen)[1] == "srun"
    assert init_choices.launcher_choice(found, slurm_profile(launcher="python")) is None
    assert init_choices.launcher_choice(facts([CPUS], [GPU]), None) is None


def offered(choice: Choice | None) -> tuple[list[str], str]:
    """The values of a choice, and what is offered."""
    assert choice is not None
    values = [option.value for option in choice.options]
    return values, values[choice.default]


def test_what_is_offered_is_what_the_profile_has_else_the_default_or_what_there_is_most_of() -> (
    None
):
    found = facts([A100, replace(H100, nodes=2)], [GPU], associations=TWO, default_account="thesis")
    assert offered(init_choices.gpu_choice(found, None, None)) == (["a100", "h100", "none"], "h100")
    assert offered(init_choices.account_choice(found, None)) == (["lab", "thesis"], "thesis")
    assert offered(init_choices.account_choice(found, slurm_profile(account="lab")))[1] == "lab"
    assert (
        offered(init_choices.gpu_choice(found, None, slurm_profile(gpu={"type": "a100"})))[1]
        == "a100"
    )
    assert (
        offered(init_choices.gpu_choice(found, None, slurm_profile(gpu={"per_node": 4})))[1]
        == "none"
    )


def test_the_profile_has_the_name_of_the_cluster(subtests: pytest.Subtests) -> None:
    for name, becomes in (
        ("dev", "dev"),
        ("a100", "a100-cluster"),
        ("../../x;y", "x-y"),
        ("…", "cluster"),
    ):
        with subtests.test(name=name):
            assert (
                init_choices.default_name(facts([], [], config={"ClusterName": name}), {"a100"})
                == becomes
            )


def test_the_test_job_tries_the_network_where_it_can(subtests: pytest.Subtests) -> None:
    for kinds, partition, job in (
        ([A100], GPU, TrialJob(2, 1)),
        ([LONE], GPU, TrialJob(1, 2)),
        ([A100], replace(GPU, max_nodes=1), TrialJob(1, 2)),
        ([CPUS], GPU, TrialJob(1, 0)),
    ):
        with subtests.test(kinds=kinds):
            assert trial_size(detected(kinds, partition), "a100") == job
    words = [job.words for job in (TrialJob(2, 1, "a100"), TrialJob(1, 2), TrialJob(1, 0))]
    assert words == ["2 nodes × 1 a100 GPU", "1 node × 2 GPUs", "1 node × no GPU"]


@pytest.mark.parametrize(
    ("found", "profile", "starts"),
    [
        (detected([A100]), "a100", " rank --task -- "),
        (detected([CPUS]), "cpu", " rank --task -- "),
        (None, "local", " rank --once -- "),
    ],
    ids=["GPUs", "CPUs", "this machine"],
)
def test_the_test_job_needs_no_torchrun(
    tmp_path: Path, found: Detected | None, profile: str, starts: str
) -> None:
    job = trial_size(found, None)
    prepared = prepare_trial(job, profile, surroundings(tmp_path), lambda: Machine(cpus=2))
    assert starts in prepared.script
    assert "torch.distributed.run" not in prepared.script


def test_the_next_command_fits_the_cluster(subtests: pytest.Subtests) -> None:
    none = FileChange(Path("x"), None, "")
    for kinds, gpu_type, command in (
        ([A100], "a100", "--gpus 4 --nodes 2"),
        ([LONE], "a100", "--gpus 4"),
        ([A100, H100], None, "--gpus a100:4 --nodes 2"),
        ([A100, H100], "h100", "--gpus 4"),
        ([CPUS], None, "--gpus 0 --cpus 4"),
    ):
        with subtests.test(kinds=kinds):
            setup = Setup("dev", none, none, detected=detected(kinds))
            assert (
                init_choices.next_commands(setup, gpu_type)[0][0]
                == f"hpcrun submit {command} train.py"
            )


def write(folder: Path, profile: FileChange, *, anew: bool = False) -> Path | None:
    """Write a profile, and the configuration that makes it the default."""
    config = FileChange(folder / "config.yaml", None, "profile: dev\n")
    return init_choices.write_setup(Setup("dev", profile, config, anew=anew), Place(folder, ()))


@pytest.mark.parametrize(
    ("planned_for", "now"),
    [
        ("description: old\n", "description: edited\n"),
        ("description: old\n", None),
        (None, "description: edited\n"),
    ],
    ids=["edited", "deleted", "made"],
)
@pytest.mark.parametrize("anew", [False, True])
def test_a_file_that_was_changed_meanwhile_is_not_overwritten(
    tmp_path: Path, planned_for: str | None, now: str | None, anew: bool
) -> None:
    path = tmp_path / "dev.yaml"
    if now is not None:
        path.write_text(now)
    with pytest.raises(ProfileError, match=r"dev\.yaml was changed by another program") as caught:
        write(tmp_path, FileChange(path, planned_for, "description: new\n"), anew=anew)
    assert caught.value.hint == "run hpcrun init again"
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == (
        {} if now is None else {"dev.yaml": now}
    )


def test_a_replaced_profile_is_kept_beside_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "dev.yaml"
    path.write_text("description: old\n")
    change = FileChange(path, "description: old\n", "description: new\n")
    assert write(tmp_path, change, anew=True) == tmp_path / "dev.old-1"
    left = {
        "dev.yaml": "description: new\n",
        "dev.old-1": "description: old\n",
        "config.yaml": "profile: dev\n",
    }
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == left
