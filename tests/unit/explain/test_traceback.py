"""Tracebacks and launchers' words in the text of a log."""

from __future__ import annotations

from hpcrun.explain.diagnosis.launcher import failed_task, first_failure, first_task
from hpcrun.explain.diagnosis.root_exception import root_exception

PLAIN = """\
Traceback (most recent call last):
  File "/home/me/train.py", line 7, in main
    model(batch)
    ^^^^^^^^^^^^
  File "/opt/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1784, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: shapes differ
""".splitlines()
CHAIN = "During handling of the above exception, another exception occurred:"
# as torch 2.13 prints it, with the traceback of @record
BLOCK = """\
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_10:00:02
  host      : node02
  rank      : 5 (local_rank: 1)
  exitcode  : 1 (pid: 4242)
  error_file: /tmp/torchelastic_x/5/error.json
  traceback : Traceback (most recent call last):
    File "/home/me/train.py", line 7, in main
      model(batch)
  ValueError: shapes differ

============================================================
""".splitlines()


def test_the_last_of_several_counts_and_a_chain_is_one() -> None:
    assert root_exception([*PLAIN, "step", *PLAIN]).begins == 8  # type: ignore[union-attr]
    assert root_exception([*PLAIN, "", CHAIN, "", *PLAIN]).begins == 0  # type: ignore[union-attr]


def test_a_traceback_that_was_cut_is_none() -> None:
    assert root_exception(PLAIN[:3]) is None
    assert root_exception([*PLAIN, *PLAIN[:4]]).begins == 0  # type: ignore[union-attr]


def test_the_earliest_root_cause_of_all_nodes_counts() -> None:
    later = [line.replace("10:00:02", "10:00:09").replace("rank      : 5", "rank      : 1") for line in BLOCK]
    torn_down = [line.replace("10:00:02", "09:00:00").replace(": 1 (pid", ": -15 (pid") for line in BLOCK]
    root = first_failure([*torn_down, *later, *BLOCK])
    assert root is not None
    assert (root.host, root.rank, root.exitcode) == ("node02", 5, "1")
    assert "  ValueError: shapes differ" in root.message


def test_sruns_first_task_is_one_that_failed_by_itself() -> None:
    lines = ["srun: error: n1: task 0: Exited with exit code 143", "srun: error: n2: tasks 4-5: Killed"]
    assert first_task(lines) == (1, "n2", lines[1])
    assert first_task(["step 1"]) is None


def test_the_rank_that_failed_is_sruns_task_or_the_launchers_local_rank() -> None:
    assert failed_task(["srun: error: n1: task 0: Terminated", "srun: error: n2: task 5: Killed"]) == 5
    assert failed_task(["srun: error: n1: task 0: Exited with exit code 143"]) is None
    assert failed_task(["srun: error: n1: tasks 0-3: Exited with exit code 1"]) is None
    died = "subprocess.CalledProcessError: Command '['python', '-u', 'a.py', '--local_rank={}']' returned non-zero"
    assert failed_task([died.format(0)]) == 0
    assert failed_task([died.format(7)]) is None  # torch 1.8 names the process that it started last, whichever failed
    assert failed_task(["failed (exitcode: 1) local_rank: 1 (pid: 51121) of binary: /opt/venv/bin/python3"]) == 1
    assert failed_task([f"failed (exitcode: 1) local_rank: {rank} (pid: 1) of binary: x" for rank in (1, 2)]) is None
    assert failed_task(["  Process name: [[41525,1],6]", "  Exit code:    1"]) == 6
    assert failed_task(["ERROR:composer.cli.launcher:Rank 2 crashed with exit code -7."]) == 2
