"""Where a job could start: what is asked, what is refused beforehand, what comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcrun.errors import ProfileError, SchedulerError, UsageError
from hpcrun.features.where.command import (
    Misfit,
    Offer,
    Placement,
    compare_profiles,
    over_partition,
    ranked,
)
from hpcrun.job.resources.shape import naming_gpu_type, types_to_choose_from
from hpcrun.schedulers.cluster_facts import Partition
from hpcrun.schedulers.job_start import JobStart, SlurmForecast
from tests.unit import builders
from tests.unit.builders import plan, request, slurm_profile, surroundings, write

TYPES = {"type": None, "per_node": 4, "types": {"h100": {"per_node": 8}, "l40s": {}}}
PARTITIONS = [
    Partition("gpu", default=True, max_s=7200),
    Partition("long", max_s=None),
    Partition("off", up=False),
]
NOW = 1000.0


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"walltime_s": "2h"}, None),
        (
            {"walltime_s": "121m"},
            "a time limit of 02:01:00 is longer than the 02:00:00 of partition gpu",
        ),
        ({"walltime_s": "121m", "partition": "long"}, None),
        ({"walltime_s": "121m", "partition": "gpu,long"}, None),
        ({"partition": "off"}, "partition off is not up"),
        ({"partition": "nope"}, None),
        ({}, None),
    ],
)
def test_what_sbatch_does_not_say_of_a_partition_is_looked_at_before(
    asked: dict[str, Any], says: str | None
) -> None:
    assert over_partition(plan(**{"gpus": "4", **asked}), PARTITIONS) == says
    # without a default partition sbatch judges
    assert (
        "partition" in asked
        or over_partition(plan(**{"gpus": "4", **asked}), PARTITIONS[1:]) is None
    )


def test_each_type_of_a_profile_is_a_candidate_where_none_is_named(
    subtests: pytest.Subtests,
) -> None:
    for gpu, asked, types in (
        (TYPES, {"gpus": "4"}, ("h100", "l40s")),
        (TYPES, {"gpus_per_node": "4"}, ("h100", "l40s")),
        ({**TYPES, "type": "a100"}, {"gpus": "4"}, ("a100", "h100", "l40s")),
        ({**TYPES, "type": "l40s"}, {"gpus": "4"}, ("l40s", "h100")),
        (TYPES, {"gpus": "h100:4"}, ()),
        (TYPES, {"gpus": "0"}, ()),
        ({"type": "a100", "per_node": 4}, {"gpus": "4"}, ()),
    ):
        with subtests.test(gpu=gpu):
            assert types_to_choose_from(slurm_profile(gpu=gpu), request(**asked)) == types
            # in every count of GPUs
            named = naming_gpu_type(request(gpus="8", gpus_per_node="4", nodes=2), "h100")
            assert named == request(gpus="h100:8", gpus_per_node="h100:4", nodes=2)


def offer(
    name: str, start_s: float, preempts: tuple[str, ...] = (), *, idles_gpus: bool = False
) -> Offer:
    candidate = Placement(name, None, request(), plan(), idles_gpus)
    return Offer(candidate, JobStart(start_s, "n1", "gpu", preempts), 1.0)


def test_the_first_start_comes_first_and_who_disturbs_nobody_among_equals() -> None:
    offers = [
        offer("later", NOW + 600),
        offer("displaces", NOW, ("7",)),
        offer("idles", NOW, idles_gpus=True),
        offer("now", NOW + 2),
        offer("past", NOW - 30),
    ]
    names = [each.candidate.profile for each in ranked(offers, NOW)]
    assert names == ["now", "past", "idles", "displaces", "later"]


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with Slurm's two commands: a cluster with one partition, whose sbatch writes down
    what it is asked.
    """
    programs = {
        "scontrol": "echo PartitionName=gpu Default=YES MaxTime=2-00:00:00 MaxNodes=UNLIMITED "
        "State=UP",
        "sbatch": f'echo "$*" >> {tmp_path}/asked\n'
        'echo "sbatch: Job 1 to start at 2026-11-21T03:30:00 using 1 processors on nodes n1 in '
        'partition gpu" >&2',
    }
    for name, text in programs.items():
        write(tmp_path / "bin" / name, f"#!/bin/sh\n{text}\n").chmod(0o755)
    return tmp_path / "bin"


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def ask(folder: Path, profiles: dict[str, str], *names: str, **said: Any) -> Any:
    for name, text in profiles.items():
        write(folder / f"own/profiles/{name}.yaml", text)
    around = surroundings(folder, own=(folder / "own",))
    forecast = SlurmForecast({"PATH": f"{folder}/bin"})
    return compare_profiles(request("true", **said), names, forecast, around, NOW)


def test_one_request_of_two_profiles_is_asked_once_and_gpu_hours_are_gpus_times_the_limit(
    slurm: Path, tmp_path: Path
) -> None:
    same = "partition: gpu\ngpu: {type: a100, per_node: 4}\n"
    offers, _ = ask(
        tmp_path, {"one": same, "two": same + "description: the same\n"}, "one", "two", gpus="4"
    )
    assert [offer.candidate.profile for offer in offers] == ["one", "two"]
    assert len(asked(tmp_path)) == 1
    bare = {"bare": "gpu: {type: a100, per_node: 4}\n"}
    assert ask(tmp_path, bare, "bare", gpus="8", walltime_s="4h")[0][0].gpu_hours == 32
    # without a time limit Slurm gives the partition's
    assert ask(tmp_path, bare, "bare", gpus="8")[0][0].gpu_hours == 8 * 48


def test_one_that_gets_no_answer_is_told_so_beside_those_that_do(
    slurm: Path, tmp_path: Path
) -> None:
    sbatch = slurm / "sbatch"
    away = 'case "$*" in *:other:*) echo "Unable to contact slurm controller" >&2; exit 1;; esac'
    sbatch.write_text(sbatch.read_text().replace("#!/bin/sh", f"#!/bin/sh\n{away}"))
    profiles = {name: f"gpu: {{type: {name}, per_node: 4}}\n" for name in ("one", "other")}
    offers, misfits = ask(tmp_path, profiles, *profiles, gpus="4")
    assert [offer.candidate.profile for offer in offers] == ["one"]
    assert misfits == [
        Misfit("other", None, "sbatch did not respond: Unable to contact slurm controller")
    ]
    with pytest.raises(SchedulerError, match="sbatch did not respond: Unable to contact"):
        ask(tmp_path, profiles, "other", gpus="4")


def test_a_job_that_waits_for_nodes_is_told_which_and_why(slurm: Path, tmp_path: Path) -> None:
    refusal = "allocation failure: Requested node configuration is not available"
    write(slurm / "sbatch", f"#!/bin/sh\necho '{refusal}' >&2; exit 1\n").chmod(0o755)
    node = r"n1\037gpu*\037drained\037bad fan\037gpu:a100:4\03764\0371000\n"
    write(slurm / "sinfo", f"#!/bin/sh\nprintf '{node}'\n").chmod(0o755)
    profile = {"one": "partition: gpu\ngpu: {type: a100, per_node: 4}\n"}
    _, misfits = ask(tmp_path, profile, "one", gpus="4")
    assert misfits == [Misfit("one", None, "n1 is drained (bad fan)", waits=True)]
    # no node of this kind, away or not
    _, misfits = ask(tmp_path, profile, "one", gpus="8")
    assert misfits == [Misfit("one", None, refusal)]


def test_no_more_than_twelve_requests_are_asked(slurm: Path, tmp_path: Path) -> None:
    many = {
        f"p{number:02d}": f"gpu: {{type: t{number:02d}, per_node: 4}}\n" for number in range(15)
    }
    offers, misfits = ask(tmp_path, many, *many, gpus="4", walltime_s="1h")
    assert [offer.candidate.profile for offer in offers] == list(many)[:12]
    assert [misfit.profile for misfit in misfits] == list(many)[12:]
    assert "at most 12 requests; choose profiles with -P" in misfits[0].reason
    assert len(asked(tmp_path)) == 12


def test_what_sbatch_is_asked_is_what_submit_sends(slurm: Path, tmp_path: Path) -> None:
    profile = "partition: gpu\ngpu: {type: a100, per_node: 4}\nsbatch: {comment: two words}\n"
    ask(tmp_path, {"one": profile}, "one", gpus="8", walltime_s="4h", memory_mb="10G")
    wanted = builders.plan(
        slurm_profile(partition="gpu", sbatch={"comment": "two words"}),
        gpus="8",
        walltime_s="4h",
        memory_mb="10G",
    )
    (line,) = asked(tmp_path)
    for key, value in wanted.directives:
        if key != "job-name":
            assert f"--{key}" + (f"={value}" if value else "") in line


def test_what_does_not_fit_says_why_and_nobody_is_asked(tmp_path: Path) -> None:
    own = {"broken": "partitoin: x\n", "desk": "scheduler: local\n"}
    offers, misfits = ask(tmp_path, own, gpus="8", walltime_s="30-0")
    reasons = {misfit.profile: misfit.reason for misfit in misfits}
    assert "unknown key 'partitoin'" in reasons["broken"]
    assert reasons["cpu"] == "8 GPUs per node, but a node of profile 'cpu' has 0"
    assert "longer than the 2-00:00:00 that profile 'a100' allows" in reasons["a100"]
    assert not {"local", "desk"} & set(reasons)
    assert offers == ()


def test_a_contradiction_is_the_request_s_own_a_named_profile_must_be_right_and_slurm_is_away(
    tmp_path: Path,
) -> None:
    for options, message in (
        ({"gpus": "3"}, "3 GPUs do not divide by 2 nodes"),
        ({}, "size of the job is missing"),
    ):
        with pytest.raises(UsageError, match=message):
            ask(tmp_path, {}, nodes=2, **options)
    with pytest.raises(ProfileError, match="partitoin"):
        ask(tmp_path, {"broken": "partitoin: x\n"}, "broken", gpus="1")
    (misfit,) = ask(tmp_path, {}, "local", gpus="1")[1]
    assert misfit == Misfit("local", None, "runs on this machine, without Slurm")
    with pytest.raises(SchedulerError, match="scontrol: No such file"):
        ask(tmp_path, {}, "a100", gpus="1")


def test_the_default_profile_is_asked_first_then_one_s_own(slurm: Path, tmp_path: Path) -> None:
    write(tmp_path / "own/profiles/mine.yaml", "gpu: {type: mine, per_node: 4}\n")
    path = write(tmp_path / "by-path.yaml", "gpu: {type: other, per_node: 4}\n")
    forecast = SlurmForecast({"PATH": f"{tmp_path}/bin"})
    for default in ("h100", str(path)):
        around = surroundings(tmp_path, {"HPCRUN_PROFILE": default}, own=(tmp_path / "own",))
        offers, _ = compare_profiles(request("true", gpus="4"), (), forecast, around, NOW)
        names = [offer.candidate.profile for offer in offers]
        assert names[:3] == [default, "mine", "a100"]
        assert names.count(default) == 1
