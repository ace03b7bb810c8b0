"""What a training script may ask of hpcrun while it runs: ``import hpcrun_runtime``.

Standard library only and one file: every run has a link to it and the job finds it, so that the
training environment needs nothing installed. Outside of a job nothing is ever to be stopped, and
nothing is logged.

The ranks of a job do not hear of a stop in the same moment. Before they stop they agree, with an
all-reduce of their own::

    stop = torch.tensor(float(should_stop()))
    dist.all_reduce(stop, op=dist.ReduceOp.MAX)
    if stop:
        save_checkpoint(checkpoint_dir())
        break
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LOOK_EVERY_S = 1.0
"""How often it is looked whether the job is to stop, however often that is asked."""

_asked_at = float("-inf")
_stopping = False
_listening = False
_signalled = False
_fork = threading.local()
_complained = False
_STACKS_SIGNAL = 7
"""The number of the real-time signal for stacks: glibc uses the first two itself, no library of
training this one.
"""
_open_files: list[Any] = []


def should_stop() -> bool:
    """Return whether the job is about to be ended: save a checkpoint and leave the training loop.

    It becomes true before the time limit (``--warn``) and when the job is preempted, and then stays
    true. Cheap: a folder on the node's own disk is looked at once in a second. Whoever asks does
    not die of SIGTERM any more, unless it has a handler of its own: it has time to save until Slurm
    kills it.
    """
    global _asked_at, _stopping
    if _stopping or _attempt_dir() is None:
        return _stopping
    _outlive_sigterm()
    if _signalled or time.monotonic() - _asked_at >= LOOK_EVERY_S:
        _asked_at = time.monotonic()
        _stopping = _signalled or _is_asked_to_stop()
        if _stopping:
            _note_heard()
    return _stopping


def _is_asked_to_stop() -> bool:
    try:
        return any(name.startswith("stop-") for name in os.listdir(os.environ["HPCRUN_NODE_DIR"]))
    except (KeyError, OSError) as error:
        if isinstance(error, OSError):
            _complain(error)
        return False


def _note_heard() -> None:
    """Say to the wrapper of this rank that the rank has heard of the request to stop.

    A rank that then ends well was stopped, and is not done.
    """
    rank = os.environ.get("HPCRUN_RANK", _rank())
    try:
        Path(os.environ["HPCRUN_NODE_DIR"], f"heard-{rank}").touch()
    except (KeyError, OSError):
        return


def _outlive_sigterm() -> None:
    """Take SIGTERM for a request to stop, in a process that would die of the signal.

    This happens once, in the main thread.
    """
    global _listening
    if _listening or threading.current_thread() is not threading.main_thread():
        return
    _listening = True
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)
        os.register_at_fork(
            before=_before_fork, after_in_parent=_restore_mask, after_in_child=_be_a_child
        )


def _on_sigterm(_number: int, _frame: object) -> None:
    global _signalled
    _signalled = True


def _before_fork() -> None:
    """Hold SIGTERM back before a fork.

    Python forgets a signal for which the new process has run a handler this early.
    """
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _be_a_child() -> None:
    """Die of SIGTERM again: it comes from the parent, which wants a worker to end."""
    if signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _restore_mask()


def _restore_mask() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def on_stop(callback: Callable[[], Any]) -> None:
    """Call a function once, from a thread of its own, when the job is about to be ended.

    As with :func:`should_stop`, SIGTERM then no longer ends a program that has no handler for it.

    Args:
        callback: takes nothing; what it returns is not looked at.
    """
    if _attempt_dir() is None:
        return
    _outlive_sigterm()

    def watch() -> None:
        while not should_stop():
            time.sleep(LOOK_EVERY_S)
        callback()

    threading.Thread(target=watch, name="hpcrun-on-stop", daemon=True).start()


def attempt() -> int:
    """Return how often this job has been started again: 0 the first time, and outside of a job."""
    return int(os.environ.get("HPCRUN_ATTEMPT") or 0)


def checkpoint_dir() -> Path:
    """Return the folder for checkpoints that all attempts of a job share.

    Outside of a job, the folder is ``./checkpoints``.
    """
    folder = Path(os.environ.get("HPCRUN_CHECKPOINT_DIR") or "checkpoints")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def log_metrics(*, step: int | None = None, **values: Any) -> None:
    """Note some numbers of this rank; ``hpcrun metrics`` shows them.

    Args:
        step: which step or epoch they belong to.
        values: numbers, or tensors of one element.
    """
    folder = _attempt_dir()
    if folder is None:
        return
    line: dict[str, Any] = {"time": time.time(), "step": step}
    for name, value in values.items():
        line[name] = _number(value)
    path = folder / f"rank-{_rank()}.metrics"
    try:
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            # one write: a reader sees whole lines
            os.write(file, (json.dumps(line) + "\n").encode())
        finally:
            os.close(file)
    except OSError as error:
        _complain(error)


def register_stacks() -> None:
    """Let ``hpcrun explain --stacks`` ask this process for its Python stacks.

    This is for nodes where py-spy is missing or forbidden. faulthandler writes the stacks at a
    signal that no other program uses, to a file on the node's own disk. The name of the file has
    the process and the signal, so that hpcrun sends the signal to no other process. Call the
    function once in each rank.
    """
    folder = os.environ.get("HPCRUN_NODE_DIR")
    if not folder:
        return
    import faulthandler

    number = signal.SIGRTMIN + _STACKS_SIGNAL
    try:
        path = Path(folder, f"stacks-{os.getpid()}.{number}")
        file = open(path, "ab", buffering=0)  # noqa: SIM115 - stays open
    except OSError as error:
        _complain(error)
        return
    faulthandler.register(number, file=file, all_threads=True, chain=False)
    _open_files.append(file)


def _attempt_dir() -> Path | None:
    folder = os.environ.get("HPCRUN_ATTEMPT_DIR")
    return Path(folder) if folder else None


def _rank() -> int:
    # the first rank of its role, whose ranks RANK counts
    base = int(os.environ.get("HPCRUN_RANK_BASE") or 0)
    return base + int(os.environ.get("RANK") or os.environ.get("NODE_RANK") or 0)


def _number(value: Any) -> float | int | str:
    if hasattr(value, "item"):
        value = value.item()
    return value if isinstance(value, (float, int)) else str(value)


def _complain(error: OSError) -> None:
    """Say once that the run folder cannot be used: training is worth more than its notes."""
    global _complained
    if not _complained:
        _complained = True
        sys.stderr.write(f"hpcrun: {error}; training goes on without it\n")
