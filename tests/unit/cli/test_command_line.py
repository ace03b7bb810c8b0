"""What stands on the wrong side of SCRIPT."""

from __future__ import annotations

import pytest

from hpcrun.cli.command_line import find_misplaced, new_args, option_names
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


def test_new_arguments_of_a_run_have_no_dry_run_unless_it_is_said_twice() -> None:
    assert new_args(["--lr", "1"], "last", submits=True) == ["--lr", "1"]
    assert new_args(["--", "--dry-run"], "last", submits=True) == ["--dry-run"]
    assert new_args(["--dry-run"], "last", submits=False) == ["--dry-run"]
    with pytest.raises(UsageError) as caught:
        new_args(["--lr", "1", "--dry-run"], "last", submits=True)
    assert "hpcrun resubmit --dry-run last -- --lr 1;" in str(caught.value.hint)
