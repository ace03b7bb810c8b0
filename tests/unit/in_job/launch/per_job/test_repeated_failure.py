"""Which failures of two attempts are the same, and would come again."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hpcrun.in_job.launch.per_job.repeated_failure import uncaught, why_not_retried

TRACEBACK = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/me/train.py", line {line}, in <module>
[rank1]:     main()
[rank1]:   File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 17, in call
[rank1]:     return forward_call(*args, **kwargs)
[rank1]: {exception}
"""
KEY_ERROR = TRACEBACK.format(line=9, exception="KeyError: 'recall'")
REASON = (
    "not retried: attempts 1 and 2 ended with the same KeyError at train.py:9, without a new step"
)


def reasons(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *attempts: tuple[str, str],
    status: int = 1,
    ago_s: float = 0.0,
) -> list[str]:
    """What is said at the end of each attempt, of its rank 1's stderr and its rank 0's stdout."""
    texts = []
    for number, (err, out) in enumerate(attempts):
        attempt = folder / str(number)
        attempt.mkdir()
        (attempt / "start").write_text(json.dumps({"started": time.time() - ago_s}))
        (attempt / "rank-1.err").write_text(err)
        (attempt / "rank-0.out").write_text(out)
        monkeypatch.setenv("HPCRUN_ATTEMPT_DIR", str(attempt))
        monkeypatch.setenv("HPCRUN_ATTEMPT", str(number))
        texts.append(why_not_retried({"rank": 1, "status": status}))
    return texts


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("epoch 1 step 10/50 loss 0.5\n", "epoch 1 step 10/50 loss 0.4\n"),
        ("epoch 1 step 10/50\n", "epoch 0 step 9/50\n"),
        ("max_steps: 500\nstep 10\n", "max_steps: 500\n"),
    ],
    ids=["at once", "the same step", "an earlier step", "before its first step"],
)
def test_the_same_exception_without_a_new_step_is_not_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    first, second = reasons(tmp_path, monkeypatch, (KEY_ERROR, before), (KEY_ERROR, after))
    assert first == ""
    assert second == REASON


ABORT = "terminate called without an active exception\n"


def test_a_thread_that_is_left_at_the_end_does_not_hide_the_exception(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted = (KEY_ERROR + ABORT, "step 10\n")
    assert reasons(tmp_path, monkeypatch, aborted, aborted, status=134) == ["", REASON]


@pytest.mark.parametrize(
    "err", [KEY_ERROR + "epoch 2\n" + ABORT, KEY_ERROR, KEY_ERROR + "free(): invalid pointer\n"]
)
def test_an_exception_that_was_survived_is_not_why_a_program_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, err: str
) -> None:
    aborted = (err, "step 10\n")
    assert reasons(tmp_path, monkeypatch, aborted, aborted, status=134) == ["", ""]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("step 10\n", "step 11\n"),
        ("epoch 1 step 40/50\n", "epoch 2 step 0/50\n"),
        ("max_steps: 500\nstep 10\n", "max_steps: 500\nstep 20\n"),
        ("", "step 0\n"),
        (" 10%|#  | 10/100 [00:10<", " 20%|#  | 20/100 [00:10<"),
    ],
)
def test_an_attempt_that_came_further_is_followed_by_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    attempts = ((KEY_ERROR, before), (KEY_ERROR, after))
    assert reasons(tmp_path, monkeypatch, *attempts) == ["", ""]


@pytest.mark.parametrize(
    "err",
    [
        TRACEBACK.format(line=8, exception="KeyError: 'recall'"),
        TRACEBACK.format(line=9, exception="KeyError: 'precision'"),
        "",
    ],
    ids=["another line", "another exception", "no exception"],
)
def test_another_failure_is_not_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, err: str
) -> None:
    assert reasons(tmp_path, monkeypatch, (KEY_ERROR, ""), (err, "")) == ["", ""]


def test_two_long_attempts_of_which_no_step_is_known_may_have_come_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = ((KEY_ERROR, ""), (KEY_ERROR, ""))
    assert reasons(tmp_path, monkeypatch, *attempts, ago_s=600) == ["", ""]


def test_a_signal_may_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = ((KEY_ERROR, ""), (KEY_ERROR, ""))
    assert reasons(tmp_path, monkeypatch, *attempts, status=139) == ["", ""]


@pytest.mark.parametrize(
    "exception",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2251",
        "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:932",
        "RuntimeError: Rank 1 failed to pass monitoredBarrier in 30000 ms",
        "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "OSError: [Errno 116] Stale file handle: '/data/shard'",
        "subprocess.CalledProcessError: Command 'train' returned non-zero exit status 1.",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
        "SystemExit: 1",
    ],
)
def test_what_may_pass_is_tried_again(exception: str) -> None:
    assert uncaught(TRACEBACK.format(line=9, exception=exception)) is None


@pytest.mark.parametrize(
    "exception",
    [
        "ModuleNotFoundError: No module named 'wandb'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'config.yaml'",
        "RuntimeError: Error(s) in loading state_dict for Net:",
        "AssertionError",
    ],
)
def test_what_is_of_the_program_comes_again(exception: str) -> None:
    failure = uncaught("starts\n" + TRACEBACK.format(line=9, exception=exception) + "more\n")
    assert failure is not None
    assert failure["exception"] == exception
    assert failure["place"] == "train.py:9"


def test_of_a_dataloaders_exception_the_workers_own_one_counts() -> None:
    err = KEY_ERROR.replace("KeyError: 'recall'", "ValueError: Caught ValueError in DataLoader")
    err += 'Original Traceback (most recent call last):\n  File "/d/data.py", line 3, in get\n'
    failure = uncaught(err + "ValueError: bad sample 7\n")
    assert failure is not None
    assert failure["place"] == "data.py:3"


def test_what_torchrun_restarted_since_is_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    err = f"{KEY_ERROR}hpcrun: torchrun restart 1\n"
    assert reasons(tmp_path, monkeypatch, (err, ""), (err, "")) == ["", ""]
