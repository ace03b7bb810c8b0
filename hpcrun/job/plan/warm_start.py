"""--warm: which jobs share what their compilers make. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hpcrun.errors import UsageError
from hpcrun.job.plan.roles import requests_of
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest


@dataclass(frozen=True, slots=True)
class WarmProgram:
    """The compiled files of a job.

    Attributes:
        program: a name for all jobs of the same program, as the name of a folder.
        variables: further variables of compilers that name a folder.
    """

    program: str
    variables: tuple[str, ...] = ()


def decide_warm_start(
    request: JobRequest, profile: Profile, *, folder: str, python: str, name: str
) -> WarmProgram | None:
    """Return how the compiled files of a job are kept; None if they are not.

    Jobs share them if folder, program, Python and container are the same. The arguments of the
    program are not compared: compilers look up each file by what it was compiled from.

    Args:
        request: the request of the user.
        profile: the profile of the job.
        folder: the folder in which the program is named.
        python: the interpreter of the job.
        name: the name of the program, for people.

    Raises:
        UsageError: --warm and --no-warm are used together.
    """
    if request.warm and request.no_warm:
        raise UsageError("--warm cannot be combined with --no-warm", hint="leave one of them out")
    is_wanted = request.warm or (profile.launch.warm and not request.no_warm)
    if not is_wanted or request.preflight == "only":
        return None
    image = request.container or profile.container.image or ""
    programs = [each.script for each in (*requests_of(request), request)]
    same = (folder, *programs, str(request.module), request.wrap or "", python, image)
    code = hashlib.sha256("\0".join(same).encode("utf-8", "surrogateescape")).hexdigest()
    return WarmProgram(f"{name}-{code[:16]}", profile.launch.warm_variables)
