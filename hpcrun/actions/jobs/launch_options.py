"""Whether the programs that start the ranks know the options they are given: asked before anything is submitted."""

from __future__ import annotations

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.errors import UsageError
from hpcrun.job.launch_options import Options, Program, option_words, similar_option
from hpcrun.job.plan import Plan
from hpcrun.job.request import JobRequest
from hpcrun.schedulers.launch_check import srun_refusal, torchrun_refusal


def check_launch_options(request: JobRequest, plan: Plan, surroundings: Surroundings) -> None:
    """Refuse options that srun here, or the torchrun of the job's Python, does not take.

    srun answers in milliseconds. To ask torchrun takes seconds, and is done for --torchrun alone: a profile's options
    are the same for every job.

    Raises:
        UsageError: one of them is refused; the message has the program's own words.
    """
    env = surroundings.env
    if plan.srun and (said := srun_refusal(option_words(plan.srun), env)):
        raise _refusal("srun", said, plan.srun, plan.profile, is_typed=bool(request.srun))
    if request.torchrun:
        python = plan.python
        words = option_words(plan.torchrun)
        said = torchrun_refusal(python.executable, words, env, prefix=python.prefix, variable=python.variable)
        if said:
            raise _refusal("torchrun", said, plan.torchrun, plan.profile, is_typed=True)


def _refusal(program: Program, said: str, options: Options, profile: str, *, is_typed: bool) -> UsageError:
    name = next((name for name, _ in options if f"--{name}" in said), None)
    close = similar_option(program, name) if name and "unrecogni" in said else None
    where = f"--{program}" if is_typed else f"{program}: of profile {profile!r}"
    return UsageError(
        f"{where}: {program} refuses it: {said}",
        hint=f"did you mean {close}?" if close and close != name else f"`{program} --help` lists its options",
    )
