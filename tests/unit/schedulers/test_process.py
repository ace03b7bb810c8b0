"""Commands in messages."""

from __future__ import annotations

from hpcrun.schedulers.process import command_text, run_command
from hpcrun.schedulers.slurm_text import sacct_command, squeue_command


def test_a_message_shows_no_separators_and_no_thousand_job_ids() -> None:
    assert command_text(squeue_command(1001)) == "squeue --user=1001 --states=all --noheader --format=..."
    asked = command_text(sacct_command([str(number) for number in range(8000)]))
    words = "sacct --allocations --duplicates --jobs=... --parsable2 --noheader --delimiter=... --format="
    assert asked.startswith(words)
    assert command_text(["scancel", *map(str, range(8000))]) == "scancel 0 1 2 3 4 5 6 7 8 9 10 ..."


def test_a_message_shows_the_rest_as_it_can_be_typed() -> None:
    assert command_text(["sinfo", "-N", "--format=%N %T"]) == "sinfo -N '--format=%N %T'"
    assert command_text(["git", "log\x1b[2J", "x" * 61]) == "git ... ..."


def test_a_command_that_hangs_is_named_without_its_separator() -> None:
    argv = ["sh", "-c", "exec sleep 60", "--format=%i\x1f%T"]
    words = run_command(argv, timeout_s=0.05).words()
    assert words == "`sh -c 'exec sleep 60' --format=...`: did not respond\ntimed out after 0.05 s"
