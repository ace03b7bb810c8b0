"""What hpcrun has instead of the options of sbatch, torchrun and accelerate."""

from __future__ import annotations

import pytest

from hpcrun.cli.command_line import option_names, unknown_options
from hpcrun.cli.submit import submit
from hpcrun.features.scaling.command import scale
from hpcrun.job.other_options import instead_of

OWN = option_names(submit)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--array", "--sweep NAME=VALUE,VALUE"), ("-a", "--sweep NAME=VALUE,VALUE"), ("--chdir", "--workdir"),
        ("-D", "--workdir"), ("--nproc", "--nproc-per-node"), ("--nproc_per_node", "did you mean --nproc-per-node?"),
        ("--ntasks-per-node", "--nproc-per-node"), ("--ntasks", "--nproc-per-node"), ("-n", "--nproc-per-node"),
        ("--dependency", "--after"), ("-d", "--after"), ("--container-image", "--container IMAGE"),
        ("--output", "--output-dir"), ("-o", "--output-dir"), ("-e", "--output-dir"), ("--job-name", "--name"),
        ("--gres", "--gpus"), ("--gpu-type", "--gpus a100:4"), ("--gpu_type", "--gpus a100:4"),
        ("--nnodes", "--nodes"), ("--num_processes", "--nproc-per-node"),
        ("--num_machines", "--nodes"), ("--machine_rank", "leave it out"), ("--main_process_port", "leave it out"),
        ("--master_addr", "leave it out"), ("--rdzv_backend", "--torchrun rdzv-backend=VALUE"),
        ("--max-restarts", "--torchrun max-restarts=VALUE"), ("--mixed_precision", "accelerate launch"),
        ("--exclusive", "--sbatch exclusive"), ("--hold", "--sbatch hold"), ("--begin", "--sbatch begin=VALUE"),
        ("--mem-per-cpu", "--sbatch mem-per-cpu=VALUE"), ("--comment", "--sbatch comment=VALUE"),
        ("--mpi", "--srun mpi=VALUE"), ("--cpu-bind", "--srun cpu-bind=VALUE"), ("--pty", "hpcrun shell"),
        ("--export", "--env NAME=VALUE"), ("--wrap", "write the program"), ("--signal", "--warn"),
        ("--walltime", "--time"), ("--queue", "--partition"), ("--test-only", "--dry-run"), ("--gpu", "--gpus?"),
        ("--standalone", "leave it out"), ("--parsable", "--json"),
    ],
)  # fmt: skip
def test_the_options_of_others_lead_to_hpcrun_s(option: str, words: str) -> None:
    assert words in str(instead_of(option, None, "submit", list(OWN)))


def test_a_value_that_was_typed_stands_in_the_advice() -> None:
    assert instead_of("--comment", "a b", "submit", list(OWN)) == "use --sbatch 'comment=a b'"


def test_no_advice_names_an_option_that_the_command_lacks() -> None:
    own = option_names(scale)
    assert "--sweep" not in str(instead_of("--array", None, "scale", list(own)))
    assert instead_of("--array", None, "status", ["--all", "--json"]) is None
    assert "logs RUN --rank" in str(instead_of("--rank", None, "explain", ["--log"]))
    assert "--fresh" in str(instead_of("--resume", None, "resubmit", list(OWN)))


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("--array 0-3 --chdir=/x --gpus 4 --exclusive train.py --own", ["--array", "--chdir", "--exclusive"]),
        ("--gpus 4 -n 4 -G2 -P a100 train.py -n 3", ["-n"]),
        ("--foo train.py --bar 1", ["--foo"]),
        ("--foo -- --bar", ["--foo"]),
        ("train.py --bar", []),
    ],
)
def test_all_unknown_options_before_the_script_are_found(line: str, names: list[str]) -> None:
    assert [name for name, _ in unknown_options(line.split(), OWN, script_last=True)] == names


def test_options_between_arguments_are_found_too() -> None:
    found = unknown_options("4711 --rnak=3 --json --lins 4 5".split(), {"--json": False}, script_last=False)
    assert found == [("--rnak", "3"), ("--lins", None)]
