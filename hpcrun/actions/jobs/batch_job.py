"""submit train.sbatch: a person's batch script as a job, with the script as it is."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.program import find_python
from hpcrun.errors import UsageError
from hpcrun.job.plan import PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.reading import read_named_text

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch_script import BatchScript

_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)
_HEAD_BYTES = 65536


def find_batch_script(request: JobRequest, surroundings: Surroundings) -> BatchScript | None:
    """Return the program of a request, if it is a batch script with #SBATCH lines; None of other programs.

    Raises:
        UsageError: it is one that sbatch would not take.
    """
    path = surroundings.cwd / request.script
    if request.module or request.preflight == "only" or request.script.endswith(".py") or not os.path.isfile(path):
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not _DIRECTIVE.search(head.decode("utf-8", "replace")):
        return None
    return read_script(path, request.args)


def read_script(path: Path, arguments: tuple[str, ...]) -> BatchScript:
    """Read a batch script; it is never run.

    Raises:
        UsageError: it cannot be read, or sbatch would not take it.
    """
    from hpcrun.job.batch_script import read_batch_script
    from hpcrun.job.shell_text import MOST_BYTES

    try:
        text = read_named_text(path, MOST_BYTES)
    except ValueError as error:
        raise UsageError(str(error), hint="give a batch script: a text that sbatch takes") from None
    return read_batch_script(path.name, text, arguments)


def request_of_script(request: JobRequest, script: BatchScript, surroundings: Surroundings) -> JobRequest:
    """Return the request with the folder and the task ids of the script.

    Raises:
        UsageError: the folder does not exist, or the request has a sweep beside the script's array.
    """
    from hpcrun.job.batch_plan import with_array

    if script.options.workdir and not request.workdir:
        folder = str(surroundings.cwd / script.options.workdir)
        if not os.path.isdir(folder):
            raise UsageError(f"{script.name}: --chdir={script.options.workdir}: there is no such folder")
        request = request.model_copy(update={"workdir": folder})
    return with_array(request, script)


def python_of_job(request: JobRequest, profile: Profile, surroundings: Surroundings) -> PythonEnvironment:
    """Return the Python for hpcrun's own programs in the job; the script finds its Python itself."""
    python = find_python(request, profile, surroundings)
    return replace(python, kind="for hpcrun's programs; the script has its own", prefix=None, of_project=False)
