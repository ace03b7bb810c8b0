"""How doctor judges a profile beside the cluster: red is what a job would fail by, with the command
that helps.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.features.doctor.check import Check, Target, targets_of
from hpcrun.features.doctor.check_profile import (
    judge_container,
    judge_messages,
    judge_modules,
    judge_profile,
    judge_variables,
)
from hpcrun.job.profile_model import Profile
from hpcrun.machine.host import ModuleFacts
from hpcrun.profiles.config import Config
from hpcrun.profiles.folders import shipped_folder
from hpcrun.profiles.load import load_profile
from hpcrun.schedulers.away_nodes import ListedNode
from hpcrun.schedulers.cluster_facts import Association, ClusterFacts, NodeKind, Partition
from hpcrun.schedulers.job_start import Trial
from tests.unit.actions.profiles.test_detect import facts
from tests.unit.builders import laptop, slurm_profile, surroundings, write

GPU = Partition("gpu", default=True, max_s=7200)
LONG = Partition("long")
A100 = NodeKind("gpu", 2, 64, 512000, (("a100", 4),))
H100 = NodeKind("long", 1, 96, 1024000, (("h100", 8),))
THIN = NodeKind("gpu", 3, 32, 128000, ())
ENFORCED = {"AccountingStorageEnforce": "associations,limits,qos"}
CLUSTER = facts([A100, H100, THIN], [GPU, LONG], config=ENFORCED)
RIGHT: dict[str, Any] = {
    "partition": "gpu",
    "gpu": {"type": "a100", "per_node": 4},
    "cpu": {"per_node": 64, "per_gpu": 16},
    "memory": {"per_node": "500G", "per_gpu": "125G"},
    "time": {"default": "1h", "max": "2h"},
}
FORM = "--gres=gpu:a100:4"
YES, NO = Trial(True, "Job 1 to start", form=FORM), Trial(False, "Invalid qos", form=FORM)


def targets(
    env: dict[str, str] | None = None, config: Config | None = None, **said: Any
) -> list[Target]:
    found, wrong = targets_of(
        "mine", Profile(name="mine", **said), surroundings(Path("/"), env or {}, config=config)
    )
    assert not wrong
    return found


def judged(
    cluster: ClusterFacts = CLUSTER, *trials: Trial, env: dict[str, str] | None = None, **said: Any
) -> list[Check]:
    return judge_profile(targets(env, **{**RIGHT, **said}), cluster, trials)


def bad(checks: list[Check]) -> list[tuple[str, str, str | None]]:
    """What is not green: level, name and fix."""
    return [(check.level, check.name, check.fix) for check in checks if check.level != "green"]


def test_a_right_profile_is_green_and_a_limit_that_is_too_wide_hides_nothing() -> None:
    checks = judged(CLUSTER, YES)
    assert bad(checks) == []
    assert [(check.name, check.seen) for check in checks] == [
        ("partition gpu", "up, open to you, 02:00:00"),
        ("nodes", "4 a100, 64 CPUs, 500G, 01:00:00: fits its 2 nodes"),
        ("sbatch", "--test-only accepts --gres=gpu:a100:4"),
    ]
    assert [check.level for check in judged(time={"max": "3h"})] == ["green", "yellow"]
    # the largest and the smallest job on one node
    (target,) = targets(**RIGHT)
    assert [plan.shape.gpus_per_node for plan in (target.plan, target.smallest)] == [4, 1]
    (without,) = targets()
    assert [plan.shape.gpus_per_node for plan in (without.plan, without.smallest)] == [0, 0]


def test_nodes_that_are_away_are_named_instead_of_a_refusal() -> None:
    refused = Trial(False, "Requested node configuration is not available", form=FORM)
    node = ListedNode("a100-1", "gpu", "drained", "bad fan", (), 64, None)
    checks = judge_profile(targets(**RIGHT), CLUSTER, [refused], [node])
    last = checks[-1]
    assert (last.level, last.seen) == ("yellow", "a100-1 is drained (bad fan)")


@pytest.mark.parametrize("unknown", ["cpus", "memory_mb"])
def test_what_is_not_known_of_one_node_limits_nothing(unknown: str) -> None:
    nodes: dict[str, Any] = {unknown: None}
    kinds = [replace(A100, cpus=1, memory_mb=1000), replace(A100, **nodes)]
    names = {check.name for check in judged(facts(kinds, [GPU], config=ENFORCED))}
    assert {"cpus": "CPUs", "memory_mb": "memory"}[unknown] not in names


def test_hidden_nodes_are_not_checked() -> None:
    (_, check) = judged(facts(None, [replace(GPU, nodes=2)], config=ENFORCED))
    assert (check.level, check.name) == ("yellow", "nodes")
    assert "not checked" in check.seen


def test_a_partition_that_is_closed_is_red_and_nothing_that_hangs_on_it_is_said(
    subtests: pytest.Subtests,
) -> None:
    for partition, why in (
        (replace(GPU, up=False), "it is not up"),
        (replace(GPU, root_only=True), "it is for root alone"),
        (replace(GPU, groups=("physics",)), "it is for members of physics"),
        (replace(GPU, accounts=("rich",)), "it is for the accounts rich"),
        (replace(GPU, denied_accounts=("lab",)), "it is closed to the account lab"),
    ):
        with subtests.test(partition=partition):
            (check,) = judged(facts([A100], [partition], config=ENFORCED))
            assert check.level == "red"
            assert check.seen == f"you may not use it: {why}"
            assert check.fix == "ask the site for access"


SET = "hpcrun profile set mine"
UNTYPED = facts([NodeKind("gpu", 1, 64, 512000, ((None, 4),))], [GPU])
EMPTY = facts([A100], [GPU, LONG])
OPEN_ELSEWHERE = facts([A100, replace(A100, partition="long")], [replace(GPU, up=False), LONG])
TYPES = {
    "h100": {"per_node": 16, "partition": "long"},
    "a100": {"per_node": 4},
    "b200": {"per_node": 8},
}
NOTHING: dict[str, Any] = {"cpu": {}, "memory": {}, "time": {}}
ONE = {"type": "a100", "per_node": 1}


def node(cpus: int | None, memory_mb: int | None, gpus: int) -> ClusterFacts:
    return facts([NodeKind("gpu", 1, cpus, memory_mb, (("a100", gpus),))], [GPU])


TWO_ACCOUNTS = [
    Association("lab", None, ("normal",), None),
    Association("rich", None, ("long",), None),
]
OF_TWO = facts([A100], [GPU], associations=TWO_ACCOUNTS, config=ENFORCED)


@pytest.mark.parametrize(
    ("cluster", "said", "found"),
    [
        (CLUSTER, {"partition": "gpuu"}, [("red", "partition gpuu", f"{SET} partition=gpu")]),
        (CLUSTER, {"partition": "long"}, [("red", "GPUs", f"{SET} partition=gpu")]),
        (
            CLUSTER,
            {"gpu": {"type": "a10", "per_node": 4}},
            [("red", "GPUs", f"{SET} gpu.type=a100")],
        ),
        (
            CLUSTER,
            {"gpu": {"type": "a100", "per_node": 8}},
            [("red", "GPUs", f"{SET} gpu.per_node=4")],
        ),
        (CLUSTER, {"cpu": {"per_gpu": 32}}, [("red", "CPUs", f"{SET} cpu.per_gpu=16")]),
        (
            CLUSTER,
            {"cpu": {"per_node": 128, "per_gpu": 16}},
            [("yellow", "CPUs", f"{SET} cpu.per_node=64")],
        ),
        (
            CLUSTER,
            {"memory": {"per_gpu": "200G"}},
            [("red", "memory", f"{SET} memory.per_gpu=125G")],
        ),
        (
            CLUSTER,
            {"memory": {"per_node": "1T"}},
            [("yellow", "memory", f"{SET} memory.per_node=500G")],
        ),
        (CLUSTER, {"time": {"default": "3h"}}, [("red", "time", f"{SET} time.default=02:00:00")]),
        (CLUSTER, {"time": {"max": "3h"}}, [("yellow", "time", f"{SET} time.max=02:00:00")]),
        (OPEN_ELSEWHERE, {}, [("red", "partition gpu", f"{SET} partition=long")]),
        (facts([A100], [replace(GPU, root_only=True)], user="root"), {}, []),
        (facts([A100, H100], [GPU, LONG]), {"partition": "long,gpu"}, []),
        # one of the partitions has no time limit
        (facts([A100], [GPU, LONG]), {"partition": "long,gpu", "time": {"max": "9h"}}, []),
        (UNTYPED, {}, [("red", "GPUs", f"{SET} gpu.type=null")]),
        (UNTYPED, {"gpu": {"per_node": 4}}, []),
        (
            CLUSTER,
            {"gpu": {"types": TYPES}, "cpu": {}, "memory": {}, "time": {}},
            [
                ("red", "h100 GPUs", f"{SET} gpu.types.h100.per_node=8"),
                (
                    "red",
                    "b200 GPUs",
                    "the cluster has a100, h100; write a profile for them: hpcrun profile detect",
                ),
            ],
        ),
        (EMPTY, {"partition": "long"}, [("red", "nodes", f"{SET} partition=gpu")]),
        (
            EMPTY,
            {"partition": "long", "gpu": {}, "cpu": {}, "memory": {}, "time": {}},
            [("red", "nodes", f"{SET} partition=gpu")],
        ),
        # what is named is a GPU's share of the node, and one CPU at least
        (
            node(32, 128000, 1),
            {**NOTHING, "gpu": ONE, "cpu": {"per_gpu": 48}},
            [("red", "CPUs", f"{SET} cpu.per_gpu=32")],
        ),
        (
            node(2, 128000, 4),
            {**NOTHING, "cpu": {"per_gpu": 1}},
            [("red", "CPUs", f"{SET} cpu.per_gpu=1")],
        ),
        (
            node(32, 128000, 1),
            {**NOTHING, "gpu": ONE, "memory": {"per_gpu": "200G"}},
            [("red", "memory", f"{SET} memory.per_gpu=125G")],
        ),
        (node(None, None, 4), {}, []),
        (
            facts([THIN], [GPU]),
            {},
            [("red", "GPUs", "write a profile for them: hpcrun profile detect")],
        ),
        (
            facts([A100], [replace(GPU, default=False)]),
            {"partition": None},
            [("red", "partition", f"{SET} partition=gpu")],
        ),
        (facts([], [GPU]), {}, [("yellow", "nodes", None)]),
    ],
)
def test_one_thing_wrong_is_one_line_with_the_command_that_helps(
    cluster: ClusterFacts, said: dict[str, Any], found: list[tuple[str, str, str | None]]
) -> None:
    assert bad(judged(cluster, **said)) == found


def test_the_default_partition_and_that_of_the_environment_count() -> None:
    assert [check.name for check in judged(partition=None)] == ["partition gpu", "nodes"]
    assert judged(node(None, None, 4))[-1].seen.endswith(
        "fits its 1 node; Slurm does not say their CPUs and memory"
    )
    assert bad(judge_profile(targets(partition="gpu"), facts([THIN], [GPU]), ())) == []
    (check,) = judged(env={"SBATCH_PARTITION": "nope"})
    assert check.name == "partition nope"
    assert "SBATCH_PARTITION" in (check.fix or "")


@pytest.mark.parametrize(
    ("cluster", "said", "refusal", "yours", "fix"),
    [
        (
            CLUSTER,
            {"account": "other"},
            "Invalid account or account/partition combination",
            "lab",
            f"{SET} account=lab",
        ),
        (
            OF_TWO,
            {"account": "rich", "qos": "normal"},
            "Invalid qos specification",
            "long",
            f"{SET} qos=long",
        ),
        (
            OF_TWO,
            {"account": "lab", "qos": "long"},
            "Invalid qos specification",
            "normal",
            f"{SET} qos=normal",
        ),
        (
            OF_TWO,
            {"account": "rich", "qos": "other"},
            "Invalid qos specification",
            "long",
            f"{SET} qos=long",
        ),
        (
            facts([A100], [GPU], associations=None),
            {"qos": "long"},
            "Invalid qos specification",
            "",
            "choose one with --qos",
        ),
    ],
)
def test_sbatch_judges_account_and_quality_of_service(
    cluster: ClusterFacts, said: dict[str, Any], refusal: str, yours: str, fix: str
) -> None:
    (check,) = (
        check
        for check in judged(cluster, Trial(False, refusal, form=FORM), **said)
        if check.level == "red"
    )
    assert check.seen == f"--test-only refuses {FORM}: {refusal}" + (
        f"; available to you: {yours}" if yours else ""
    )
    assert (check.fix or "").endswith(fix)


def test_an_account_of_the_configuration_is_not_corrected_in_the_profile() -> None:
    trial = Trial(False, "Invalid account", form=FORM)
    checks = judge_profile(targets(config=Config(account="other"), **RIGHT), CLUSTER, [trial])
    assert checks[-1].seen.endswith("available to you: lab")
    assert SET not in (checks[-1].fix or "")


@pytest.mark.parametrize(
    ("said", "trials", "level", "seen", "fix"),
    [
        (
            {"partition": "gpuu"},
            [NO],
            "red",
            f"--test-only refuses {FORM}: Invalid qos",
            "correct the errors above",
        ),
        (
            {},
            [Trial(False, "no such thing", form=FORM), Trial(True, "", form="--gres=gpu:a100:1")],
            "red",
            f"--test-only refuses {FORM}: no such thing; it accepts --gres=gpu:a100:1",
            "hpcrun profile detect tries the three forms of asking for GPUs",
        ),
        (
            {},
            [Trial(False, "timed out after 10 s", silent=True)],
            "yellow",
            "not checked: --test-only: timed out after 10 s",
            None,
        ),
    ],
)
def test_a_refusal(
    said: dict[str, Any], trials: list[Trial], level: str, seen: str, fix: str | None
) -> None:
    check = judged(CLUSTER, *trials, **said)[-1]
    assert check.level == level
    assert check.seen == seen
    assert check.fix == fix


def test_sbatch_knows_better_who_may_use_what() -> None:
    accepted = judged(facts([A100], [replace(GPU, accounts=("rich",))]), YES)
    assert [(check.level, check.name) for check in accepted] == [
        ("yellow", "partition gpu"),
        ("green", "sbatch"),
    ]


def test_a_profile_that_allows_none_of_its_own_jobs() -> None:
    for time, env, seen, fix in (
        (
            {"default": "3h"},
            {},
            "the default time 03:00:00 is longer than the 02:00:00",
            "hpcrun profile show mine --origin shows where it is set",
        ),
        ({}, {"SBATCH_TIMELIMIT": "soon"}, "SBATCH_TIMELIMIT: ", "correct it, or unset it"),
    ):
        gpu = {"type": "a", "types": {"a": {"per_node": 1, "time": {"max": "2h"}}}}
        made, (wrong,) = targets_of(
            "mine", Profile(name="mine", time=time, gpu=gpu), surroundings(Path("/"), env)
        )
        assert made == []
        assert wrong.level == "red"
        assert wrong.fix == fix
        assert seen in wrong.seen


def test_a_destination_of_messages_needs_its_variables() -> None:
    assert judge_messages((), {}) == []
    (unset,) = judge_messages(("$HOOK", "json://host/"), {})
    assert unset.level == "yellow"
    assert unset.seen == "HOOK is not set"
    (good,) = judge_messages(("$HOOK", "json://host/"), {"HOOK": "json://hushhush/"})
    assert good.level == "green"
    assert good.seen == "to $HOOK, json://host/; hpcrun notify --test sends one"


def test_an_image_that_is_here_is_green_and_no_image_is_not_judged(tmp_path: Path) -> None:
    write(tmp_path / "torch.sif", "")
    write(tmp_path / "apptainer", "#!/bin/sh\n").chmod(0o755)
    profile = slurm_profile(container={"image": str(tmp_path / "torch.sif")})
    checks = judge_container(profile, {"PATH": str(tmp_path)})
    assert [(check.name, check.level) for check in checks] == [
        ("container", "green"),
        ("image", "green"),
    ]
    assert judge_container(slurm_profile(), {}) == []


def test_a_runtime_that_is_not_here_may_be_on_the_nodes(tmp_path: Path) -> None:
    for profile, level in ((slurm_profile, "yellow"), (laptop, "red")):
        checks = judge_container(
            profile(container={"image": "/no/torch.sif"}), {"PATH": str(tmp_path)}
        )
        assert [(check.name, check.level) for check in checks] == [
            ("container", level),
            ("image", "red"),
        ]
        assert all(check.fix for check in checks)


def test_variables_that_cannot_be_are_red_and_those_that_submit_remarks_on_yellow(
    tmp_path: Path,
) -> None:
    text = "extends: l40s\nenv:\n  NCCL_IB_RETRY_CNT: 13\n  NCCL_TIMEOUT: 5\n"
    path = write(tmp_path / "mine.yaml", text)
    checks = judge_variables(load_profile(str(path), [shipped_folder("cluster_profiles")]))
    assert [check.level for check in checks] == ["red", "yellow"]
    assert (
        checks[0].seen == f"NCCL_IB_RETRY_CNT=13: this value cannot be; it takes 0 to 7 ({path}:3)"
    )
    assert all(check.fix for check in checks)
    (check,) = judge_variables(load_profile("a100", [shipped_folder("cluster_profiles")]))
    assert check.level == "green"
    assert check.seen == "NCCL_DEBUG CUDA_DEVICE_ORDER"
    assert judge_variables(load_profile("local", [shipped_folder("cluster_profiles")])) == []


def test_modules(subtests: pytest.Subtests) -> None:
    for answer, level, says in (
        (ModuleFacts(True, {}), "green", "gcc cuda: loaded in this order"),
        (ModuleFacts(True, {"cuda": "is unknown"}), "red", "cuda cannot be loaded: is unknown"),
        (ModuleFacts(False, {}), "red", "no module command"),
        (
            ModuleFacts(True, {}, "timed out after 10 s"),
            "yellow",
            "not checked: timed out after 10 s",
        ),
        (None, "yellow", "not checked: no response"),
    ):
        with subtests.test(answer=answer):
            check = judge_modules(["gcc", "cuda"], answer)
            assert check.level == level
            assert says in check.seen
