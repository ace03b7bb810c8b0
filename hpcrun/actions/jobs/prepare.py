"""Preparing a job, in stages: each is made from the one before. Nothing is submitted.

request → JobInputs → Settled → JobProgram → JobCode → Plan → script
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.jobs.find_python import missing_packages
from hpcrun.actions.jobs.job_messages import JobMessages, check_locked_mail, decide_messages
from hpcrun.actions.jobs.job_variables import notes_on_variables
from hpcrun.actions.jobs.launch_checks import check_launch_options
from hpcrun.actions.jobs.program import JobProgram, find_program, read_inputs
from hpcrun.actions.jobs.staged_data import find_data
from hpcrun.actions.ports import Surroundings
from hpcrun.errors import UsageError
from hpcrun.job.batch.sbatch_input import READ_BY_SBATCH
from hpcrun.job.plan.cost import Cost, cost_of
from hpcrun.job.plan.job_plan import (
    Plan,
    Snapshot,
    build_plan,
    flight_recorder_env,
    job_env,
    name_of,
)
from hpcrun.job.plan.plan_notes import plan_notes
from hpcrun.job.plan.roles import requests_of, with_programs
from hpcrun.job.plan.warm_start import WarmProgram, decide_warm_start
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.resources.shape import for_gpu_type
from hpcrun.job.script import render_script
from hpcrun.job.text.quoting import assignments
from hpcrun.job.text.spelling import spell
from hpcrun.machine.clean_environment import clean_env, is_inside_job
from hpcrun.machine.command_log import log_message
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.folders import load_templates, shipped_folder
from hpcrun.profiles.load import LoadedProfile

if TYPE_CHECKING:  # few jobs run a batch script or have a snapshot
    from hpcrun.actions.jobs.snapshot import Listing
    from hpcrun.job.batch.batch_script import BatchScript


@dataclass(frozen=True, slots=True)
class Prepared:
    """A job that is decided and not submitted.

    ``listing`` has the code of a job with a snapshot.
    """

    request: JobRequest
    profile: LoadedProfile
    plan: Plan
    script: str
    listing: Listing | None = None

    def secrets(self) -> dict[str, str]:
        """Return the secrets, which are passed only through the environment."""
        env = dict(job_env(self.request, self.profile.profile))
        if self.plan.batch:
            env.update(self.plan.batch.secrets)
        secrets = [name for name, value in self.plan.env if value is None]
        return {name: env[name] for name in secrets if name in env}

    def cost(self, elements: int = 1) -> Cost:
        """Return what the job can use at most.

        Args:
            elements: the elements of an array on this machine that is not a sweep.
        """

        def gpus_of_node(partition: str | None) -> int | None:
            try:
                profile = for_gpu_type(self.profile.profile, self.request)
            except UsageError:  # of several types, Slurm chooses
                return None
            # the profile describes the nodes of its own partition alone
            return profile.gpu.per_node if partition == profile.partition else None

        return cost_of(self.plan, self.script, gpus_of_node=gpus_of_node, elements=elements)

    def own_variables(self) -> set[str]:
        """Return the variables of the job that the user or the site has set, and not hpcrun.

        hpcrun sets variables in the profiles that it ships, and by the facts of a profile's fabric.
        """
        shipped = shipped_folder("cluster_profiles")
        names = {name for name, _ in self.request.env}
        for name, value in self.plan.env:
            if value is None or self.plan.batch:  # a secret; a script has none of the profile
                names.add(name)
        for key, origin in self.profile.origins.items():
            if key[:1] == ("env",) and not origin.path.is_relative_to(shipped):
                names.update(key[1:])
        return names


def choose_profile(
    typed: str | None, surroundings: Surroundings, slurm_unavailable: Callable[[], str | None]
) -> str:
    """Return the name of the profile to use.

    The order is: the flag, HPCRUN_PROFILE, the configuration; else ``detected``, or ``local``
    without Slurm.
    """
    chosen = typed or surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    if chosen and (typed or chosen != DETECTED):
        return chosen
    # a home may be shared with machines without Slurm
    return "local" if slurm_unavailable() else DETECTED


def prepare(
    request: JobRequest,
    profile_name: str,
    surroundings: Surroundings,
    machine: Callable[[], Machine],
) -> Prepared:
    """Decide everything about a job, and render its script.

    Args:
        request: the job as the user wants it.
        profile_name: the name or the path of the profile.
        surroundings: the folder, the environment and the configuration of the user.
        machine: used only for a local profile.

    Raises:
        UsageError, ProfileError, PlanError: the job is not possible; the hint says what to change.
    """
    inputs = read_inputs(request, profile_name, surroundings)
    program = find_program(inputs, surroundings)
    code = find_code(program, surroundings)
    messages = decide_messages(code.request, program.loaded.profile, surroundings)
    if program.script:
        plan = _plan_of_script(program.script, program, code, messages, surroundings)
    else:
        plan = _plan_of_ranks(program, code, messages, surroundings, machine)
    inherited = [*clean_env(surroundings.env), *dict(plan.env)]
    whole = replace(
        plan,
        notes=(*surroundings.typed.notes, *program.notes, *code.notes, *plan.notes),
        snapshot=code.snapshot,
        added=flight_recorder_env(inherited),
        stage=_staged_data(code.request, surroundings.cwd),
        keep_days=code.request.keep,
        warm=_warm_start(program, plan, surroundings.cwd),
    )
    log_message(f"env {assignments((*whole.env, *whole.added))}")
    script = render_script(whole, load_templates(surroundings.template_folders))
    check_locked_mail(script, surroundings.config)
    return Prepared(code.request, program.loaded, whole, script, code.listing)


# --- the code of the job -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JobCode:
    """The code of a job: where it lies, or the copy of it."""

    request: JobRequest  # with its programs as they are called in the copy
    snapshot: Snapshot | None = None
    listing: Listing | None = None  # the files of the copy

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on files that may be secrets."""
        if self.listing is None:
            return ()
        return tuple(self.listing.secret_notes())


def find_code(program: JobProgram, surroundings: Surroundings) -> JobCode:
    """Find the code of a job with a snapshot; without one, the code stays where it lies.

    Raises:
        UsageError: --snapshot-include is used without --snapshot.
    """
    request = program.request
    if not request.snapshot:
        if request.snapshot_include:
            raise UsageError(
                f"{spell('snapshot-include')} has no effect without {spell('snapshot')}"
            )
        return JobCode(request)
    from hpcrun.actions.jobs.snapshot import find_tree, list_code, place_in_snapshot

    tree = find_tree(Path(request.workdir or surroundings.cwd), surroundings.env)
    of_roles = []
    for role_request in requests_of(request):
        placed_role, _ = place_in_snapshot(role_request, tree, program.python)
        of_roles.append(placed_role)
    placed, snapshot = place_in_snapshot(request, tree, program.python)
    listing = list_code(tree, request.snapshot_include, surroundings.runs)
    return JobCode(with_programs(placed, of_roles), snapshot, listing)


def _staged_data(request: JobRequest, cwd: Path) -> tuple[tuple[str, str, int | None], ...]:
    """Return the data that the job copies to its nodes; a check of nodes needs none.

    Raises:
        UsageError: a source cannot be copied, or --keep is used without --stage.
    """
    if request.keep and not request.stage:
        raise UsageError(f"{spell('keep')} has no effect without {spell('stage')}")
    if request.preflight == "only":
        return ()
    return find_data(request.stage, Path(request.workdir or cwd))


def _warm_start(program: JobProgram, plan: Plan, cwd: Path) -> WarmProgram | None:
    """Return how compiled files are kept, for all jobs of the program before it was copied."""
    request = program.request
    return decide_warm_start(
        request,
        program.loaded.profile,
        folder=os.path.abspath(request.workdir or cwd),
        python=plan.python.executable,
        name=name_of(replace(request, name=None)),
    )


# --- the plan ------------------------------------------------------------------------------------


def _plan_of_script(
    script: BatchScript,
    program: JobProgram,
    code: JobCode,
    messages: JobMessages,
    surroundings: Surroundings,
) -> Plan:
    from hpcrun.job.plan.batch_plan import plan_script

    env = surroundings.env
    of_sbatch = {}
    if not is_inside_job(env):
        of_sbatch = {name: value for name, value in env.items() if name in READ_BY_SBATCH}
        of_sbatch.pop("SLURM_UMASK", None)  # Slurm sets it from the umask
    plan = plan_script(
        code.request,
        program.loaded.profile,
        script,
        python=program.python,
        of_sbatch=of_sbatch,
        notify=messages.notify,
        mail=messages.mail,
    )
    of_variables = notes_on_variables(plan, program, surroundings)
    return replace(plan, notes=(*messages.notes, *plan.notes, *of_variables))


def _plan_of_ranks(
    program: JobProgram,
    code: JobCode,
    messages: JobMessages,
    surroundings: Surroundings,
    machine: Callable[[], Machine],
) -> Plan:
    """Return the plan of a job whose ranks hpcrun starts, with all notes on the plan."""
    profile = program.loaded.profile
    is_local = profile.scheduler == "local"
    failed = _failed_nodes(code.request, profile, surroundings)
    plan = build_plan(
        _without_nodes(code.request, failed),
        profile,
        python=program.python,
        machine=machine() if is_local else Machine(cpus=1),
        notify=messages.notify,
        mail=messages.mail,
    )
    check_launch_options(code.request, plan, surroundings.env)
    notes: list[str] = []
    if failed:
        when = "which failed in the last 24 hours (see hpcrun nodes)"
        notes.append(f"excludes {', '.join(failed)}, {when}; undo: hpcrun nodes forget")
    notes += [*messages.notes, *program.launcher_notes, *plan.notes]
    notes += _notes_on(plan, program, code.request, surroundings)
    return replace(plan, notes=tuple(notes))


def _failed_nodes(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[str, ...]:
    """Return the nodes that a job with --exclude-bad-nodes excludes.

    The result is empty if the request names the nodes.
    """
    if not request.exclude_bad_nodes or request.nodelist is not None:
        return ()
    if profile.scheduler != "slurm":
        return ()
    return surroundings.failed_nodes()


def _without_nodes(request: JobRequest, failed: tuple[str, ...]) -> JobRequest:
    """Return a request that also excludes the failed nodes."""
    if not failed:
        return request
    excluded = list(failed)
    if request.exclude:
        excluded.insert(0, request.exclude)
    return replace(request, exclude=",".join(excluded))


def _notes_on(
    plan: Plan, program: JobProgram, request: JobRequest, surroundings: Surroundings
) -> Iterator[str]:
    """Yield notes on what a user may not expect of a plan."""
    env = surroundings.env
    yield from plan_notes(plan, for_gpu_type(program.loaded.profile, request), env)
    if not program.path_may_change:
        launchers = {plan.shape.launcher, *(role.launcher for role in plan.roles)}
        variables = {name: value for name, value in plan.env if value is not None}
        yield from missing_packages(launchers, plan.python, {**env, **variables})
    yield from notes_on_variables(plan, program, surroundings)
