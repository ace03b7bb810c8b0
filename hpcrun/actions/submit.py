"""submit: request → profile → plan → script → run → job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hpcrun.actions.program import check_program, find_python
from hpcrun.actions.surroundings import Surroundings
from hpcrun.actions.variables import check_job_env
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    PlanError,
    SchedulerError,
    SubmissionUncertainError,
    UsageError,
)
from hpcrun.job.directives import unknown_note
from hpcrun.job.plan import Plan, build_plan, job_env
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest
from hpcrun.job.resources import Machine
from hpcrun.job.script import Script, render_script
from hpcrun.job.secrets import MASK, is_secret
from hpcrun.job.units import parse_time
from hpcrun.profiles.config import Config
from hpcrun.profiles.load import LoadedProfile, load_profile, profile_names
from hpcrun.profiles.templates import load_templates
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Scheduler, Submission

# As sbatch's own "INPUT ENVIRONMENT VARIABLES": above the profile, below a flag. The rest of SBATCH_* is not
# handed on, since it would override lines of the script that a person has read.
_SBATCH_ENV = {
    "account": "SBATCH_ACCOUNT",
    "constraint": "SBATCH_CONSTRAINT",
    "partition": "SBATCH_PARTITION",
    "qos": "SBATCH_QOS",
    "reservation": "SBATCH_RESERVATION",
    "walltime_s": "SBATCH_TIMELIMIT",
}


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything decided, nothing submitted."""

    request: JobRequest
    profile: LoadedProfile
    plan: Plan
    script: Script

    def secrets(self) -> dict[str, str]:
        """Return the variables that go through the environment and nowhere else."""
        return {name: value for name, value in job_env(self.request, self.profile.profile).items() if is_secret(name)}


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """A submitted run.

    Attributes:
        remarks: what the scheduler said besides, and what could not be noted.
    """

    run: Run
    folder: Path
    remarks: str = ""


def choose_profile(asked: str | None, surroundings: Surroundings, slurm_unavailable: str | None) -> str:
    """Return the profile to use: flag, HPCRUN_PROFILE, configuration, or ``local`` where there is no Slurm.

    Raises:
        UsageError: there is Slurm, and nothing says which profile.
    """
    chosen = asked or surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    if chosen:
        return chosen
    if slurm_unavailable:
        return "local"
    names = ", ".join(sorted(profile_names(surroundings.profile_folders)))
    raise UsageError(
        "no profile is chosen, and this machine has Slurm",
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
    if profile.scheduler == "slurm":
        request = _with_config(_with_sbatch_env(request, surroundings.env), surroundings.config, profile)
    path_may_change = bool(profile.modules or profile.setup or request.load or request.setup)
    request = check_program(request, surroundings, path_may_change=path_may_change)
    plan = build_plan(
        request,
        profile,
        python=find_python(request, profile, surroundings),
        machine=machine() if profile.scheduler == "local" else Machine(cpus=1),
    )
    plan = replace(plan, notes=(*plan.notes, *check_job_env(request, loaded, plan.shape.gpu_type)))
    return Prepared(request, loaded, plan, render_script(plan, load_templates(surroundings.template_folders)))


def _with_sbatch_env(request: JobRequest, env: Mapping[str, str]) -> JobRequest:
    if "SLURM_JOB_ID" in env:  # inside a job these describe the job one is in
        return request
    said: dict[str, Any] = {
        field: env[name] for field, name in _SBATCH_ENV.items() if env.get(name) and getattr(request, field) is None
    }
    if "walltime_s" in said:
        try:
            said["walltime_s"] = parse_time(said["walltime_s"])
        except ValueError as error:
            raise UsageError(f"SBATCH_TIMELIMIT: {error}") from None
    return request.model_copy(update=said)


def _with_config(request: JobRequest, config: Config, profile: Profile) -> JobRequest:
    """Fill in the configured time and account: below flags and environment, above the profile."""
    walltime_s, most = config.walltime_s, profile.time.max
    if walltime_s and most:
        walltime_s = min(walltime_s, most)  # nobody asked for this job to be longer than it can be
    said = {"walltime_s": walltime_s, "account": config.account}
    return request.model_copy(
        update={name: value for name, value in said.items() if value and getattr(request, name) is None}
    )


def submit(
    prepared: Prepared,
    *,
    store: RunStore,
    scheduler: Scheduler,
    surroundings: Surroundings,
    run_id: str,
    now_s: float,
    output_dir: Path | None = None,
) -> SubmitResult:
    """Record a run and submit its job: the record comes first, so that no job is ever unknown.

    Args:
        output_dir: where the run's folder goes, instead of the runs folder.

    Raises:
        SubmissionUncertainError: no answer came; the run is kept, and status will find its job.
        HpcrunError: refused; no run is left.
    """
    reason = scheduler.unavailable()
    if reason:
        raise PlanError(f"profile {prepared.plan.profile!r} cannot run here: {reason}",
                        hint="use --profile local to run on this machine, or --dry-run to see the script")  # fmt: skip
    run = _record(prepared, scheduler.name, scheduler.cluster(), surroundings.host, run_id, now_s)
    folder = store.create(run, prepared.script.text, output_dir)
    submission = Submission(
        name=prepared.plan.name,
        folder=folder,
        script=prepared.script.text,
        workdir=Path(prepared.request.workdir or surroundings.cwd),
        env={**surroundings.env, **prepared.secrets()},
        walltime_s=prepared.plan.walltime_s,
    )
    try:
        submitted = scheduler.submit(submission)
    except SubmissionUncertainError:
        raise
    except SchedulerError as error:
        store.delete(run_id)
        raise _with_doubts(error, prepared.plan) from None
    except KeyboardInterrupt:
        raise InterruptedByUser(
            f"interrupted while submitting {run_id}: the job may have been submitted all the same",
            hint="hpcrun status finds it if so",
        ) from None
    run = replace(run, job_id=submitted.job_id)
    try:
        store.save(run)
    except PlanError as error:
        note = f"{error.message}; the job runs, and hpcrun status will find it by its folder"
        return SubmitResult(run, folder, "\n".join(filter(None, (submitted.remarks, note))))
    return SubmitResult(run, folder, submitted.remarks)


def _record(prepared: Prepared, scheduler: str, cluster: str | None, host: str, run_id: str, now_s: float) -> Run:
    plan = prepared.plan
    request = prepared.request.model_dump(exclude_defaults=True)
    if "env" in request:
        request["env"] = [[name, MASK if is_secret(name) else value] for name, value in request["env"]]
    return Run(
        run_id=run_id,
        name=plan.name,
        scheduler=scheduler,
        cluster=cluster,
        host=host,
        created_s=now_s,
        job_id=None,
        profile=plan.profile,
        nodes=plan.shape.nodes,
        gpus_per_node=plan.shape.gpus_per_node,
        world_size=plan.shape.world_size,
        walltime_s=plan.walltime_s,
        request=request,
        plan=asdict(plan),
    )


def _with_doubts(error: SchedulerError, plan: Plan) -> HpcrunError:
    """Hint at a misspelt directive where sbatch refused and hpcrun had its doubts."""
    doubts = [note for key, _ in plan.directives if (note := unknown_note(key))]
    if error.hint or not doubts:
        return error
    return SchedulerError(error.message, hint="; ".join(doubts))
