"""What a job runs: one program, several programs (roles), or a person's batch script.

Each of the three becomes a ``JobProgram``: all that is decided before the plan.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.jobs.check_program import check_program
from hpcrun.actions.jobs.find_python import changes_path, find_python
from hpcrun.actions.jobs.job_defaults import Settled, settle, with_defaults
from hpcrun.actions.ports import Surroundings
from hpcrun.errors import PlanError, UsageError
from hpcrun.files.reading import file_text, read_named_text
from hpcrun.job.batch.sbatch_input import apply_sbatch_env
from hpcrun.job.launcher.choose_launcher import choose_launcher
from hpcrun.job.launcher.known_launchers import Call, find_calls
from hpcrun.job.launcher.launcher_as_request import replacement
from hpcrun.job.launcher.program_notes import Here
from hpcrun.job.plan.job_plan import PythonEnvironment
from hpcrun.job.plan.roles import requests_of, with_programs, with_size
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import STDIN, STDIN_NAME, GpuCount, JobRequest
from hpcrun.job.request.read_request import check_secrets
from hpcrun.job.resources.container import image_of, is_image_file
from hpcrun.job.resources.shape import for_gpu_type
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.shell_text import MOST_BYTES
from hpcrun.job.text.spelling import spell
from hpcrun.profiles.load import LoadedProfile, load_profile
from hpcrun.schedulers.srun_options import mpi_types

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.job.batch.batch_script import BatchScript
    from hpcrun.job.batch.launcher_script import SbatchCall

_SHELL_LINE = re.compile(r"#!.*\b(sh|bash|dash|zsh|ksh)\b")
_DIRECTIVE = re.compile(r"^#SBATCH\s", re.MULTILINE)
_HEAD_WITH_DIRECTIVE = re.compile(r"#![^\n]*\n(?:[ \t]*(?:#[^\n]*)?\n)*?#SBATCH\s")
"""A program in Python may show #SBATCH lines further below, in a docstring."""


@dataclass(frozen=True, slots=True)
class JobInputs:
    """A request, and what lies in the files that it names."""

    request: JobRequest  # with the rows of its sweep file, and the size of its roles
    loaded: LoadedProfile
    script: BatchScript | None  # the person's batch script that the job runs


@dataclass(frozen=True, slots=True)
class JobProgram:
    """What a job runs, as the job calls it; all defaults are filled in, and all choices made."""

    request: JobRequest
    loaded: LoadedProfile
    python: PythonEnvironment
    notes: tuple[str, ...]  # notes on defaults and choices
    script: BatchScript | None = None
    # modules, set-up commands or an image may bring programs that are not on PATH here
    path_may_change: bool = False
    launcher_notes: tuple[str, ...] = ()


def read_inputs(request: JobRequest, profile_name: str, surroundings: Surroundings) -> JobInputs:
    """Read the files that a request names: its profile, its sweep and its batch script.

    Args:
        request: the request of the user.
        profile_name: the name or the path of the profile.
        surroundings: the folder, the environment and the configuration of the user.

    Raises:
        UsageError, ProfileError: a file is missing or wrong, the sizes of the roles contradict each
            other, or an option holds a secret.
    """
    loaded = load_profile(profile_name, surroundings.profile_folders)
    sized = with_size(_with_sweep_file(request, surroundings.cwd))
    env = {**surroundings.env, **loaded.profile.env, **dict(sized.env)}
    check_secrets(sized, env, {*loaded.profile.secrets, *sized.secrets})
    return JobInputs(sized, loaded, find_batch_script(sized, surroundings))


def find_program(inputs: JobInputs, surroundings: Surroundings) -> JobProgram:
    """Decide what a job runs: the only place that asks of which kind the job is.

    Raises:
        UsageError, PlanError: a choice is left open, or a program cannot run.
    """
    if inputs.script:
        return _batch_script(inputs, inputs.script, surroundings)
    if inputs.request.roles:
        return _roles(settle(inputs.request, inputs.loaded, surroundings), surroundings)
    return _one_program(inputs, surroundings)


# --- one program ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the ranks of a job find their programs."""

    in_container: bool
    path_may_change: bool  # as of JobProgram


def _one_program(inputs: JobInputs, surroundings: Surroundings) -> JobProgram:
    """Return a job of one program.

    The size that a launcher was typed with decides the partition and the type of GPU, so that it
    comes first. For the launcher's note it is taken out again: the note shows what differs from
    what was typed.
    """
    _check_not_missing(inputs, surroundings)
    size = _launcher_size(inputs, surroundings)
    if size is None:
        settled = settle(inputs.request, inputs.loaded, surroundings)
        request = settled.request
    else:
        sized = replace(inputs.request, gpus=size.gpus, nodes=size.nodes)
        settled = settle(sized, inputs.loaded, surroundings)
        request = replace(settled.request, gpus=None, nodes=inputs.request.nodes)
    request = with_container(request, settled.gpu_profile, surroundings)
    place = _place_of(request, settled.gpu_profile)
    called, notes = _as_called(request, settled.gpu_profile, surroundings, place)
    if size is not None:
        called = replace(called, gpus=settled.request.gpus)  # with the chosen type
    return _job_program(settled, called, place, notes, surroundings)


def _check_not_missing(inputs: JobInputs, surroundings: Surroundings) -> None:
    """Refuse a program that is missing before the size and the GPU type of its job are decided.

    A launcher before the program need not be here: hpcrun replaces it.

    Raises:
        UsageError: the program is missing.
    """
    request = inputs.request
    if os.path.isfile(Path(request.workdir or surroundings.cwd, request.script)):
        return
    if _first_call(request, surroundings) is not None:
        return
    _check(request, surroundings, _place_of(request, inputs.loaded.profile))


@dataclass(frozen=True, slots=True)
class _LauncherSize:
    """The size of a job that is typed for a launcher before its program."""

    nodes: int | None
    gpus: GpuCount  # of all nodes together


def _launcher_size(inputs: JobInputs, surroundings: Surroundings) -> _LauncherSize | None:
    """Return the size that ``torchrun --nproc-per-node 4`` gives a job of several nodes.

    Returns:
        The size; None if the job's own options say how many GPUs it has, or nothing says this.
    """
    profile = inputs.loaded.profile
    if profile.scheduler != "slurm":
        return None
    request, _ = with_defaults(inputs.request, profile, surroundings)
    has_gpus = request.gpus is not None or request.gpus_per_node is not None
    has_several_nodes = request.nodes is not None and request.nodes > 1
    if has_gpus or not has_several_nodes:
        return None
    if request.launcher is not None or request.preflight == "only":
        return None
    call = _first_call(request, surroundings)
    if call is None or call.launcher.role != "ours":
        return None
    types = list(profile.gpu.types)
    if types and profile.gpu.type is None:
        # no type is chosen yet: all that matters here is that the nodes have GPUs
        profile = for_gpu_type(profile, replace(request, gpus=GpuCount(count=1, type=types[0])))
    instead = replacement(call, request, profile)
    if instead is None or not instead.request.gpus or not instead.request.gpus.count:
        return None
    return _LauncherSize(instead.request.nodes, instead.request.gpus)


def _place_of(request: JobRequest, profile: Profile) -> _Place:
    in_container = image_of(request, profile) is not None
    return _Place(in_container, in_container or changes_path(request, profile))


def _as_called(
    request: JobRequest,
    profile: Profile,
    surroundings: Surroundings,
    place: _Place,
    *,
    of_role: bool = False,
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with its launcher and its program as the job calls it, and notes."""
    chosen, notes = with_launcher(request, profile, surroundings, of_role=of_role)
    return _check(chosen, surroundings, place), notes


def _check(request: JobRequest, surroundings: Surroundings, place: _Place) -> JobRequest:
    return check_program(
        request,
        surroundings,
        path_may_change=place.path_may_change,
        in_container=place.in_container,
    )


def _job_program(
    settled: Settled,
    called: JobRequest,
    place: _Place,
    launcher_notes: tuple[str, ...],
    surroundings: Surroundings,
) -> JobProgram:
    python = find_python(called, settled.gpu_profile, surroundings, in_container=place.in_container)
    return JobProgram(
        request=called,
        loaded=settled.loaded,
        python=python,
        notes=settled.notes,
        path_may_change=place.path_may_change,
        launcher_notes=launcher_notes,
    )


# --- roles ---------------------------------------------------------------------------------------


def _roles(settled: Settled, surroundings: Surroundings) -> JobProgram:
    """Decide what a job with roles runs: the programs of its roles.

    Raises:
        UsageError: the program of a role is a batch script.
    """
    request = with_container(settled.request, settled.gpu_profile, surroundings)
    place = _place_of(request, settled.gpu_profile)
    programs: list[JobRequest] = []
    notes: list[str] = []
    for role, role_request in zip(request.roles, requests_of(request), strict=True):
        if find_batch_script(role_request, surroundings):
            raise UsageError(
                f"{role_request.script} is a batch script, which cannot be the program of a role",
                hint=f"without its #SBATCH lines: bash {shlex.quote(role_request.script)}",
            )
        of_role = request.launcher is None and role.launcher is None
        called, added = _as_called(
            role_request, settled.gpu_profile, surroundings, place, of_role=of_role
        )
        programs.append(called)
        notes += added
    called_all = with_programs(request, programs)
    return _job_program(settled, called_all, place, tuple(notes), surroundings)


# --- submit train.sbatch: a person's batch script as it is ---------------------------------------


def _batch_script(inputs: JobInputs, script: BatchScript, surroundings: Surroundings) -> JobProgram:
    """Decide what a batch script leaves open: its lines decide instead of the configuration."""
    profile = inputs.loaded.profile
    filled = inputs.request
    notes: tuple[str, ...] = ()
    if profile.scheduler == "slurm":
        filled, notes = apply_sbatch_env(filled, surroundings.env, of_script=True)
    request = _in_folder_of(script, filled, surroundings.cwd)
    python = find_python(request, profile, surroundings)
    kind = "for hpcrun's programs; the script has its own"
    own_python = replace(python, kind=kind, prefix=None, of_project=False)
    return JobProgram(request, inputs.loaded, own_python, notes, script)


def _in_folder_of(script: BatchScript, request: JobRequest, cwd: Path) -> JobRequest:
    """Return the request with the folder of a batch script's --chdir.

    Raises:
        UsageError: the folder does not exist.
    """
    if request.workdir or not script.options.workdir:
        return request
    folder = str(cwd / script.options.workdir)
    if not os.path.isdir(folder):
        raise UsageError(
            f"{script.name}: --chdir={script.options.workdir}: there is no such folder"
        )
    return replace(request, workdir=folder)


def find_batch_script(request: JobRequest, surroundings: Surroundings) -> BatchScript | None:
    """Return the batch script of a request, if its program is one with #SBATCH lines.

    Returns:
        The script; None for other programs, and for a job with roles.
    """
    if request.roles or request.preflight == "only":
        return None
    if request.wrap is not None:
        # as sbatch makes it, which reads no #SBATCH lines in it
        return _read("wrap", f"#!/bin/sh\n{request.wrap}\n", (), has_directives=False)
    if request.script == STDIN:
        return read_stdin_script(surroundings.typed.stdin, request.args)
    if request.module:
        return None
    path = Path(request.workdir or surroundings.cwd, request.script)
    if not os.path.isfile(path):
        return None
    text = file_text(path)
    if request.script.endswith(".py"):
        is_script = _HEAD_WITH_DIRECTIVE.match(text)
    else:
        is_script = _DIRECTIVE.search(text)
    return read_script(path, request.args) if is_script else None


def read_script(path: Path, arguments: tuple[str, ...]) -> BatchScript:
    """Read a batch script without running it; refuse a script that sbatch would not take.

    Raises:
        UsageError: the file is not a text that sbatch takes.
    """
    return _read(path.name, _script_text(path), arguments)


def read_calls(path: Path) -> list[SbatchCall]:
    """Read the calls of sbatch in a script that starts jobs; none if the script itself is a job.

    Raises:
        UsageError: the file cannot be read.
    """
    from hpcrun.job.batch.launcher_script import read_launcher

    text = _script_text(path)
    HIDER.learn(dict(re.findall(r"""(\w+)=["']?([^\s"',;]+)""", text)))
    return read_launcher(text)


def _script_text(path: Path) -> str:
    """Return the text of a script.

    Raises:
        UsageError: the file is not a text that sbatch takes.
    """
    try:
        return read_named_text(path, MOST_BYTES)
    except ValueError as error:
        raise UsageError(str(error), hint="give a batch script: a text that sbatch takes") from None


def read_stdin_script(text: str | None, arguments: tuple[str, ...]) -> BatchScript:
    """Return the batch script that stdin had.

    Args:
        text: the text on stdin; None if the command has not read it.
        arguments: the script's own arguments.

    Raises:
        UsageError: the text is empty, is none that sbatch takes, or was not read.
    """
    if text is None:
        raise UsageError(
            "- is no program here: only submit and import read a batch script from stdin",
            hint="give the file of a program",
        )
    if not text.strip():
        raise UsageError(
            "stdin is empty: there is no batch script to submit",
            hint="hpcrun submit - <train.sbatch",
        )
    return _read(STDIN_NAME, text, arguments)


def _read(
    name: str, text: str, arguments: tuple[str, ...], *, has_directives: bool = True
) -> BatchScript:
    from hpcrun.job.batch.batch_script import read_batch_script

    return read_batch_script(name, text, arguments, has_directives=has_directives)


# --- the launcher and the container of a program --------------------------------------------------


def with_launcher(
    request: JobRequest, profile: Profile, surroundings: Surroundings, *, of_role: bool = False
) -> tuple[JobRequest, tuple[str, ...]]:
    """Return the request with the launcher that its program needs, and notes on the launcher.

    See ``choose_launcher``. The profile is the one for the GPU type of the request.
    """
    if request.preflight == "only":
        return request, ()
    folder = Path(request.workdir or surroundings.cwd)
    here = Here(
        surroundings.typed.words,
        lambda name: file_text(folder / name),
        lambda: mpi_types(surroundings.env),
    )
    calls = _calls_of(request, surroundings)
    return choose_launcher(request, profile, calls, here, of_role=of_role)


def _calls_of(request: JobRequest, surroundings: Surroundings) -> list[Call]:
    """Return the launchers that the program of a request is, or calls."""
    folder = Path(request.workdir or surroundings.cwd)
    python = ("python", "-m") if request.module else ()
    words = (*python, request.script, *request.args)
    return find_calls(words, lambda name: _read_shell_script(folder / name))


def _first_call(request: JobRequest, surroundings: Surroundings) -> Call | None:
    """Return the launcher that the program of a request itself is; None for another program."""
    calls = _calls_of(request, surroundings)
    return next((call for call in calls if call.place is None), None)


def _read_shell_script(path: Path) -> str | None:
    """Return the beginning of a shell script, None for another file."""
    text = file_text(path)
    if not text or "\0" in text:
        return None
    if path.suffix in (".sh", ".bash") or _SHELL_LINE.match(text):
        return text
    return None


def with_container(request: JobRequest, profile: Profile, surroundings: Surroundings) -> JobRequest:
    """Return the request with the image of its container as the job finds the image.

    Raises:
        PlanError: a local job needs a container program that is not on PATH.
        UsageError: there is no file of the image.
    """
    image = image_of(request, profile)
    runtime = profile.container.runtime
    if image is None:
        return request
    if profile.scheduler == "local" and runtime != "pyxis":
        is_on_path = shutil.which(runtime, path=surroundings.env.get("PATH")) is not None
        if not is_on_path and not changes_path(request, profile):
            raise PlanError(
                f"{runtime} is not on PATH here; the job's container needs it",
                hint="install it, or set container.runtime in the profile; "
                f"{spell('container', 'none')} runs without",
            )
    if not is_image_file(runtime, image):
        return request
    path = Path(os.path.abspath(surroundings.cwd / os.path.expanduser(image)))
    if not os.path.exists(path):
        problem = f"there is no container image {path}"
        if not request.container:
            problem += f", which profile {profile.name!r} names"
        if runtime == "pyxis":
            pull = "import it: enroot import -o"
        else:
            pull = f"pull it: {runtime} pull"
        raise UsageError(
            problem,
            hint=f"{pull} {shlex.quote(path.name)} docker://...; or use another image: "
            f"{spell('container', 'IMAGE')}",
        )
    return replace(request, container=str(path))


# --- the files of a request ----------------------------------------------------------------------


def _with_sweep_file(request: JobRequest, cwd: Path) -> JobRequest:
    """Return the request with the rows of its sweep file.

    Raises:
        UsageError: --sweep is used, too.
    """
    if request.sweep_file is None:
        return request
    if request.sweep:
        raise UsageError(
            "--sweep and --sweep-file cannot be combined", hint="write all parameters to the file"
        )
    from hpcrun.profiles.sweep_file import load_sweep_file  # few jobs are sweeps

    rows = load_sweep_file(cwd / os.path.expanduser(request.sweep_file))
    return replace(request, sweep=rows, sweep_file=None)
