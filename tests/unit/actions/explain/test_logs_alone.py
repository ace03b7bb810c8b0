"""What explain says of a log alone: programs of other people, in the wording of public threads."""

from __future__ import annotations

from pathlib import Path

from hpcrun.actions.explain.ended import Explanation
from hpcrun.actions.explain.outside import explain_logs
from hpcrun.actions.explain.rules import load_rules

RULES = load_rules([])
TRACE = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in <module>\n    main()\n'


def said_of(tmp_path: Path, text: str) -> Explanation:
    path = tmp_path / "job.log"
    path.write_text(text)
    return explain_logs([str(path)], RULES)


def summary_of(number: int, rank: int, time: str, exitcode: str, traceback: str) -> str:
    """An entry of torchrun's summary."""
    return (
        f"[{number}]:\n  time      : 2026-11-23_{time}\n  host      : localhost\n"
        f"  rank      : {rank} (local_rank: {rank})\n"
        f"  exitcode  : {exitcode}\n  error_file: <N/A>\n  traceback : {traceback}\n"
    )


NO_TRACE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
KILLED = "Signal 9 (SIGKILL) received by PID 15094"


def torchruns(killed_at: str) -> str:
    """What torchrun says of rank 1, which raised an exception, and of rank 0, which was killed."""
    return (
        "E1123 05:36:05.104000 15089 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
        "local_rank: 1 (pid: 15095) of binary: /venv/bin/python\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n"
        + summary_of(1, 0, killed_at, "-9 (pid: 15094)", KILLED)
        + f"{'-' * 60}\nRoot Cause (first observed failure):\n"
        + summary_of(0, 1, "05:35:35", "1 (pid: 15095)", NO_TRACE)
        + f"{'=' * 60}\n"
    )


def test_a_rank_that_torchrun_kills_after_a_failure_is_not_the_failure(tmp_path: Path) -> None:
    own = "".join(f"[rank1]: {line}\n" for line in f"{TRACE}ValueError: label 7 out of range".splitlines())
    said = said_of(tmp_path, own + torchruns("05:36:05"))
    assert (said.rank, said.rule, said.fix) == (1, None, "")
    assert "ValueError: label 7 out of range at train.py:9" in said.summary
    alone = said_of(tmp_path, torchruns("05:36:05"))  # the exception is in a file that nobody has shown
    assert (alone.rank, alone.rule) == (1, None)
    assert alone.summary == "rank 1 on localhost failed first with exit status 1"


def test_a_rank_that_is_killed_in_the_moment_of_the_first_failure_may_be_the_reason(tmp_path: Path) -> None:
    assert said_of(tmp_path, torchruns("05:35:36")).rule == "killed-said"
