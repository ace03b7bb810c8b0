"""Preparing a job: request → profile → plan → script, with nothing submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.jobs.bad_nodes import leave_out
from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.program import check_program, find_python, with_container, with_launcher
from hpcrun.actions.profiles.variables import check_job_env
from hpcrun.errors import UsageError
from hpcrun.job.container import image_of
from hpcrun.job.gpu_types import for_gpu_type
from hpcrun.job.launch_options import Options, Program, option_words, similar_option
from hpcrun.job.plan import Plan, build_plan, job_env
from hpcrun.job.plan_notes import plan_notes
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest, check_secrets
from hpcrun.job.resources import Machine
from hpcrun.job.sbatch_env import apply_sbatch_env
from hpcrun.job.script import Script, render_script
from hpcrun.profiles.config import Config
from hpcrun.profiles.load import LoadedProfile, load_profile, profile_names
from hpcrun.profiles.templates import load_templates


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything decided, nothing submitted."""

    request: JobRequest
    profile: LoadedProfile
    plan: Plan
    script: Script

    def secrets(self) -> dict[str, str]:
        """Return the variables that go through the environment and nowhere else."""
        env = job_env(self.request, self.profile.profile)
        return {name: env[name] for name, value in self.plan.env if value is None and name in env}


def choose_profile(asked: str | None, surroundings: Surroundings, slurm_unavailable: Callable[[], str | None]) -> str:
    """Return the profile to use: flag, HPCRUN_PROFILE, configuration, or ``local`` where there is no Slurm.

    Raises:
        UsageError: there is Slurm, and nothing says which profile.
    """
    chosen = asked or surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    if chosen:
        return chosen
    if slurm_unavailable():
        return "local"
    names = ", ".join(sorted(profile_names(surroundings.profile_folders)))
    raise UsageError(
        "no profile is chosen",
        hint=f"add --profile NAME, or set HPCRUN_PROFILE; there are: {names}",
    )


def prepare(
    request: JobRequest, profile_name: str, surroundings: Surroundings, machine: Callable[[], Machine]
) -> Prepared:
    """Decide everything about a job, and write its script.

    Args:
        machine: looked at for a local profile only.

    Raises:
        UsageError, ProfileError, PlanError: what cannot be, and what to do.
    """
    loaded = load_profile(profile_name, surroundings.profile_folders)
    profile = loaded.profile
    notes = [*surroundings.typed.notes, *check_secrets(request)]
    if profile.scheduler == "slurm":
        notes += apply_sbatch_env(request, surroundings.env).notes
    request = with_defaults(request, profile, surroundings)
    request = _with_sweep_file(request, surroundings.cwd)
    request = with_container(request, profile, surroundings)
    inside = image_of(request, profile) is not None
    path_may_change = bool(profile.modules or profile.setup or request.load or request.setup) or inside
    request, launcher_notes = with_launcher(request, profile, surroundings)
    request = check_program(request, surroundings, path_may_change=path_may_change, in_container=inside)
    # --python names the one in the container
    hosts = request.model_copy(update={"python": None}) if inside else request
    python, snapshot = find_python(hosts, profile, surroundings), None
    if request.snapshot:
        from hpcrun.actions.jobs.snapshot import find_tree, place_in_snapshot, secret_notes  # few jobs have one

        tree = find_tree(Path(request.workdir or surroundings.cwd), surroundings.env)
        request, snapshot = place_in_snapshot(request, tree, python)
        runs = surroundings.env.get("HPCRUN_RUNS") or surroundings.config.runs
        notes += secret_notes(tree, request.snapshot_include, [surroundings.cwd / runs] if runs else [])
    elif request.snapshot_include:
        raise UsageError("--snapshot-include has no effect without --snapshot")
    left_out = leave_out(request, profile, surroundings)
    excluded = ",".join(filter(None, (request.exclude, *left_out.nodes))) or None
    plan = build_plan(
        request.model_copy(update={"exclude": excluded}),
        profile,
        python=python,
        machine=machine() if profile.scheduler == "local" else Machine(cpus=1),
    )
    _check_launch_options(request, plan, surroundings)
    notes += [
        *left_out.notes,
        *launcher_notes,
        *plan.notes,
        *plan_notes(plan, for_gpu_type(profile, request), surroundings.env),
    ]
    notes += check_job_env(request, loaded, plan.shape.gpu_type)
    plan = replace(plan, notes=tuple(notes), snapshot=snapshot)
    return Prepared(request, loaded, plan, render_script(plan, load_templates(surroundings.template_folders)))


def _check_launch_options(request: JobRequest, plan: Plan, surroundings: Surroundings) -> None:
    """Refuse options that srun here, or the torchrun of the job's Python, does not take.

    srun answers in milliseconds. To ask torchrun takes seconds, and is done for --torchrun alone: a profile's options
    are the same for every job.

    Raises:
        UsageError: one of them is refused; the message has the program's own words.
    """
    if not (plan.srun or request.torchrun):
        return
    from hpcrun.schedulers.launch_check import srun_refusal, torchrun_refusal

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


def with_defaults(request: JobRequest, profile: Profile, surroundings: Surroundings) -> JobRequest:
    """Fill in what SBATCH_* and the configuration say of a Slurm job that was asked for without it.

    Raises:
        UsageError: SBATCH_TIMELIMIT cannot be read.
    """
    if profile.scheduler != "slurm":
        return request
    return _with_config(apply_sbatch_env(request, surroundings.env).request, surroundings.config, profile)


def _with_sweep_file(request: JobRequest, cwd: Path) -> JobRequest:
    if request.sweep_file is None:
        return request
    if request.sweep:
        raise UsageError("--sweep and --sweep-file cannot be combined", hint="write all parameters to the file")
    from hpcrun.profiles.sweep_file import load_sweep_file  # few jobs are sweeps

    rows = load_sweep_file(cwd / Path(request.sweep_file).expanduser())
    return request.model_copy(update={"sweep": rows, "sweep_file": None})


def _with_config(request: JobRequest, config: Config, profile: Profile) -> JobRequest:
    """Fill in the configured time and account: below flags and environment, above the profile."""
    walltime_s, most = config.walltime_s, profile.time.max
    if walltime_s and most:
        walltime_s = min(walltime_s, most)  # nobody asked for this job to be longer than it can be
    said = {"walltime_s": walltime_s, "account": config.account}
    return request.model_copy(
        update={name: value for name, value in said.items() if value and getattr(request, name) is None}
    )
