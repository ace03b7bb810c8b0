"""The plan: every number and word of the script."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from tests.unit.builders import plan, slurm_profile


@pytest.mark.parametrize(
    ("form", "type_", "nodes", "asked"),
    [
        ("gres", None, 2, {"gres": "gpu:2"}),
        ("gpus-per-node", None, 2, {"gpus-per-node": "2"}),
        ("gpus", "a100", 1, {"gpus": "a100:4"}),
        ("gpus", None, 2, {"gpus": "4", "gpus-per-node": "2"}),
    ],
)
def test_gpus_are_asked_for_in_the_form_the_site_wants(
    form: str, type_: str | None, nodes: int, asked: dict[str, str]
) -> None:
    decided = plan(
        slurm_profile(gpu={"type": type_, "per_node": 4, "directive": form}), gpus="4", nodes=nodes
    )
    forms = {
        name: text for name, text in decided.directives if name in ("gres", "gpus-per-node", "gpus")
    }
    assert forms == asked


def test_any_other_directive_can_be_set_and_an_unknown_one_is_noted(
    subtests: pytest.Subtests,
) -> None:
    for item, directive in (
        ("exclusive", ("exclusive", None)),
        ("mem_per_gpu=10G", ("mem-per-gpu", "10G")),
        ("comment=a=b", ("comment", "a=b")),
        ("comment=", ("comment", "")),
    ):
        with subtests.test(item=item):
            assert directive in plan(sbatch=[item]).directives
    assert ("exclusive", None) in plan(slurm_profile(sbatch={"exclusive": True})).directives
    decided = plan(sbatch=["licences=matlab"])
    assert ("licences", "matlab") in decided.directives
    assert any("did you mean 'licenses'?" in note for note in decided.notes)
    assert plan(sbatch=["licenses=matlab"]).notes == ()


def test_a_directive_that_the_profile_sets_can_be_removed() -> None:
    profile = slurm_profile(
        memory={"per_gpu": "10G"}, partition="gpu", sbatch={"comment": "theirs"}
    )
    decided = plan(profile, gpus="4", no_sbatch=["mem", "comment", "--partition"])
    assert not {"mem", "comment", "partition"} & {name for name, _ in decided.directives}


OURS = "partition account qos constraint reservation exclude nodelist mail_user mail_type".split()


@pytest.mark.parametrize(
    ("profile", "asked", "directives"),
    [
        *(({}, {field: "mine"}, {field.replace("_", "-"): "mine"}) for field in OURS),
        *(({field: "theirs"}, {}, {field: "theirs"}) for field in OURS[:4]),
        *(({field: "theirs"}, {field: "mine"}, {field: "mine"}) for field in OURS[:4]),
        *(
            ({"sbatch": {field: "theirs"}}, {field: "mine"}, {field: "mine"})
            for field in ("partition", "qos")
        ),
        (
            {"sbatch": {"mem-per-cpu": "4G"}},
            {"memory_mb": "8G"},
            {"mem": "8G", "mem-per-cpu": None},
        ),
        ({"sbatch": {"mem": "4G"}}, {"memory_mb": "8G"}, {"mem": "8G", "mem-per-cpu": None}),
        ({"sbatch": {"time": "1:00:00"}}, {"walltime_s": "2h"}, {"time": "02:00:00"}),
        (
            {"sbatch": {"comment": "theirs", "exclusive": True, "nice": "5"}},
            {"sbatch": ["comment=mine"]},
            {"comment": "mine", "nice": "5"},
        ),
    ],
)
def test_an_option_comes_before_the_profile(
    profile: dict[str, Any], asked: dict[str, Any], directives: dict[str, str | None]
) -> None:
    decided = plan(slurm_profile(**profile), gpus="4", **asked)
    assert {name: decided.directive(name) for name in directives} == directives


def test_a_rank_runs_the_script_with_the_job_s_python_or_the_program_itself() -> None:
    python = "/opt/venv/bin/python"
    assert plan(script="train.py", args=["--lr", "1e-3"]).command == (
        python,
        "-u",
        "train.py",
        "--lr",
        "1e-3",
    )
    assert plan(script="pkg.train", module=True, args=["x"]).command == (
        python,
        "-u",
        "-m",
        "pkg.train",
        "x",
    )
    assert plan(script="./run.sh", args=["x"]).command == ("./run.sh", "x")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("/a/b/train.py", "train"),
        ("-m pkg.sub.train", "train"),
        ("'my script.py'", "my-script"),
        ("hetjob.py", "het-job"),
        ("./run.sh", "run"),
        ("python train.py --x.py", "train"),
        ("python3.11 -u sub/train.py", "train"),
        ("bash run.sh a", "run"),
        ("python -m pkg.fit --lr 1", "fit"),
        ("python -um pkg.fit", "fit"),
        ("python -W ignore -Xdev train.py", "train"),
        ("bash -c train.py", "bash"),
        ("python", "python"),
        ("python config.yaml", "python"),
        ("./prog train.py", "prog"),
        ("/bin/sh x.sh", "x"),
        ("uv run train.py", "train"),
        ("uv run --with x python -u train.py", "train"),
        ("uv run -m pkg.fit", "fit"),
        ("env A=1 nohup ./prog a", "prog"),
        ("uv run", "uv"),
        ("uv sync", "uv"),
        ("conda run -n e bash -c x", "bash"),
    ],
)
def test_a_job_has_the_name_of_its_script_unless_it_is_given_one(line: str, name: str) -> None:
    module, script, *args = (
        ["", *shlex.split(line)] if not line.startswith("-m ") else shlex.split(line)
    )
    decided = plan(script=script, args=args, module=bool(module))
    assert decided.name == name
    assert decided.directive("job-name") == name
    assert (
        plan(script=script, args=args, module=bool(module), name="other").directive("job-name")
        == "other"
    )


def test_modules_setup_and_variables_of_the_profile_come_before_those_asked_for() -> None:
    profile = slurm_profile(modules=["cuda/12.6"], setup=["ulimit -c 0"], env={"A": "1", "B": "1"})
    decided = plan(profile, load=["nccl"], setup=["echo hi"], env=["B=2", "C=3"])
    assert decided.modules == ("cuda/12.6", "nccl")
    assert decided.setup == ("ulimit -c 0", "echo hi")
    assert decided.env == (("A", "1"), ("B", "2"), ("C", "3"))


def test_a_rank_s_threads_are_its_share_of_the_cpus() -> None:
    assert plan(gpus="4", cpus=30).cpus_per_rank == 7
    assert plan(gpus="4", cpus=2).cpus_per_rank == 1
    assert plan(gpus="0", cpus=16).cpus_per_rank == 16
    assert plan(gpus="4", launcher="python", cpus=32).cpus_per_rank == 32


def test_a_preflight_is_compared_with_what_the_profile_says() -> None:
    card = {"tflops": {"bf16": 989, "fp16": 989}, "nvlink_gb_s": 900}
    profile = slurm_profile(card=card, fabric={"bandwidth_gbit_s": 400})
    decided = plan(profile, preflight=True)
    assert decided.preflight == "first"
    rates = {"bf16-tflops": 989, "fp16-tflops": 989, "nvlink-gb-s": 900, "fabric-gbit-s": 400}
    assert dict(decided.rates) == rates
    assert plan(profile).preflight is None
    assert plan(profile, preflight=False).rates == ()
    assert plan(slurm_profile(), preflight="only").rates == ()
