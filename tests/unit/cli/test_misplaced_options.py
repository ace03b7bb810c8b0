"""What stands on the wrong side of SCRIPT."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer

from hpcrun.cli.misplaced_options import (
    defines_option,
    last_of_each,
    option_groups,
    option_names,
)
from hpcrun.cli.submit import submit
from hpcrun.cli.usage_errors import usage_error
from hpcrun.errors import UsageError

NAMES = option_names(submit)


def test_every_long_option_is_known_with_whether_it_takes_a_value() -> None:
    assert NAMES["--gpus"]
    assert NAMES["--output-dir"]
    assert not NAMES["--dry-run"]
    assert not NAMES["--snapshot"]
    assert {"-P", "-G", "-N"} <= set(NAMES)
    assert not {"-p", "-c", "-t", "-m"} & set(NAMES)


@pytest.mark.parametrize(
    ("args", "options", "left"),
    [
        (["--lr", "1"], [], ["--lr", "1"]),
        (["--gpus", "1", "--lr", "1"], ["--gpus", "1"], ["--lr", "1"]),
        (["--lr", "1", "--gpus=1"], ["--gpus=1"], ["--lr", "1"]),
        (["--dry-run", "x"], ["--dry-run"], ["x"]),
        (["--gpus"], ["--gpus"], []),
        (["--gpus", "--lr"], ["--gpus"], ["--lr"]),
        (["-P", "a100", "-p", "x"], ["-P", "a100"], ["-p", "x"]),
        (["--", "--gpus", "1"], [], ["--", "--gpus", "1"]),
        (["--gpu", "1"], [], ["--gpu", "1"]),
    ],
)
def test_hpcrun_s_options_among_a_script_s_arguments(
    args: list[str], options: list[str], left: list[str]
) -> None:
    groups = list(option_groups(args, NAMES))
    assert [token for name, group in groups if name for token in group] == options
    assert [token for name, group in groups if not name for token in group] == left


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("submit --nodes 2 --nodes 2", "submit --nodes 2"),
        ("submit --gpus 4 -t 5 --gpus 1", "submit -t 5 --gpus 1"),
        ("submit --gpus=4 -N 2 -G 1 --nodes=3", "submit -G 1 --nodes=3"),
        ("submit --snapshot --snapshot", "submit --snapshot"),
        (
            "submit --env A=1 --env B=2 --sbatch x --sbatch y",
            "submit --env A=1 --env B=2 --sbatch x --sbatch y",
        ),
        ("submit -p gpu -p gpu", "submit -p gpu -p gpu"),
    ],
)
def test_each_option_stands_once_and_the_later_value_wins(words: str, left: str) -> None:
    assert " ".join(last_of_each(list(option_groups(words.split(), NAMES)), NAMES)) == left


def refusal(*words: str) -> UsageError:
    """Return the error of ``hpcrun submit`` with these words."""
    app = typer.Typer()

    @app.command(context_settings={"allow_interspersed_args": False})
    def submit(
        script: str,
        requeue: Annotated[int | None, typer.Option("--requeue")] = None,
        nodes: Annotated[int | None, typer.Option("--nodes", "-N")] = None,
        lines: Annotated[int, typer.Option("--lines", min=1)] = 20,
        share: Annotated[float, typer.Option("--share")] = 1.0,
    ) -> None:
        raise AssertionError((script, requeue, nodes, lines, share))

    with pytest.raises(typer.TyperException) as caught:
        app(list(words), standalone_mode=False)
    return usage_error(caught.value, ["submit", *words], ["submit"])


def test_a_value_that_is_no_number_is_named_with_its_option(subtests: pytest.Subtests) -> None:
    for words, message in (
        ("--requeue train.py", "--requeue: 'train.py' is not a valid integer"),
        ("-N abc train.py", "--nodes: 'abc' is not a valid integer"),
        ("--nodes 1.5 train.py", "--nodes: '1.5' is not a valid integer"),
        ("--share half train.py", "--share: 'half' is not a valid number"),
        ("--lines 0 train.py", "--lines: '0' must be greater than or equal to 1"),
    ):
        with subtests.test(words=words):
            error = refusal(*words.split())
            assert str(error) == message
            assert "--help" in str(error.hint)


def test_each_unknown_option_with_one_dash_is_named_once(subtests: pytest.Subtests) -> None:
    for words, message in (
        ("-n4 --gpus 1 train.py", "No such options:\n  -n\n  --gpus"),
        ("-n 4 --gpus 1 train.py", "No such options:\n  -n\n  --gpus"),
        ("-n=4 --gpus 1 train.py", "No such options:\n  -n\n  --gpus"),
        ("-np 4 --gpus 1 train.py", "No such options:\n  -np\n  --gpus"),
        ("-n4 train.py", "No such option: -n"),
        ("-share 2 train.py", "No such option: -share"),
    ):
        with subtests.test(words=words):
            assert str(refusal(*words.split())) == message


def test_options_behind_the_script_are_none_of_submit_s(subtests: pytest.Subtests) -> None:
    for words in (
        "--job-name=x s4.sbatch --seed 1",
        "--job-name x s4.sbatch --seed 1",
        "--nodes 2 --job-name=x train.py --seed 1 --job-nam=y",
    ):
        with subtests.test(words=words):
            assert str(refusal(*words.split())) == "No such option: --job-name"
    assert str(refusal("--what", "s4.sbatch", "--seed", "1")) == "No such option: --what"


def test_a_script_in_place_of_a_command_is_submitted_by_submit() -> None:
    app = typer.Typer()
    app.command("status")(lambda: None)
    app.command("logs")(lambda: None)
    for words, hint in (
        (["train.py", "--lr", "1"], "to submit it: hpcrun submit train.py --lr 1"),
        (["--gpus", "2", "a b.py"], "to submit a script: hpcrun submit --gpus 2 'a b.py'"),
    ):
        with pytest.raises(typer.TyperException) as caught:
            app(words, standalone_mode=False)
        assert usage_error(caught.value, words, ["status", "logs"]).hint == hint


def test_the_name_of_a_command_in_another_program_leads_to_hpcrun_s() -> None:
    app = typer.Typer()
    app.command("status")(lambda: None)
    app.command("cancel")(lambda: None)
    for typed, command in (("squeue", "status"), ("scancel", "cancel"), ("stauts", "status")):
        with pytest.raises(typer.TyperException) as caught:
            app([typed], standalone_mode=False)
        error = usage_error(caught.value, [typed], ["status", "cancel"])
        listing = "`hpcrun --help` lists the commands"
        assert error.hint == f"did you mean hpcrun {command}? {listing}"


@pytest.mark.parametrize(
    ("text", "name", "defines"),
    [
        pytest.param("parser.add_argument('--nodes', '-N')", "--nodes", True, id="argparse"),
        pytest.param("parser.add_argument('--nodes', '-N')", "-N", True, id="one letter"),
        pytest.param("parser.add_argument('--lr')", "-N", False, id="another letter"),
        pytest.param("def main(nodes: int = 1)", "--nodes", True, id="typer"),
        pytest.param("nodes = 2  # --nodes", "--nodes", False, id="a variable"),
        pytest.param("add_argument('--nodes-max')", "--nodes", False, id="a longer name"),
    ],
)
def test_a_script_defines_an_option_in_quotes_or_as_an_annotated_name(
    text: str, name: str, *, defines: bool
) -> None:
    assert defines_option(text, name) is defines
