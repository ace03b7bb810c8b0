"""What a cluster leaves open for a job: what is taken, what is asked, and the flags that an error
names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcrun.actions.jobs.job_defaults import Settled, settle, settle_gpu_type
from hpcrun.actions.profiles.detected import DetectedProfile
from hpcrun.actions.user_choice import Choice, first_option
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.request.job_request import GpuCount
from hpcrun.profiles.folders import Folder, shipped
from hpcrun.profiles.load import load_profile
from hpcrun.schedulers.cluster_facts import (
    Association,
    ClusterFacts,
    NodeKind,
    Partition,
    QosLimits,
)
from tests.unit.builders import request, slurm_profile, surroundings, write

A100, H100 = (("a100", 4),), (("h100", 8),)
GPU = Partition("gpu", default=True, max_s=7200)
LAB = Association("lab", None, ("normal",), None)
ENFORCED = {"ClusterName": "dev", "AccountingStorageEnforce": "associations,limits,qos"}


def facts(*partitions: Partition, kinds: list[NodeKind] | None = None, **said: Any) -> ClusterFacts:
    """A cluster with two nodes of four A100s in each partition, unless it says otherwise."""
    values: dict[str, Any] = {
        "user": "me",
        "groups": (),
        "config": ENFORCED,
        "associations": [LAB],
        "accounting": True,
    }
    kinds = kinds or [NodeKind(part.name, 2, 64, 512000, A100) for part in partitions]
    return ClusterFacts(**{**values, "kinds": kinds, "partitions": list(partitions), **said})


def settled(
    folder: Path,
    facts: ClusterFacts,
    choose: Callable[[Choice], str] | None = None,
    own: str | None = None,
    profile: str = "detected",
    **asked: Any,
) -> Settled:
    """What becomes of a request on a cluster that was detected; ``own`` is a person's copy of the
    profile.
    """
    detected = DetectedProfile(folder / "cache", lambda: facts, [shipped("cluster_profiles")])
    layers: tuple[Folder | Path, ...] = (detected.folder, shipped("cluster_profiles"))
    if own is not None:
        layers = (write(folder / f"own/profiles/{profile}.yaml", own).parent, *layers)
    around = replace(
        surroundings(folder, {}), profile_folders=layers, detected=detected, choose=choose
    )
    return settle(request(**asked), load_profile(profile, layers), around)


def open_flags(folder: Path, facts: ClusterFacts, **asked: Any) -> str:
    with pytest.raises(UsageError) as refused:
        settled(folder, facts, **asked)
    assert refused.value.hint == "for all your jobs: hpcrun init"
    return refused.value.message


def test_one_gpu_type_one_account_and_a_default_partition_leave_nothing_open(
    tmp_path: Path,
) -> None:
    found = settled(tmp_path, facts(GPU), gpus="4", nodes=2)
    assert found.request == request(gpus="4", nodes=2)
    profile = found.loaded.profile
    assert profile.partition == "gpu"
    assert profile.account == "lab"
    assert profile.gpu.type == "a100"
    assert profile.gpu.nodes == 2
    assert profile.card.model == "NVIDIA A100 80 GB SXM4"
    words = (
        "detected the cluster dev: partition gpu (the default), account lab; keep or change "
        "it "
        "with hpcrun init"
    )
    assert found.notes == (words,)


MIXED = facts(
    GPU, kinds=[NodeKind("gpu", 2, 64, 512000, A100), NodeKind("gpu", 4, 64, 512000, H100)]
)
TWO_ACCOUNTS = [LAB, replace(LAB, account="thesis")]


def test_of_several_gpu_types_without_a_terminal_the_flags_are_named(tmp_path: Path) -> None:
    assert (
        open_flags(tmp_path, MIXED, gpus="4") == "choose a GPU type: --gpus a100:4, --gpus h100:4"
    )
    message = open_flags(tmp_path, MIXED, gpus_per_node="2", nodes=2)
    assert message == "choose a GPU type: --gpus-per-node a100:2, --gpus-per-node h100:2"
    assert open_flags(tmp_path, MIXED) == "choose a GPU type: --gpus a100:1, --gpus h100:1"


def test_a_gpu_type_that_alone_has_as_many_is_taken(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for asked in ({"gpus": "8", "nodes": 1}, {"gpus": "32"}, {"gpus_per_node": "8"}):
        with subtests.test(asked=asked):
            found = settled(tmp_path, MIXED, **asked).request
            assert (found.gpus or found.gpus_per_node or GpuCount(count=0)).type == "h100"


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            {"gpus": "64"},
            r"has 64 GPUs; .* at most: a100 2 × 4, h100 4 × 8",
            "request less: --gpus h100:32 --nodes 4",
        ),
        (
            {"gpus": "24", "nodes": 2},
            "24 GPUs on 2 nodes",
            "name a type and the nodes: --gpus h100:24 --nodes 3",
        ),
        (
            {"gpus_per_node": "12", "nodes": 2},
            "2 × 12 GPUs",
            "name a type and the nodes: --gpus h100:24 --nodes 3",
        ),
    ],
)
def test_what_no_gpu_type_has_is_refused_with_what_there_is(
    asked: dict[str, Any], message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=message) as refused:
        settled(tmp_path, MIXED, **asked)
    assert refused.value.exit_code == 4
    assert refused.value.hint == hint


def test_a_person_is_asked_and_told_how_to_keep_the_answer(tmp_path: Path) -> None:
    asked: list[Choice] = []

    def choose(choice: Choice) -> str:
        asked.append(choice)
        return "a100"

    found = settled(tmp_path, MIXED, choose, gpus="4")
    assert found.request.gpus == GpuCount(count=4, type="a100")
    assert found.notes[0].endswith("; keep or change it with hpcrun init")
    (choice,) = asked
    assert choice.what == "GPU type"
    assert choice.key == "gpu.type"
    assert first_option(choice) == "h100"
    about = [option.about for option in choice.options]
    assert about == [
        "2 nodes × 4, 80 GB each, partition gpu",
        "4 nodes × 8, 80 GB each, partition gpu",
    ]
    # what a person has written is neither asked nor noted
    own = "extends: detected\ngpu: {type: a100}\naccount: thesis\n"
    written = settled(tmp_path, replace(MIXED, associations=TWO_ACCOUNTS), own=own, gpus="4")
    assert written.notes == ()
    assert written.loaded.profile.account == "thesis"


LONG, SHORT = Partition("long", max_s=7 * 86400), Partition("short", max_s=3600)


@pytest.mark.parametrize(
    ("partitions", "asked", "taken"),
    [
        ((GPU, LONG), {}, "gpu"),
        ((GPU, LONG), {"walltime_s": "3h"}, "long"),  # the default does not fit, and one other does
        ((LONG, replace(SHORT, up=False)), {}, "long"),
        ((LONG, replace(SHORT, accounts=("theirs",))), {}, "long"),
        ((LONG, replace(SHORT, preempted="REQUEUE")), {}, "long"),
        ((LONG, SHORT), {"walltime_s": "2h"}, "long"),
        ((LONG, SHORT), {"partition": "short"}, "short"),
        ((replace(GPU, max_nodes=1), LONG), {"nodes": 2}, "long"),
        ((replace(GPU, max_nodes=2), LONG), {"nodes": 2}, "gpu"),
        ((GPU, LONG), {"walltime_s": "2h"}, "gpu"),
        ((GPU, LONG), {"cpus": "64"}, "gpu"),
    ],
)
def test_the_partition_is_the_default_one_that_fits_or_the_only_one(
    partitions: tuple[Partition, ...], asked: dict[str, Any], taken: str, tmp_path: Path
) -> None:
    found = settled(tmp_path, facts(*partitions), gpus="4", **asked)
    assert (found.request.partition or found.loaded.profile.partition) == taken


@pytest.mark.parametrize(
    ("memory", "taken"), [(None, "gpu"), ("0", "gpu"), ("250G", "gpu"), ("1000G", "big")]
)
def test_the_partition_has_nodes_with_the_memory_that_the_job_requests(
    memory: str | None, taken: str, tmp_path: Path
) -> None:
    kinds = [NodeKind("gpu", 2, 64, 256_000, A100), NodeKind("big", 2, 64, 1_024_000, A100)]
    cluster_facts = facts(GPU, Partition("big"), kinds=kinds)
    options: dict[str, Any] = {} if memory is None else {"memory_mb": memory}
    result = settled(tmp_path, cluster_facts, gpus="4", **options)
    assert (result.request.partition or result.loaded.profile.partition) == taken


def test_nodes_of_unknown_memory_have_enough(tmp_path: Path) -> None:
    cluster_facts = facts(GPU, LONG, kinds=[NodeKind("long", 2, 64, None, A100)])
    result = settled(tmp_path, cluster_facts, gpus="4", memory_mb="1000G")
    assert (result.request.partition or result.loaded.profile.partition) == "long"


HIDDEN = replace(facts(replace(GPU, nodes=2, gpus=8), Partition("cpu", gpus=0)), kinds=None)


def test_slurm_decides_about_the_gpus_of_hidden_nodes(tmp_path: Path) -> None:
    result = settled(tmp_path, HIDDEN, gpus="8")
    assert (result.size.nodes, result.size.gpus_per_node) == (1, 8)
    assert result.gpu_profile.partition == "gpu"


def test_a_partition_of_hidden_nodes_has_the_gpus_that_it_counts(tmp_path: Path) -> None:
    cluster_facts = replace(HIDDEN, partitions=[*HIDDEN.partitions, Partition("big", gpus=64)])
    assert settled(tmp_path, cluster_facts, gpus="8").gpu_profile.partition == "gpu"
    assert settled(tmp_path, cluster_facts, gpus="16").gpu_profile.partition == "big"


def test_a_job_on_hidden_nodes_must_say_its_gpus(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not say how many GPUs") as refused:
        settled(tmp_path, HIDDEN)
    assert refused.value.hint == "add --gpus N, or --gpus 0 for a CPU job"


def test_the_nodes_of_a_partition_are_its_own_number_where_they_are_hidden(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="3 nodes are more than the 2 that partition gpu gives"):
        settled(tmp_path, HIDDEN, gpus="3", nodes=3, partition="gpu")
    settled(tmp_path, HIDDEN, gpus_per_node="1", nodes="2-3", partition="gpu")


def test_the_limits_are_those_of_the_partition_that_is_taken(tmp_path: Path) -> None:
    found = settled(tmp_path, facts(GPU, LONG), gpus="4", walltime_s="3-0").loaded.profile
    assert found.partition == "long"
    assert found.time.max == 7 * 86400
    mine = "extends: detected\ntime: {max: 1h}\n"
    assert (
        settled(
            tmp_path, facts(GPU, LONG), own=mine, gpus="4", partition="long"
        ).loaded.profile.time.max
        == 3600
    )


BIG_NODES = [
    NodeKind("gpu", 2, 64, 512_000, A100),
    NodeKind("big", 2, 96, 1_024_000, A100),
]


def test_the_cpus_and_the_memory_are_those_of_the_partition_that_is_taken(tmp_path: Path) -> None:
    cluster_facts = facts(GPU, Partition("big"), kinds=BIG_NODES)
    profile = settled(tmp_path, cluster_facts, gpus="4", partition="big").loaded.profile
    assert profile.cpu.per_node == 96
    assert profile.cpu.per_gpu == 24
    assert profile.memory.per_node == 1_024_000
    assert profile.memory.per_gpu == 256_000


def test_a_job_without_gpus_has_the_cpus_and_the_memory_of_its_partition(tmp_path: Path) -> None:
    kinds = [*BIG_NODES, NodeKind("cpu", 2, 48, 128_000, ())]
    cluster_facts = facts(GPU, Partition("cpu"), Partition("big"), kinds=kinds)
    profile = settled(tmp_path, cluster_facts, gpus="0", partition="big").loaded.profile
    assert profile.cpu.per_node == 96
    assert profile.cpu.per_gpu is None
    assert profile.memory.per_node == 1_024_000
    assert profile.memory.per_gpu is None


def test_the_memory_that_a_person_has_written_stays_in_another_partition(tmp_path: Path) -> None:
    cluster_facts = facts(GPU, Partition("big"), kinds=BIG_NODES)
    own = "extends: detected\nmemory: {per_gpu: 10G}\n"
    asked: dict[str, Any] = {"gpus": "4", "partition": "big"}
    profile = settled(tmp_path, cluster_facts, own=own, **asked).loaded.profile
    assert profile.memory.per_gpu == 10_240
    assert profile.cpu.per_gpu == 24


def test_the_default_time_is_at_most_the_limit_of_the_partition_that_is_taken(
    tmp_path: Path,
) -> None:
    brief = Partition("brief", max_s=600, default_s=900)
    profile = settled(tmp_path, facts(GPU, brief), gpus="4", partition="brief").loaded.profile
    assert profile.time.default == 600
    assert profile.time.max == 600


def test_the_size_and_the_profile_are_those_for_the_partition_and_the_gpu_type(
    tmp_path: Path,
) -> None:
    parts = facts(
        GPU,
        Partition("big"),
        kinds=[
            NodeKind("gpu", 4, 64, 512000, A100),
            NodeKind("big", 4, 128, 1024000, (("a100", 8),)),
            NodeKind("gpu", 4, 64, 512000, H100),
        ],
    )
    small = settled(tmp_path, parts, gpus="a100:8")
    assert small.size.nodes == 2
    assert small.size.gpus_per_node == 4
    assert small.gpu_profile.partition == "gpu"
    large = settled(tmp_path, parts, gpus="a100:8", partition="big")
    assert large.size.nodes == 1
    assert large.size.gpus_per_node == 8
    assert large.gpu_profile.partition == "big"
    assert large.gpu_profile.gpu.type == "a100"


def test_the_ranks_of_roles_do_not_matter_for_what_is_left_open(tmp_path: Path) -> None:
    # of a job with one program, two ranks for one GPU are refused
    asked: dict[str, Any] = {
        "gpus_per_node": "1",
        "nodes": 2,
        "nproc_per_node": 2,
        "launcher": "torchrun",
    }
    second = ["--role", "b:1", "train.py"]
    found = settled(tmp_path, facts(GPU), **asked, roles=["a:1"], args=second)
    assert found.size.nodes == 2
    assert found.request.nproc_per_node == 2


def test_ranks_that_a_script_starts_itself_do_not_matter_for_the_partition(tmp_path: Path) -> None:
    # one process of Python cannot be four; a shell script with torchrun can
    asked: dict[str, Any] = {"gpus": "0", "nproc_per_node": 4}
    found = settled(tmp_path, facts(GPU), script="launch.sh", **asked)
    assert found.request == request("launch.sh", **asked)


def test_several_partitions_without_a_default_are_a_choice(tmp_path: Path) -> None:
    message = open_flags(tmp_path, facts(LONG, SHORT), gpus="4", walltime_s="30m")
    assert message == "choose a partition: -p long, -p short"
    found = settled(tmp_path, facts(LONG, SHORT), lambda _: "short", gpus="4", walltime_s="30m")
    assert found.request.partition == "short"
    assert found.loaded.profile.time.max == 3600
    own = "extends: detected\npartition: short\n"
    assert (
        settled(tmp_path, facts(LONG, SHORT), own=own, gpus="4").loaded.profile.partition == "short"
    )


def test_jobs_without_gpus_keep_no_gpu_idle(tmp_path: Path) -> None:
    kinds = [NodeKind("gpu", 2, 64, 512000, A100), NodeKind("cpu", 3, 48, 128000, ())]
    found = settled(
        tmp_path, facts(GPU, Partition("cpu", max_s=None), kinds=kinds), gpus="0"
    ).loaded.profile
    assert found.partition == "cpu"
    assert found.cpu.per_node == 48
    assert found.gpu.per_node == 0
    assert found.time.max is None
    large = settled(
        tmp_path, facts(GPU, Partition("cpu"), kinds=kinds), gpus="0", cpus=60
    ).loaded.profile
    assert large.partition == "gpu"


def test_they_keep_none_idle_with_a_shipped_profile_and_stay_where_a_person_sends_them(
    tmp_path: Path,
) -> None:
    kinds = [
        NodeKind("gpu", 2, 64, 512000, A100),
        *(NodeKind(name, 2, 32, 64000, ()) for name in ("cpu", "thin")),
    ]
    found = facts(GPU, Partition("thin", max_s=None), Partition("cpu", max_s=3600), kinds=kinds)

    def partition(profile: str, own: str | None = None, **asked: Any) -> str | None:
        made = settled(tmp_path, found, own=own, profile=profile, **asked)
        return made.request.partition or made.loaded.profile.partition

    assert [partition(name, gpus="0") for name in ("detected", "a100", "cpu")] == [
        "thin",
        "thin",
        "cpu",
    ]
    assert partition("a100", gpus="4") == "gpu"
    assert partition("a100", gpus="0", partition="gpu") == "gpu"
    assert partition("own", "extends: a100\npartition: mine\n", gpus="0") == "mine"


@pytest.mark.parametrize(
    "own",
    [None, "extends: detected\npartition: cpu\n", "extends: a100\npartition: cpu\naccount: lab\n"],
)
def test_more_nodes_than_the_partition_has_are_refused_with_one_that_has_them(
    tmp_path: Path, own: str | None
) -> None:
    kinds = [NodeKind("gpu", 2, 64, 512000, A100), NodeKind("cpu", 1, 48, 128000, ())]
    found = facts(GPU, Partition("cpu"), kinds=kinds)
    asked: dict[str, Any] = {"gpus": "0", **({} if own else {"partition": "cpu"})}
    for nodes, hint in ((2, "use --partition gpu: up to 2"), (3, "use --nodes 1")):
        with pytest.raises(
            PlanError, match=f"{nodes} nodes are more than the 1 that partition cpu gives a"
        ) as refused:
            settled(
                tmp_path,
                found,
                own=own,
                profile="mine" if own else "detected",
                **asked,
                nodes=nodes,
            )
        assert refused.value.hint == hint


def test_several_accounts_are_a_choice_where_they_are_charged(tmp_path: Path) -> None:
    two = TWO_ACCOUNTS
    message = open_flags(tmp_path, facts(GPU, associations=two), gpus="4")
    assert message == "choose an account: --account lab, --account thesis"
    default = settled(tmp_path, facts(GPU, associations=two, default_account="thesis"), gpus="4")
    assert default.request.account == "thesis"
    assert ", account thesis (your default in Slurm); " in default.notes[0]
    closed = facts(replace(GPU, accounts=("lab",)), associations=two, default_account="thesis")
    assert settled(tmp_path, closed, gpus="4").request.account == "lab"
    assert (
        settled(tmp_path, facts(GPU, associations=two), gpus="4", account="lab").request.account
        == "lab"
    )
    free = facts(GPU, associations=two, config={"ClusterName": "dev"})
    assert settled(tmp_path, free, gpus="4").request.account is None
    one_fits = facts(replace(GPU, accounts=("thesis",)), associations=two)
    assert settled(tmp_path, one_fits, gpus="4").request.account == "thesis"


@pytest.mark.parametrize(
    ("mine", "default", "allowed", "taken"),
    [
        (("normal", "long"), None, (), None),  # Slurm takes "normal"
        (("long", "short"), "long", (), None),
        (("normal", "gpu"), None, ("gpu",), "gpu"),
        (("gpu",), None, (), "gpu"),
    ],
)
def test_a_qos_is_named_only_if_the_default_one_cannot_be_used(
    mine: tuple[str, ...],
    default: str | None,
    allowed: tuple[str, ...],
    taken: str | None,
    tmp_path: Path,
) -> None:
    found = facts(replace(GPU, qos=allowed), associations=[Association("lab", None, mine, default)])
    made = settled(tmp_path, found, gpus="4")
    # the only one stands in the detected profile
    assert (made.request.qos or made.loaded.profile.qos) == taken


def test_a_qos_that_the_partition_denies_is_not_taken(tmp_path: Path) -> None:
    qos = ("fast", "slow")
    mine = [Association("lab", None, qos, None)]
    cluster_facts = facts(replace(GPU, denied_qos=("fast",)), associations=mine)
    assert settled(tmp_path, cluster_facts, gpus="4").request.qos == "slow"


def test_no_qos_is_taken_where_the_cluster_does_not_enforce_any(tmp_path: Path) -> None:
    mine = [Association("lab", None, ("fast", "slow"), None)]
    config = {**ENFORCED, "AccountingStorageEnforce": "associations"}
    cluster_facts = facts(GPU, associations=mine, config=config)
    assert settled(tmp_path, cluster_facts, gpus="4").request.qos is None


def test_the_limit_of_the_partitions_qos_has_priority_over_that_of_the_jobs_qos(
    tmp_path: Path,
) -> None:
    limits = [QosLimits("normal", gpus_per_job=2), QosLimits("wide", gpus_per_job=8)]
    cluster_facts = facts(replace(GPU, own_qos="wide"), qos=limits)
    assert settled(tmp_path, cluster_facts, gpus="4").size.gpus == 4


def test_all_that_is_open_stands_in_one_message(tmp_path: Path) -> None:
    two = [replace(one, qos=("a", "b")) for one in TWO_ACCOUNTS]
    assert open_flags(tmp_path, replace(MIXED, associations=two), gpus="4").splitlines() == [
        "choose a GPU type: --gpus a100:4, --gpus h100:4",
        "choose an account: --account lab, --account thesis",
        "choose a QOS: --qos a, --qos b",
    ]


def test_a_profile_that_a_person_wrote_is_asked_only_for_its_gpu_types(tmp_path: Path) -> None:
    write(
        tmp_path / "own/profiles/mine.yaml",
        "gpu: {types: {a100: {per_node: 4}, h100: {per_node: 8}}}\n",
    )
    around = surroundings(tmp_path, {}, own=(tmp_path / "own",))
    loaded = load_profile("mine", around.profile_folders)
    with pytest.raises(UsageError, match="choose a GPU type: --gpus a100:4, --gpus h100:4"):
        settle(request(gpus="4"), loaded, around)
    assert settle(request(gpus="h100:4"), loaded, around).notes == ()
    many = slurm_profile(gpu={"types": {"a100": {"per_node": 4}, "h100": {"per_node": 8}}})
    with pytest.raises(UsageError, match="--gpus a100:1,2,64, --gpus h100:1,2,64"):
        settle_gpu_type(many, "1,2,64", around)
    assert settle_gpu_type(slurm_profile(), "1,2", around) is None


NORMAL, SMALL = (
    QosLimits("normal", gpus_per_user=4, max_s=7200),
    QosLimits("small", gpus_per_job=2, gpus_in_all=100),
)


@pytest.mark.parametrize(
    ("partition", "asked", "says"),
    [
        (GPU, {"gpus": "4", "walltime_s": "2h"}, None),
        pytest.param(GPU, {"walltime_s": "3h", "qos": "large"}, None, id="no limit of time"),
        pytest.param(
            replace(GPU, default_s=10800),
            {},
            "the default time 03:00:00 is longer than the 02:00:00 that QOS normal allows",
            id="default time",
        ),
        pytest.param(
            GPU,
            {"gpus": "8", "qos": "crowd"},
            "8 GPUs are more than the 6 that QOS crowd allows all its users together",
            id="all users",
        ),
        (
            GPU,
            {"gpus": "8"},
            "8 GPUs are more than the 4 that QOS normal allows one user at the same time",
        ),
        (
            GPU,
            {"walltime_s": "3h"},
            "--time 03:00:00 is longer than the 02:00:00 that QOS normal allows",
        ),
        (GPU, {"gpus": "8", "qos": "large"}, None),
        (
            replace(GPU, own_qos="small"),
            {"gpus": "3"},
            "3 GPUs are more than the 2 that QOS small allows one job",
        ),
        (replace(GPU, own_qos="small"), {"gpus": "3", "qos": "over"}, None),
    ],
)
def test_a_job_that_no_limit_lets_start_is_refused(
    partition: Partition, asked: dict[str, Any], says: str | None, tmp_path: Path
) -> None:
    long = replace(partition, max_s=None)
    over = QosLimits("over", gpus_per_job=8, over_partition=True)
    crowd = QosLimits("crowd", gpus_in_all=6)
    found = facts(long, qos=[NORMAL, SMALL, QosLimits("large"), over, crowd])
    if says is None:
        assert settled(tmp_path, found, **{"gpus": "4", **asked}).request.partition is None
        free = replace(found, config={**ENFORCED, "AccountingStorageEnforce": "associations"})
        assert settled(tmp_path, free, gpus="8").request.partition is None
        return
    with pytest.raises(PlanError) as refused:
        settled(tmp_path, found, **{"gpus": "1", **asked})
    assert refused.value.message == says


def test_a_job_without_a_time_is_within_any_limit(tmp_path: Path) -> None:
    own = "extends: detected\ntime: {default: null}\n"
    found = facts(GPU, Partition("thin"), qos=[NORMAL])
    made = settled(tmp_path, found, own=own, profile="mine", gpus="4")
    assert made.gpu_profile.partition == "gpu"
    assert made.gpu_profile.time.default is None
