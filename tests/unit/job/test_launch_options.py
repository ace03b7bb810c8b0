"""Options of srun and torchrun, how they stand in the script, and what hpcrun has instead of
others'.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from hpcrun.cli.misplaced_options import option_names, unknown_options
from hpcrun.cli.submit import submit
from hpcrun.errors import HpcrunError, UsageError
from hpcrun.features.scaling.command import scale
from hpcrun.job.launch_options import _OWNED, check_option, instead_of
from hpcrun.job.resources.shape import option_words
from tests.unit.builders import laptop, plan, script, slurm_profile


def line(program: str, **asked: Any) -> list[str]:
    """The words of the script's line with the ranks' srun or torchrun, up to the next program."""
    text = script(plan(asked.pop("profile", None), **asked))
    (found,) = [
        each
        for each in text.splitlines()
        if each.strip().startswith(("srun ", "/opt/venv/bin/python -m")) and program in each
    ]
    return shlex.split(found.removesuffix("\\"))


TWO_NODES: dict[str, Any] = {"gpus": "8", "nodes": 2}


def test_srun_gets_the_profile_s_options_and_over_them_the_request_s() -> None:
    profile = slurm_profile(srun={"mpi": "pmix", "overlap": True, "cpu_bind": "cores"})
    words = line("srun", profile=profile, srun=["mpi=none", "network=sn_all=2"], **TWO_NODES)
    assert words[-5:] == [
        "--kill-on-bad-exit=1",
        "--mpi=none",
        "--overlap",
        "--cpu-bind=cores",
        "--network=sn_all=2",
    ]
    # a training that lives on with fewer ranks may keep its step
    words = line("srun", srun=["kill-on-bad-exit=0", "wait=60"], **TWO_NODES)
    assert words[-3:] == ["--wait=60", "--export=ALL", "--kill-on-bad-exit=0"]
    # the preflight's step has none of them
    assert script(plan(srun=["mpi=pmix"], preflight=True, **TWO_NODES)).count("--mpi=pmix") == 1


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpus": "4", "torchrun": ["max-restarts=3"]}, ["--standalone", "--max-restarts=3"]),
        (
            {**TWO_NODES, "torchrun": ["max-restarts=3"]},
            ["--rdzv-backend=c10d", "--max-restarts=3"],
        ),
        (
            {"gpus": "4", "torchrun": ["rdzv_endpoint=login1:29400"]},
            ["--rdzv-backend=c10d", "--max-restarts=0", "--rdzv-endpoint=login1:29400"],
        ),
        (
            {**TWO_NODES, "torchrun": ["rdzv-backend=etcd-v2", "numa-binding=node"]},
            ["--rdzv-backend=etcd-v2", "--max-restarts=0", "--numa-binding=node"],
        ),
    ],
)
def test_torchrun_gets_its_options_before_the_program(
    asked: dict[str, Any], words: list[str]
) -> None:
    assert line("torch.distributed.run", **asked)[5:] == [*words, "--no-python"]


def test_a_profile_s_torchrun_section_is_for_jobs_with_torchrun() -> None:
    profile = slurm_profile(torchrun={"max-restarts": "1"})
    assert plan(profile, gpus="4").torchrun == (("max-restarts", "1"),)
    assert plan(profile, gpus="4", launcher="srun").torchrun == ()


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            {"sbatch": ["clusters=other"]},
            "--sbatch clusters=other: hpcrun sets --clusters itself",
            "hpcrun submits to the cluster of this machine",
        ),
        ({"sbatch": ["M=other"]}, "'M' cannot be an option of sbatch", "the long name"),
        ({"srun": ["nodes=3"]}, "--srun nodes=3: hpcrun sets srun's --nodes itself", "--nodes"),
        ({"srun": ["export=NONE"]}, "hpcrun sets srun's --export itself", "--env NAME=VALUE"),
        ({"srun": ["chdi=/x"]}, "srun takes --chdi for --chdir, which hpcrun sets", "--workdir"),
        ({"srun": ["K"]}, "'K' cannot be an option of srun", "cpu-bind=cores"),
        ({"srun": ["--mpi pmix=1"]}, "'--mpi pmix' cannot be an option of srun", "KEY=VALUE"),
        ({"srun": ["mpi=list"]}, "srun would print a list and exit", "srun --mpi=list"),
        ({"srun": ["mpi=a\0b"]}, "a NUL character cannot stand in a script", None),
        (
            {"srun": ["gpu-bind=single:1"], "launcher": "srun"},
            "only some of its GPUs",
            "--srun gpu-bind=none",
        ),
        ({"torchrun": ["nproc_per_node=2"]}, "--nproc-per-node itself", "--gpus"),
        ({"torchrun": ["nproc=2"]}, "torchrun takes --nproc for --nproc-per-node", "--gpus"),
        ({"torchrun": ["node-rank=0"]}, "--node-rank itself", "on each node"),
        ({"torchrun": ["rdzv-backend=static"]}, "chooses it itself", "leave it out"),
        ({"torchrun": ["shutdown-timeout=5"]}, "25 s to end", "shutdown-timeout=30"),
        (
            {"torchrun": ["max-restarts=1"], "launcher": "srun"},
            "has no effect with --launcher srun",
            "torchrun",
        ),
        ({"nodes": 4, "segment": 3}, "segments of 3 nodes do not divide 4 nodes", "--nodes 3 or 6"),
    ],
)
def test_what_would_break_the_job_is_refused(
    asked: dict[str, Any], message: str, hint: str | None
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        plan(**{**TWO_NODES, **asked})
    assert hint is None or hint in (error.value.hint or "")


def test_a_local_profile_has_no_srun_and_passes_over_that_of_what_it_extends() -> None:
    assert plan(laptop(srun={"mpi": "pmix"}), gpus="0").srun == ()
    with pytest.raises(UsageError, match="runs on this machine, without srun"):
        plan(laptop(), gpus="0", srun=["mpi=none"])


def test_gpu_bind_none_and_one_rank_on_a_node_hide_nothing() -> None:
    assert plan(**TWO_NODES, launcher="srun", srun=["gpu-bind=none"]).srun == (
        ("gpu-bind", "none"),
    )
    assert plan(**TWO_NODES, srun=["gpu-bind=closest"]).srun == (("gpu-bind", "closest"),)


@pytest.mark.parametrize(
    ("section", "value", "message"),
    [
        ("srun", {"nodes": "2"}, "srun.nodes: hpcrun sets srun's --nodes itself"),
        ("srun", {"mpi": False}, "an option takes text, or true for a bare flag"),
        ("srun", {"mpi": "a\0b"}, "NUL"),
        (
            "torchrun",
            {"standalone": True},
            "torchrun.standalone: hpcrun sets torchrun's --standalone itself",
        ),
    ],
)
def test_a_profile_s_mistakes_are_found_when_it_is_read(
    section: str, value: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(message)):
        slurm_profile(**{section: value})


@pytest.mark.parametrize("program", _OWNED)
def test_no_known_option_is_taken_for_the_beginning_of_one_that_hpcrun_sets(
    program: Any, subtests: pytest.Subtests
) -> None:
    for name in ("mpi", "mem", "exclusive", "wait", "role", "rdzv-id", "log-dir"):
        with subtests.test(name=name):
            assert name in _OWNED[program] or check_option(program, name, "x", "here") == name


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_any_value_reaches_the_program_as_it_was_typed(value: str) -> None:
    try:
        made = plan(**TWO_NODES, srun=[f"network={value}"], torchrun=[f"role={value}"])
    except HpcrunError:
        assert value in ("help", "list")
        return
    text = script(made)
    assert text.isascii()
    assert option_words(made.srun) == (f"--network={value}",)
    assert "\n" not in "".join(each for each in text.splitlines() if "--network=" in each)


@pytest.mark.parametrize(
    ("profile", "asked", "directive", "note"),
    [
        (slurm_profile(segment=2), {"nodes": 4}, "2", None),
        (
            slurm_profile(segment=16),
            {"nodes": 4},
            None,
            "segments of 16 nodes do not divide 4 nodes",
        ),
        (slurm_profile(segment=16), {"nodes": 4, "segment": 4}, "4", None),
        (slurm_profile(), {"nodes": 4, "sbatch": ["segment=2"]}, "2", None),
    ],
)
def test_segments(
    profile: Any, asked: dict[str, Any], directive: str | None, note: str | None
) -> None:
    made = plan(profile, gpus="8", **asked)
    assert made.directive("segment") == directive
    assert len(made.notes) == (note is not None)
    assert note is None or note in made.notes[0]


def test_expedited_requeue_is_asked_for_only_by_a_profile_and_only_with_requeue() -> None:
    profile = slurm_profile(requeue={"times": 3, "expedite": True})
    assert "#SBATCH --requeue=expedite\n" in script(plan(profile, gpus="4"))
    assert "#SBATCH --no-requeue\n" in script(plan(profile, gpus="4", requeue=0))
    assert "#SBATCH --requeue\n" in script(plan(gpus="4", requeue=1))


OWN = option_names(submit)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--chdir", "--workdir"),
        ("-D", "--workdir"),
        ("--nproc", "--nproc-per-node"),
        ("--nproc_per_node", "did you mean --nproc-per-node?"),
        ("--ntasks-per-gpu", "--nproc-per-node"),
        ("--dependency", "--after"),
        ("-d", "--after"),
        ("--container-image", "--container IMAGE"),
        ("--output", "--output-dir"),
        ("-o", "--output-dir"),
        ("-e", "--output-dir"),
        ("--job-name", "--name"),
        ("--gres", "--gpus"),
        ("--gpu-type", "--gpus a100:4"),
        ("--gpu_type", "--gpus a100:4"),
        ("--nnodes", "--nodes"),
        ("--num_processes", "--nproc-per-node"),
        ("--num_machines", "--nodes"),
        ("--machine_rank", "leave it out"),
        ("--main_process_port", "leave it out"),
        ("--master_addr", "leave it out"),
        ("--rdzv_backend", "--torchrun rdzv-backend=VALUE"),
        ("--max-restarts", "--torchrun max-restarts=VALUE"),
        ("--mixed_precision", "accelerate launch"),
        ("--exclusive", "--sbatch exclusive"),
        ("--hold", "--sbatch hold"),
        ("--mem-per-cpu", "--sbatch mem-per-cpu=VALUE"),
        ("--comment", "--sbatch comment=VALUE"),
        ("--mpi", "--srun mpi=VALUE"),
        ("--cpu-bind", "--srun cpu-bind=VALUE"),
        ("--pty", "hpcrun shell"),
        ("--export", "--env NAME=VALUE"),
        ("--signal", "--warn"),
        ("--walltime", "--time"),
        ("--queue", "--partition"),
        ("--test-only", "--dry-run"),
        ("--gpu", "--gpus?"),
        ("--standalone", "leave it out"),
        ("--quiet", "--parsable"),
    ],
)
def test_the_options_of_others_lead_to_hpcrun_s(option: str, words: str) -> None:
    assert words in str(instead_of(option, None, "submit", list(OWN)))


def test_no_advice_names_an_option_that_the_command_lacks_and_a_value_stands_in_it() -> None:
    assert instead_of("--comment", "a b", "submit", list(OWN)) == "use --sbatch 'comment=a b'"
    assert "--sweep" not in str(instead_of("--array", None, "scale", list(option_names(scale))))
    assert instead_of("--array", None, "status", ["--all", "--json"]) is None
    assert "logs RUN --rank" in str(instead_of("--rank", None, "explain", ["--log"]))
    assert "--fresh" in str(instead_of("--resume", None, "resubmit", list(OWN)))


def test_all_unknown_options_before_the_script_or_between_arguments_are_found(
    subtests: pytest.Subtests,
) -> None:
    for line, names in (
        (
            "--hold --chdir=/x --gpus 4 --exclusive train.py --own",
            ["--hold", "--chdir", "--exclusive"],
        ),
        ("--gpus 4 -n 4 -G2 -P a100 train.py -n 3", ["-n"]),
        ("--foo train.py --bar 1", ["--foo"]),
        ("--foo -- --bar", ["--foo"]),
        ("train.py --bar", []),
    ):
        with subtests.test(line=line):
            assert [
                name for name, _ in unknown_options(line.split(), OWN, script_last=True)
            ] == names
    between = unknown_options(
        "4711 --rnak=3 --json --lins 4 5".split(), {"--json": False}, script_last=False
    )
    assert between == [("--rnak", "3"), ("--lins", None)]
