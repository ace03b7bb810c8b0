"""What this machine can check of a launch: the options of srun and torchrun, and uv.lock."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from hpcrun.errors import UsageError
from hpcrun.job.launch_options import Options, Program, similar_option
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.shape import option_words


def check_launch_options(request: JobRequest, plan: Plan, env: Mapping[str, str]) -> None:
    """Refuse options that this machine's srun or the job's torchrun does not know.

    An outdated uv.lock is refused too. srun answers in milliseconds, torchrun in seconds. So
    torchrun is asked only for --torchrun: a profile's options are the same for every job.

    Raises:
        UsageError: the project's uv.lock is outdated.
        UsageError: srun or torchrun does not know an option.
    """  # noqa: DOC501
    python = plan.python
    if not (plan.srun or request.torchrun or python.uv_project):
        return
    from hpcrun.machine.host import torchrun_refusal, uv_refusal
    from hpcrun.schedulers.srun_options import srun_refusal

    if python.uv_project:
        outdated = uv_refusal(python.uv_project, env)
        if outdated:
            hint = f"uv lock --project {shlex.quote(python.uv_project)}"
            raise UsageError(f"--uv: {outdated}", hint=hint)
    if plan.srun:
        reason = srun_refusal(option_words(plan.srun), env)
        if reason:
            raise _refusal("srun", reason, plan.srun, plan.profile, is_typed=bool(request.srun))
    # a cloned project may hold any program as .venv/bin/python, and nothing of it is run before a
    # job is submitted
    if request.torchrun and not (python.of_project or python.uv_project):
        reason = torchrun_refusal(python, option_words(plan.torchrun), env)
        if reason:
            raise _refusal("torchrun", reason, plan.torchrun, plan.profile, is_typed=True)


def _refusal(
    program: Program, reason: str, options: Options, profile: str, *, is_typed: bool
) -> UsageError:
    """Return the error about an option that a program refuses."""
    hint = f"`{program} --help` lists its options"
    name = next((name for name, _ in options if f"--{name}" in reason), None)
    if name and "unrecogni" in reason:
        close = similar_option(program, name)
        if close and close != name:
            hint = f"did you mean {close}?"
    if is_typed:
        where = f"--{program}"
    else:
        where = f"{program}: of profile {profile!r}"
    return UsageError(f"{where}: {program} refuses it: {reason}", hint=hint)
