"""The command line of a job: every option once, and all behind SCRIPT is the script's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import typer

from hpcrun.cli.job_options import JOB_OPTIONS, JOB_SCRIPT
from hpcrun.cli.options import takes_options
from hpcrun.job.launch_options import OPTIONS
from hpcrun.job.request.job_request import JOB_FIELDS, given_fields, option_of
from hpcrun.job.request.option_panels import RESOURCES, SIZE
from hpcrun.job.request.options import DeclaredOption, OptionPanel
from hpcrun.job.request.read_request import read_request
from tests.harness import Hpcrun

Tables = Mapping[str, DeclaredOption]


def parse(
    *args: str,
    tables: tuple[Tables, ...] = (JOB_SCRIPT, JOB_OPTIONS),
    panels: tuple[OptionPanel, ...] | None = None,
) -> Any:
    """What a command receives that takes a job, and its own --dry-run."""
    seen: list[dict[str, Any]] = []
    app = typer.Typer()

    @app.command(context_settings={"allow_interspersed_args": False})
    @takes_options(*tables, panels=panels)
    def command(asked: dict[str, Any], dry_run: bool = False) -> None:
        seen.append(asked | {"dry_run": dry_run})

    app(list(args), standalone_mode=False)
    return {name: value for name, value in seen[0].items() if value not in (None, False)}


def test_each_option_reaches_its_field() -> None:
    line = (
        "-N 2 --segment 2 --srun mpi=pmix --srun overlap --torchrun max-restarts=1 -G 4 "
        "--gpus-per-node 2 -t 36h -m"
        " --nproc-per-node 2 --mem 64G --cpus 4 -c 4 --cpus-per-gpu 4 -p gpu -A proj -q high -C "
        "ib&a100 -x node1"
        " -w node2 --reservation r -J name -P a100 --sbatch a=b --sbatch exclusive --no-sbatch mem "
        "--env A=b=c --uv"
        " --load cuda --load nccl --setup true --launcher srun --python /x --workdir /x "
        "--mail-user me"
        " --mail-type END --preflight --dry-run train.py"
    )
    assert parse(*line.split()) == {
        "nodes": "2",
        "segment": 2,
        "srun": ["mpi=pmix", "overlap"],
        "torchrun": ["max-restarts=1"],
        "gpus": "4",
        "gpus_per_node": "2",
        "walltime_s": "36h",
        "nproc_per_node": 2,
        "memory_mb": "64G",
        "cpus": 4,
        "cpus_per_task": 4,
        "cpus_per_gpu": 4,
        "partition": "gpu",
        "account": "proj",
        "qos": "high",
        "constraint": "ib&a100",
        "exclude": "node1",
        "nodelist": "node2",
        "reservation": "r",
        "name": "name",
        "profile": "a100",
        "sbatch": ["a=b", "exclusive"],
        "no_sbatch": ["mem"],
        "env": ["A=b=c"],
        "uv": True,
        "load": ["cuda", "nccl"],
        "setup": ["true"],
        "launcher": "srun",
        "python": "/x",
        "workdir": "/x",
        "mail_user": "me",
        "mail_type": "END",
        "preflight": True,
        "module": True,
        "dry_run": True,
        "script": "train.py",
    }


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["--lr", "1e-3"],
        ["--nodes", "3", "-N", "5", "--gpus=7"],
        ["--help"],
        ["--", "x"],
        ["--"],
        ["-m"],
        ["", " ", "a b", "$HOME", "*", "\n"],
        ["--dry-run"],
        ["other.py", "--gpus", "1"],
        ["-1"],
        ["\udcff"],
    ],
)
def test_all_behind_the_script_is_the_script_s_own_untouched(args: list[str]) -> None:
    asked = parse("--gpus", "4", "train.py", *args)
    assert asked.pop("args", None) == (args or None)
    assert asked == {"gpus": "4", "script": "train.py"}


@pytest.mark.parametrize(
    "args", [["--gpu", "4", "a.py"], ["-Z", "a.py"], ["--cpus", "two", "a.py"]]
)
def test_an_unknown_option_or_a_wrong_value_is_refused(args: list[str]) -> None:
    with pytest.raises(typer.TyperException):
        parse(*args)


def test_a_command_without_a_script_takes_the_options_it_has_use_for() -> None:
    assert parse("--gpus", "4", tables=(JOB_OPTIONS,), panels=(SIZE, RESOURCES)) == {"gpus": "4"}
    for args in (["train.py"], ["--module"]):
        with pytest.raises(typer.TyperException):
            parse(*args, tables=(JOB_OPTIONS,), panels=(SIZE, RESOURCES))


@pytest.mark.parametrize(
    "option",
    [["--sweep", "x=1,2"], ["--snapshot"], ["--requeue", "2"], ["--cancel-idle", "30m"]],
    ids=lambda words: words[0],
)
def test_preflight_refuses_options_that_mean_nothing_to_it(
    hpcrun: Hpcrun, option: list[str]
) -> None:
    done = hpcrun("preflight", "-P", "a100", "--gpus", "1", *option)
    assert done.returncode == 2
    assert f"no such option: {option[0]}" in done.stderr.lower()


def test_every_field_has_an_option_that_is_named_as_messages_name_it_and_no_two_share_a_name() -> (
    None
):
    assert {*JOB_SCRIPT, *JOB_OPTIONS} - {"profile"} == set(JOB_FIELDS)
    options = {field: option.names for field, option in JOB_OPTIONS.items()}
    assert all(option_of(field) in names for field, names in options.items())
    every = [name for names in options.values() for name in names]
    assert len(set(every)) == len(every)
    assert all(option_of(field) == f"--{directive}" for directive, field in OPTIONS.items())


def test_what_was_not_typed_is_not_asked_for() -> None:
    asked = parse("train.py")
    assert asked == {"script": "train.py"}
    assert given_fields(read_request(asked)) == asked
