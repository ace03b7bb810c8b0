"""What wandb and MLflow read from the environment.

These are their tags, to which this run is added, and the wandb run that a rank continues.

Only labels are set unasked. An id would join what a program keeps apart: the runs of several ranks,
or of several calls of ``wandb.init``. A variable that the user has set stays.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from collections.abc import Iterator

PUT = "HPCRUN_PUT_"
"""Marks a value as hpcrun's own, for ``hpcrun submit`` inside this job (rank_environment.py)."""
LONGEST_TAG = 64
"""wandb.init fails for a longer tag."""
MOST_READ = 256 << 20
"""Bytes of a rank's log: of a longer log it is not known how many wandb runs it began."""
_BLOCK = 1 << 20
_LONGEST_LINE = 8192


def label() -> None:
    """Add this run to the tags of the wandb and MLflow runs that the job makes.

    The runs of a sweep become a group.
    """
    env = os.environ
    run = os.path.basename(env["HPCRUN_RUN_DIR"])
    job = env["HPCRUN_JOB_ID"]
    if not _is_plain(run + job):
        return
    # the beginning of a run id is enough for hpcrun; a tag must not be longer
    labels = {"WANDB_TAGS": f"{run[:LONGEST_TAG]},job-{job}"}
    tags = {"hpcrun.run": run, "hpcrun.job": job}
    if "_" in job:
        labels["WANDB_RUN_GROUP"] = run
        tags["hpcrun.element"] = env["HPCRUN_ELEMENT"]
    # not json, which takes longer to import than all of this: the values are plain
    members = ", ".join(f'"{name}": "{value}"' for name, value in tags.items())
    labels["MLFLOW_RUN_CONTEXT"] = f"{{{members}}}"
    for name, value in labels.items():
        if name not in env or env[name] == env.get(PUT + name):  # or of an enclosing job
            env[name] = value


def _is_plain(text: str) -> bool:
    """Return whether text stays as it is between commas and in JSON.

    A folder of a job that was submitted by hand may have any name.
    """
    letters = text.replace("-", "").replace(".", "").replace("+", "").replace("_", "")
    return text.isascii() and letters.isalnum()


def continue_run(rank: int) -> None:
    """Set the id of the wandb run that this rank began before.

    The id is set only with ``WANDB_RESUME=allow``, and only if the rank began only one run.
    """
    env = os.environ
    if env.get("WANDB_RESUME") not in ("allow", "must") or env.get("WANDB_RUN_ID"):
        return
    before = _ids_before(rank)
    if len(before) == 1:
        env["WANDB_RUN_ID"] = env[PUT + "WANDB_RUN_ID"] = before.pop()


def _ids_before(rank: int) -> set[str]:
    """Return the ids of the wandb runs that this rank began in its newest such attempt.

    This is the newest attempt in which the rank began a run.
    """
    attempts = os.path.dirname(os.environ["HPCRUN_ATTEMPT_DIR"])
    # this one, too: torchrun restarts ranks
    for number in range(int(os.environ["HPCRUN_ATTEMPT"]), -1, -1):
        log = os.path.join(attempts, str(number), f"rank-{rank}.err")
        try:
            if os.path.getsize(log) > MOST_READ:
                return set()
            ids = set(_ids_in(log))
        except OSError:
            continue
        if ids:
            return ids
    return set()


def _ids_in(log: str) -> Iterator[str]:
    """Yield the id of each run that wandb names in a log.

    The id is at the end of the name of the folder of the run.
    """
    import re

    begun = re.compile(
        rb"Run data is saved locally in "
        rb"[^\r\n]{0,4096}/(?:offline-)?run-\d{8}_\d{6}-([\w.-]{1,128})\s"
    )
    with open(log, "rb") as file:
        rest = b""
        while block := file.read(_BLOCK):
            text = rest + block
            yield from (match[1].decode() for match in begun.finditer(text))
            rest = text[-_LONGEST_LINE:]
