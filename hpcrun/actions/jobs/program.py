"""The program of a job: whether it can run, with which launcher, in which container; or a batch script."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from hpcrun.actions.jobs.python import changes_path, file_head
from hpcrun.actions.ports import Surroundings
from hpcrun.errors import PlanError, UsageError, nearest
from hpcrun.job.launcher_choice import choose_launcher
from hpcrun.job.launchers import BY_NAME, SCRIPTS, find_calls, interpreted, program_of
from hpcrun.job.profile import Profile
from hpcrun.job.rank_start import image_of, is_image_file
from hpcrun.job.request import JobRequest
from hpcrun.job.shape import for_gpu_type
from hpcrun.reading import read_named_text
from hpcrun.schedulers.job_steps import mpi_types

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch_script import BatchScript

_SHELL_LINE = re.compile(r"#!.*\b(sh|bash|dash|zsh|ksh)\b")
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)


def check_program(
    request: JobRequest, surroundings: Surroundings, *, path_may_change: bool, in_container: bool = False
) -> JobRequest:
    """Return the request with its script as the job will call it; refuse a script that is missing or cannot run.

    Args:
        path_may_change: modules, set-up commands or an image may bring the program: it need not be on PATH here.
        in_container: an absolute path that does not exist here may exist in the image.
    """
    if request.module or request.preflight == "only":
        return request
    script = request.script
    path = Path(request.workdir or surroundings.cwd, script)
    if os.path.isdir(path):  # pathlib's own method fails for a name that is too long, until Python 3.14
        raise UsageError(
            f"{script} is a folder",
            hint=f"give the script in it: hpcrun submit ... {script.rstrip('/')}/train.py",
        )
    _check_interpreted(request, surroundings, in_container=in_container)
    if os.path.isfile(path):
        if script.endswith(".py"):
            return request
        if not path.stat().st_mode & 0o111:
            raise UsageError(f"{script} is not executable", hint=f"chmod +x {script}, or name its interpreter: "
                             f"hpcrun submit ... bash {script}")  # fmt: skip
        # as sbatch takes it: a program in this folder needs no ./
        return request if "/" in script else request.model_copy(update={"script": f"./{script}"})
    if in_container and script.startswith("/"):
        return request
    if script.endswith(".py") or "/" in script:
        if os.path.lexists(path):
            kind = "a FIFO" if path.is_fifo() else "a socket or a device" if path.exists() else "a link to nothing"
            raise UsageError(f"{script} is {kind}, not a script", hint="give a script: hpcrun submit ... train.py")
        raise _no_script(script, path, surroundings)
    if shutil.which(script, path=surroundings.env.get("PATH")) is None and not path_may_change:
        hint = _close_script(path) or _other_words(request)
        raise UsageError(f"{script} is neither a file here nor a program on PATH", hint=hint)
    return request


def _check_interpreted(request: JobRequest, surroundings: Surroundings, *, in_container: bool) -> None:
    """Refuse ``bash run.sh`` and ``python -u train.py`` without such a script."""
    inner = interpreted((request.script, *request.args))
    if inner is None or inner.option or not inner.words[0].endswith(SCRIPTS) or "{" in inner.words[0]:
        return  # {NAME} is a parameter of a sweep
    script = inner.words[0]
    path = Path(request.workdir or surroundings.cwd, script)
    by_path = "/" not in script and shutil.which(script, path=surroundings.env.get("PATH"))
    if not (os.path.exists(path) or by_path or (in_container and script.startswith("/"))):
        raise _no_script(script, path, surroundings)


def _no_script(script: str, path: Path, surroundings: Surroundings) -> UsageError:
    where = "" if path.is_absolute() and path.parent == surroundings.cwd else f" (looked for {path})"
    return UsageError(f"there is no script {script}{where}", hint=_close_script(path))


def _close_script(path: Path) -> str | None:
    try:
        beside = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".py", ".sh")]
    except OSError:
        return None
    close = nearest(path.name, beside)
    return f"did you mean {close}?" if close else None


def _other_words(request: JobRequest) -> str | None:
    """Return what to type instead of a command line in quotes, or of a missing interpreter or launcher."""
    words = request.script.split()
    if len(words) > 1 and not request.args:
        return f"leave out the quotes: hpcrun submit ... {shlex.join(words)}"
    rest = program_of((request.script, *request.args))
    name = PurePath(request.script).name
    if name in BY_NAME:
        script = next((number for number, argument in enumerate(request.args) if argument.endswith(SCRIPTS)), None)
        program = "train.py" if script is None else shlex.join(request.args[script:])
        return (
            f"hpcrun starts the ranks itself: hpcrun submit ... {program}; or activate the environment that has {name}"
        )
    if rest != (request.script, *request.args):
        return f"hpcrun uses the job's own Python: hpcrun submit ... {shlex.join(rest)}"
    return None


def with_launcher(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and notes on it."""
    if request.preflight == "only":
        return request, ()
    argv = ("python", "-m") if request.module else ()
    folder = Path(request.workdir or surroundings.cwd)
    return choose_launcher(
        request,
        for_gpu_type(profile, request),
        find_calls((*argv, request.script, *request.args), lambda name: _read_shell_script(folder / name)),
        surroundings.typed.words,
        lambda name: file_text(folder / name),
        lambda: mpi_types(surroundings.env),
    )


def _read_shell_script(path: Path) -> str | None:
    """Return the beginning of a shell script, None for another file."""
    text = file_text(path)
    if not text or "\0" in text or not (path.suffix in (".sh", ".bash") or _SHELL_LINE.match(text)):
        return None
    return text


def file_text(path: Path) -> str:
    """Return the beginning of a file as text; empty if it cannot be read."""
    return file_head(path).decode("utf-8", "replace")


def with_container(request: JobRequest, profile: Profile, surroundings: Surroundings) -> JobRequest:
    """Return the request with the image of its container as the job finds it; refuse a missing image."""
    image, runtime = image_of(request, profile), profile.container.runtime
    if image is None:
        return request
    on_path = changes_path(request, profile) or shutil.which(runtime, path=surroundings.env.get("PATH")) is not None
    if profile.scheduler == "local" and runtime != "pyxis" and not on_path:
        raise PlanError(
            f"{runtime} is not on PATH here; the job's container needs it",
            hint="install it, or set container.runtime in the profile; --container none runs without",
        )
    if not is_image_file(runtime, image):
        return request
    path = Path(os.path.abspath(surroundings.cwd / os.path.expanduser(image)))
    if not os.path.exists(path):
        whose = "" if request.container else f", which profile {profile.name!r} names"
        pull = "import it: enroot import -o" if runtime == "pyxis" else f"pull it: {runtime} pull"
        raise UsageError(
            f"there is no container image {path}{whose}",
            hint=f"{pull} {path.name} docker://...; or use another image: --container IMAGE",
        )
    return request.model_copy(update={"container": str(path)})


# --- submit train.sbatch: a person's batch script as it is -------------------------------------------------------


def find_batch_script(request: JobRequest, surroundings: Surroundings) -> BatchScript | None:
    """Return the program of a request, if it is a batch script with #SBATCH lines; None of other programs."""
    path = surroundings.cwd / request.script
    if request.module or request.preflight == "only" or request.script.endswith(".py") or not os.path.isfile(path):
        return None
    return read_script(path, request.args) if _DIRECTIVE.search(file_text(path)) else None


def read_script(path: Path, arguments: tuple[str, ...]) -> BatchScript:
    """Read a batch script without running it; refuse a script that sbatch would not take."""
    from hpcrun.job.batch_script import read_batch_script
    from hpcrun.job.shell_text import MOST_BYTES

    try:
        text = read_named_text(path, MOST_BYTES)
    except ValueError as error:
        raise UsageError(str(error), hint="give a batch script: a text that sbatch takes") from None
    return read_batch_script(path.name, text, arguments)
