"""What stands on the wrong side of SCRIPT."""

from __future__ import annotations

import pytest

from hpcrun.cli.command_line import find_misplaced, last_of_each, new_args, option_names
from hpcrun.cli.submit import submit
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
def test_hpcrun_s_options_among_a_script_s_arguments(args: list[str], options: list[str], left: list[str]) -> None:
    found = find_misplaced(args, NAMES)
    assert (list(found.options), list(found.args)) == (options, left)


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ("submit --nodes 2 --nodes 2", "submit --nodes 2"),
        ("submit --gpus 4 -t 5 --gpus 1", "submit -t 5 --gpus 1"),
        ("submit --gpus=4 -N 2 -G 1 --nodes=3", "submit -G 1 --nodes=3"),
        ("submit --snapshot --snapshot", "submit --snapshot"),
        ("submit --env A=1 --env B=2 --sbatch x --sbatch y", "submit --env A=1 --env B=2 --sbatch x --sbatch y"),
        ("submit -p gpu -p gpu", "submit -p gpu -p gpu"),
        ("submit --name --gpus --gpus 1", "submit --name --gpus --gpus 1"),
    ],
)
def test_each_option_stands_once_and_the_later_value_wins(words: str, left: str) -> None:
    assert " ".join(last_of_each(words.split(), NAMES)) == left


def test_new_arguments_of_a_run_have_no_dry_run_unless_it_is_said_twice() -> None:
    assert new_args(["--lr", "1"], "last", submits=True) == ["--lr", "1"]
    assert new_args(["--", "--dry-run"], "last", submits=True) == ["--dry-run"]
    assert new_args(["--dry-run"], "last", submits=False) == ["--dry-run"]
    with pytest.raises(UsageError) as caught:
        new_args(["--lr", "1", "--dry-run"], "last", submits=True)
    assert "hpcrun resubmit --dry-run last -- --lr 1;" in str(caught.value.hint)
