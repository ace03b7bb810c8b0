"""Logs made after public reports of failures: what is said of each, and nothing of healthy ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.explain.diagnosis.progress import history_ends, stall_in
from tests.harness import REPO
from tests.unit.explain.written import TRACE, of_log

REPORTED = REPO / "tests/data/explain/reported"
DAMAGED = "checkpoint-damaged"
HEALTHY = sorted(REPORTED.glob("healthy/*.log"))
LIMIT = (
    "slurmstepd: error: *** JOB 4711 ON n1 CANCELLED AT 2026-11-22T10:40:00 DUE TO TIME LIMIT ***\n"
)
WAITS = "".join(
    f"2026-11-22 10:{minute:02}:05 WARNING 1 pending placement group: cannot be scheduled\n"
    for minute in range(3, 30)
)


@pytest.mark.parametrize(
    ("name", "rule", "rank", "summary"),
    [
        ("cpu-bind", "cpu-bind", None, "srun could not bind the ranks to CPUs"),
        ("triton-cache-busy", "compile-cache", 9, "rank 9 on node-2 failed first: the cache of"),
        ("jax-invalid-device", "invalid-device", 1, "rank 1: a rank selected a GPU that it cannot"),
        ("ray-oom-after-training", "host-out-of-memory", 0, "the job was killed on 10.1.180.84"),
        ("no-space-in-loader", "shared-memory", None, "a process found no free space in /dev/shm"),
        ("shm-file-full", "shared-memory", None, "a process found no free space in /dev/shm"),
        ("ray-oom", "host-out-of-memory", None, "the job was killed: it used more memory"),
        ("mpi-without-pmi", "mpi-without-pmi", None, "Open MPI cannot be started by srun"),
        ("jax-barrier", "barrier-timeout", None, "to a barrier of JAX in time: 6 of 8 came"),
        ("preempted-before", None, None, "KeyError: 'validation_b' at train.py:80"),
        ("preempted-long-before", None, None, "KeyError: 'validation_b' at train.py:80"),
    ],
)
def test_what_a_reported_failure_is_told_of(
    name: str, rule: str | None, rank: int | None, summary: str
) -> None:
    said = of_log((REPORTED / f"{name}.log").read_text())
    assert (said.rule, said.rank) == (rule, rank)
    assert summary in said.summary


SITE = "/venv/lib/python3.11/site-packages"


@pytest.mark.parametrize(
    ("log", "rule", "summary"),
    [
        ("'datasets' (/me/datasets/__init__.py)", "import-own", "/me/datasets/__init__.py has no"),
        (
            "partially initialized module 'a.b' (most likely due to a circular import) (/me/a.py)",
            "import-own",
            "/me/a.py has no load",
        ),
        (f"'datasets' ({SITE}/datasets/__init__.py)", "import-name", "written for another version"),
        ("'datasets' (unknown location)", "import-name", "written for another version"),
    ],
)
def test_a_file_of_ones_own_is_no_library_of_another_version(
    log: str, rule: str, summary: str
) -> None:
    said = of_log(f"ImportError: cannot import name 'load' from {log}\n")
    assert said.rule == rule
    assert summary in said.summary


@pytest.mark.parametrize(
    "log",
    [
        "Fatal Python error: Illegal instruction\n\nThread 0x7f (most recent call first):\n",
        "srun: error: node-3: task 2: Illegal instruction\n",
        "[rank: 1] failed (exitcode: -4) local_rank: 1 (pid: 7)\n",
    ],
)
def test_an_instruction_that_a_processor_lacks_is_named(log: str) -> None:
    said = of_log(log)
    assert "that the node's processor does not have (SIGILL)" in said.summary
    assert "older processors" in said.fix


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_program_that_looks_ill_is_not_accused(path: Path) -> None:
    assert of_log(path.read_text()).summary == "no failure is recognized in this log"


@pytest.mark.parametrize(
    ("log", "summary"),
    [
        ("AssertionError: batch size 30 != 32\n", "AssertionError: batch size 30 != 32"),
        ("step 1\nValueError: no data\nsrun: error: n1: task 0: Exited\n", "ValueError: no data"),
        ("RuntimeError: shape 3\nRuntimeError: shape 4\n", "RuntimeError: shape 3"),
        ("Fatal Python error: Segmentation fault\n", "Fatal Python error: Segmentation fault"),
        (
            "terminate called after throwing an instance of 'std::bad_alloc'\n"
            "  what():  std::bad_alloc\n",
            "terminate called after throwing an instance of 'std::bad_alloc' what():  "
            "std::bad_alloc",
        ),
        ("[1]  18472 segmentation fault (core dumped)  python t.py\n", "segmentation fault (core"),
        ("kernel: Out of memory: Killed process 4711 (python)\n", "the job was killed: it used"),
        ("ValueError: 3 batches were skipped\nstep 1 loss 2\nall done\n", "no failure is"),
    ],
)
def test_an_ending_without_a_traceback_is_one(log: str, summary: str) -> None:
    assert of_log(log).summary.startswith(summary)


def test_an_alarm_whose_like_was_survived_is_normal_unless_the_program_ended_on_it() -> None:
    lines = ["step 1", "MemoryError", "step 2", "step 3", "step 4", "MemoryError"]
    assert history_ends([*lines, "step 5"], [1, 5]) == 6
    assert history_ends(lines, [1, 5]) == 2
    assert history_ends(["step 1", "KeyError", "saved 1 of 2", "saved 2 of 2"], [1]) == 0


def test_a_complaint_that_is_repeated_without_a_step_is_what_the_job_waited_for() -> None:
    said = of_log(f"step 1 loss 3\n{WAITS}{LIMIT}")
    assert "it waited since 10:03:05, and wrote 27 times: 2026-11-22" in said.summary
    assert "longer --time does not help" in said.fix
    assert stall_in(f"{WAITS}step 2 loss 3".splitlines()) is None
    assert stall_in(["waiting for batch 1", "waiting for batch 2", "waiting for batch 3"]) is None


@pytest.mark.parametrize(
    ("frames", "exception", "rule"),
    [
        ('File "/e/torch/serialization.py", line 9, in _load', "EOFError", DAMAGED),
        ('File "/e/torch/serialization.py", line 9, in load', "OSError: [Errno 22] I", DAMAGED),
        ('File "/p/shutil.py", line 9, in _rmtree_safe_fd', "FileNotFoundError: 7", "folder-race"),
        ('File "/p/shutil.py", line 9, in rmtree', "FileNotFoundError: [Errno 2] x", None),
    ],
)
def test_frames_decide_what_the_words_of_an_exception_mean(
    frames: str, exception: str, rule: str | None
) -> None:
    log = TRACE.replace("\n  File", f"\n  {frames}\n    x()\n  File", 1)
    assert of_log(f"{log}{exception}\n").rule == rule
