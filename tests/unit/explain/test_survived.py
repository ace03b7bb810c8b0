"""A log alone, without records: what a program went on after is no failure, and what ended it stays one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcrun.explain.any_job_or_log import explain_logs
from hpcrun.explain.diagnosis.rules import load_rules

CAUGHT = """step 1 loss 3.1
Traceback (most recent call last):
  File "/home/ann/data/reader.py", line 61, in _get
    raise TimeoutError("GET timed out")
TimeoutError: GET timed out
"""
OOM = """step 1/300 loss 3.1
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 39.39 GiB
"""
NOTHING = "no failure is recognized in this log"


def explained(text: str, folder: Path) -> str:
    (folder / "train.log").write_text(text)
    return explain_logs([str(folder / "train.log")], load_rules(())).summary


@pytest.mark.parametrize(
    "text",
    [
        CAUGHT + "[INFO] retry succeeded\n",
        CAUGHT + "epoch 0 step 20 loss 2.1\nsaved ckpt-30.pt\n[INFO] done\n",
        CAUGHT + "".join(f"[INFO] epoch 0 step {step} loss 2.{step}\n" for step in range(61)),
        OOM + "step 100/300 loss 2.1\nstep 200/300 loss 2.0\nTraining completed successfully.\n",
        "step 3 loss nan\nstep 4 loss 1.9\nstep 5 loss 1.8\ntraining finished\n",
        "step 20: loss nan detected in 0 of 20 batches\nkilled 3 dead workers from previous run\n",
        "grad_norm=nan_to_num applied\nloss nan: 0\nfinished\n",
        'sample: "RuntimeError: CUDA error: device-side assert triggered"\nperplexity 8.21\n',
    ],
)
def test_what_a_program_went_on_after_is_no_failure(text: str, tmp_path: Path) -> None:
    assert explained(text, tmp_path) == NOTHING


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (CAUGHT, "TimeoutError: GET timed out at reader.py:61"),
        # another rank's next step, and what the batch script says in any case
        (CAUGHT + "step 2 loss 3.0\n", "TimeoutError: GET timed out at reader.py:61"),
        (CAUGHT + "job finished\n", "TimeoutError: GET timed out at reader.py:61"),
        (OOM + "step 2/300 loss 3.0\n", "the GPU ran out of memory: 2.00 GiB requested, of 39.39 GiB"),
        ("step 1\nAssertionError\n", "AssertionError"),
        ("step 3 loss nan\n", "the last loss in the log is not a number: the training diverged"),
        ("step 3 loss=nan, lr=0.1\n", "the last loss in the log is not a number: the training diverged"),
        ("step 110 loss 0.9\nKilled\n", "the program was killed (SIGKILL) from outside, often because the node "
                                         "or the job ran out of memory"),
    ],
)  # fmt: skip
def test_what_ended_a_program_stays_its_failure(text: str, cause: str, tmp_path: Path) -> None:
    assert explained(text, tmp_path) == cause


def test_a_job_that_was_preempted_and_ran_again_to_its_end_did_not_fail(tmp_path: Path) -> None:
    first = "".join(f"step {step} loss 2.{step}\n" for step in range(40))
    preempted = "slurmstepd: error: *** JOB 4711 ON gpu-3 CANCELLED AT 2026-01-05T10:00:00 DUE TO PREEMPTION ***\n"
    again = "".join(f"step {step} loss 2.{step}\n" for step in range(120))
    assert explained(f"{first}{preempted}{again}done in 300 s\n", tmp_path) == NOTHING
    assert "preempted" in explained(f"{again}{preempted}step 120 loss 1.9\n", tmp_path)


def test_of_two_failures_far_from_one_another_the_last_ended_the_program(tmp_path: Path) -> None:
    full = "saving: OSError: [Errno 28] No space left on device\n"
    between = "".join(f"preparing shard {'abcdefghij'[number % 10]}\n" for number in range(250))
    memory = OOM.partition("\n")[2]
    assert explained(full + memory, tmp_path).startswith("a file system was full")
    assert explained(full + between + memory, tmp_path).startswith("the GPU ran out of memory")
