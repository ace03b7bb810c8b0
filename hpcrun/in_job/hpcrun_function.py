"""What each task of a job runs whose program is a Python function: ``python -m hpcrun_function``.

One file, the standard library and submitit: every run has a link to it, as to hpcrun_runtime.py.
submitit loads the function, calls it and pickles what it returns; this finds the task's own call,
and puts right what submitit leaves undone: a result that cannot be pickled, a half-written file of
an attempt that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

FOLDER = "submitit"
"""Below the run's folder: the pickles, under submitit's names."""
CALLS = "calls.zip"
"""A file with one pickled call per element, under the element's number: one file, however many
elements.
"""
STDERR_TO_STDOUT = "HPCRUN_STDERR_TO_STDOUT"
"""The variable that is set if both streams go to one log."""


def main() -> None:
    """Run this task's call."""
    folder = Path(os.environ["HPCRUN_RUN_DIR"], FOLDER)
    if STDERR_TO_STDOUT in os.environ:
        os.dup2(1, 2)
    _describe_job()
    try:
        from submitit.core import job_environment, submission, utils
    except ImportError as error:
        sys.exit(
            f"hpcrun: {sys.executable} cannot run a Python function: {error}; pip install submitit"
        )
    os.environ["SUBMITIT_FOLDER"] = str(folder)
    paths = job_environment.JobEnvironment().paths
    _prepare(folder, paths)
    environment = job_environment.JobEnvironment
    setattr(environment, "_handle_signals", _checkpoint_when_told)  # noqa: B010 - mypy
    try:
        submission.process_job(folder)
    except Exception:
        # submitit keeps a failed call's traceback, but not a failed pickling's
        if not paths.result_pickle.exists():
            message = (
                f"{traceback.format_exc()}\nwhat the function returned cannot be written as "
                "a result"
            )
            with suppress(OSError), _fresh(paths.result_pickle) as aside:
                utils.cloudpickle_dump(("error", message), aside)
        raise


def _describe_job() -> None:
    """Tell submitit.JobEnvironment where this process is.

    A local job's variables are those of submitit's own local jobs.
    """
    if "SLURM_JOB_ID" in os.environ:
        os.environ["SUBMITIT_EXECUTOR"] = "slurm"
        return
    rank, tasks = os.environ["NODE_RANK"], os.environ["NNODES"]
    os.environ |= {
        "SUBMITIT_EXECUTOR": "local",
        "SUBMITIT_LOCAL_JOB_ID": os.environ["HPCRUN_JOB_ID"],
        "SUBMITIT_LOCAL_NTASKS": tasks,
        "SUBMITIT_LOCAL_JOB_NUM_NODES": tasks,
        "SUBMITIT_LOCAL_NODEID": rank,
        "SUBMITIT_LOCAL_GLOBALID": rank,
        "SUBMITIT_LOCAL_LOCALID": "0",
    }


def _prepare(folder: Path, paths: Any) -> None:
    """Put this task's files where submitit looks for them."""
    for path in (paths.result_pickle, paths.submitted_pickle):
        # of an attempt that was killed while it wrote; submitit would refuse to write another
        path.with_suffix(".pkl.save_tmp").unlink(missing_ok=True)
    paths.result_pickle.unlink(missing_ok=True)  # of the attempt before
    if not paths.submitted_pickle.exists():  # else an attempt before left a checkpoint there
        with zipfile.ZipFile(folder / CALLS) as calls, _fresh(paths.submitted_pickle) as aside:
            aside.touch(0o644)  # whatever the umask, for this user to write
            aside.write_bytes(calls.read(os.environ["HPCRUN_ELEMENT"]))
    rank = os.environ.get("RANK") or os.environ["NODE_RANK"]
    for stream, link in (("out", paths.stdout), ("err", paths.stderr)):
        if stream == "err" and STDERR_TO_STDOUT in os.environ:
            continue  # job.stderr() is None, as in submitit
        log = Path(os.environ["HPCRUN_ATTEMPT_DIR"], f"rank-{rank}.{stream}")
        with suppress(OSError), _fresh(link) as aside:
            aside.symlink_to(os.path.relpath(log, folder))


@contextmanager
def _fresh(path: Path) -> Iterator[Path]:
    """Give a path to write to, which takes the name it is for when all is written."""
    aside = path.with_name(f".{path.name}.{os.uname().nodename}.{os.getpid()}")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _checkpoint_when_told(env: Any, paths: Any, delayed: Any) -> None:
    """Ask a function with a ``checkpoint`` method what to run next, when a signal comes.

    These handlers replace submitit's signal handlers. hpcrun's script decides whether the job is
    started again, so that neither submitit's requeue nor its counting of time-outs is wanted.
    Without such a method the signals stay as they are, for should_stop() or the function.
    """
    from submitit.core.job_environment import SignalHandler

    if hasattr(delayed.function, "checkpoint") or hasattr(
        delayed.function, "__submitit_checkpoint__"
    ):
        handler = SignalHandler(env, paths, delayed)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            signal.signal(number, handler.checkpoint_and_exit)


if __name__ == "__main__":
    main()
