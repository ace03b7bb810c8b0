"""Whether the program of a job can run, as far as this machine can tell."""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path, PurePath

from hpcrun.actions.ports import Surroundings
from hpcrun.errors import UsageError, nearest
from hpcrun.job.launcher.known_launchers import BY_NAME, SCRIPTS, interpreted, program_of
from hpcrun.job.request.job_request import JobRequest

_SUFFIXES = (*SCRIPTS, ".sbatch", ".slurm")  # of files whose names are close to a misspelt one


def check_program(
    request: JobRequest,
    surroundings: Surroundings,
    *,
    path_may_change: bool,
    in_container: bool = False,
) -> JobRequest:
    """Return the request with its script as the job will call the script.

    A script that is missing or cannot run is refused.

    Args:
        request: the request of the job, with the script or the program.
        surroundings: give the folder and the PATH of the user.
        path_may_change: modules, set-up commands or an image may bring the program: it need not be
            on PATH here.
        in_container: an absolute path that does not exist here may exist in the image.

    Raises:
        UsageError: the script is a folder, is not executable, is not a regular file, or is neither
            a file nor a program on PATH.
    """  # noqa: DOC501
    if request.module or request.preflight == "only":
        return request
    script = request.script
    path = Path(request.workdir or surroundings.cwd, script)
    # pathlib's own method fails for a name that is too long, until Python 3.14
    if os.path.isdir(path):
        inside = shlex.quote(f"{script.rstrip('/')}/train.py")
        raise UsageError(
            f"{script} is a folder", hint=f"give the script in it: hpcrun submit ... {inside}"
        )
    _check_interpreted(request, surroundings, in_container=in_container)
    if os.path.isfile(path):
        return _with_script_file(request, path)
    if in_container and script.startswith("/"):
        return request
    if script.endswith(".py") or "/" in script:
        if os.path.lexists(path):
            raise UsageError(
                f"{script} is {_kind_of_file(path)}, not a script",
                hint="give a script: hpcrun submit ... train.py",
            )
        raise _no_script(script, path, surroundings)
    is_on_path = shutil.which(script, path=surroundings.env.get("PATH")) is not None
    if not is_on_path and not path_may_change:
        hint = _close_script(path) or _other_words(request)
        raise UsageError(f"{script} is neither a file here nor a program on PATH", hint=hint)
    return request


def _with_script_file(request: JobRequest, path: Path) -> JobRequest:
    """Return the request with its script, which is a file, as the job will call the script.

    Raises:
        UsageError: the script is not executable.
    """
    script = request.script
    if script.endswith(".py"):
        return request
    if not path.stat().st_mode & 0o111:
        quoted = shlex.quote(script)
        raise UsageError(
            f"{script} is not executable",
            hint=f"chmod +x {quoted}, or name its interpreter: hpcrun submit ... bash {quoted}",
        )
    if "/" in script:
        return request
    # as sbatch takes it: a program in this folder needs no ./
    return replace(request, script=f"./{script}")


def _kind_of_file(path: Path) -> str:
    """Return what an existing path is that is neither a file nor a folder."""
    if path.is_fifo():
        return "a FIFO"
    if os.path.exists(path):
        return "a socket or a device"
    return "a link to nothing"


def _check_interpreted(
    request: JobRequest, surroundings: Surroundings, *, in_container: bool
) -> None:
    """Refuse ``bash run.sh`` and ``python -u train.py`` without such a script.

    Raises:
        UsageError: the script does not exist.
    """  # noqa: DOC501
    inner = interpreted((request.script, *request.args))
    if inner is None or inner.option:
        return
    script = inner.words[0]
    if "{" in script or not script.endswith(SCRIPTS):
        return  # {NAME} is a parameter of a sweep
    path = Path(request.workdir or surroundings.cwd, script)
    if os.path.exists(path) or (in_container and script.startswith("/")):
        return
    is_on_path = "/" not in script and shutil.which(script, path=surroundings.env.get("PATH"))
    if not is_on_path:
        raise _no_script(script, path, surroundings)


def _no_script(script: str, path: Path, surroundings: Surroundings) -> UsageError:
    if path.is_absolute() and path.parent == surroundings.cwd:
        where = ""
    else:
        where = f" (looked for {path})"
    return UsageError(f"there is no script {script}{where}", hint=_close_script(path))


def _close_script(path: Path) -> str | None:
    """Return the hint with a script of a similar name in the same folder; None without one."""
    try:
        files = list(path.parent.iterdir())
    except OSError:
        return None
    beside = [file.name for file in files if file.suffix in _SUFFIXES]
    close = nearest(path.name, beside)
    return f"did you mean {close}?" if close else None


def _other_words(request: JobRequest) -> str | None:
    """Return what to type instead of a command line that hpcrun cannot use.

    The command line is in quotes, or its interpreter or launcher is missing.
    """
    words = request.script.split()
    if len(words) > 1 and not request.args:
        return f"leave out the quotes: hpcrun submit ... {shlex.join(words)}"
    rest = program_of((request.script, *request.args))
    name = PurePath(request.script).name
    if name in BY_NAME:
        program = "train.py"
        for number, argument in enumerate(request.args):
            if argument.endswith(SCRIPTS):
                program = shlex.join(request.args[number:])
                break
        return (
            f"hpcrun starts the ranks itself: hpcrun submit ... {program}; or activate the "
            f"environment that has {name}"
        )
    if rest != (request.script, *request.args):
        return f"hpcrun uses the job's own Python: hpcrun submit ... {shlex.join(rest)}"
    return None
