"""Preparing a job: request → profile → plan → script, with nothing submitted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.hooks import hooks_of
from hpcrun.actions.jobs.choices import settle
from hpcrun.actions.jobs.program import check_program, find_batch_script, with_container, with_launcher
from hpcrun.actions.jobs.python import find_python, missing_torch_note
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.variables import check_job_env
from hpcrun.errors import HpcrunError, UsageError
from hpcrun.job.launch_options import Options, Program, similar_option
from hpcrun.job.launch_plan import image_of, option_words
from hpcrun.job.notes import plan_notes
from hpcrun.job.notify import Notify
from hpcrun.job.plan import Plan, PythonEnvironment, Snapshot, build_plan, flight_recorder_env, job_env
from hpcrun.job.profile import Profile
from hpcrun.job.request import JobRequest, check_secrets
from hpcrun.job.resources import Machine
from hpcrun.job.sbatch_env import apply_sbatch_env
from hpcrun.job.script import Script, render_script
from hpcrun.job.shape import for_gpu_type
from hpcrun.profiles.config import DETECTED, Config
from hpcrun.profiles.folder import load_templates
from hpcrun.profiles.load import LoadedProfile, load_profile
from hpcrun.schedulers.process import clean_env

if TYPE_CHECKING:  # few jobs run a batch script
    from hpcrun.actions.ports import Surroundings
    from hpcrun.job.batch_script import BatchScript
    from hpcrun.job.profile import Profile
    from hpcrun.job.request import JobRequest


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything decided, nothing submitted."""

    request: JobRequest
    profile: LoadedProfile
    plan: Plan
    script: Script

    def secrets(self) -> dict[str, str]:
        """Return the variables that go through the environment and nowhere else."""
        env = {**job_env(self.request, self.profile.profile), **self.plan.script_secrets}
        return {name: env[name] for name, value in self.plan.env if value is None and name in env}


def choose_profile(typed: str | None, surroundings: Surroundings, slurm_unavailable: Callable[[], str | None]) -> str:
    """Return the profile to use: flag, HPCRUN_PROFILE, configuration; else ``detected``, or ``local`` without Slurm."""
    chosen = typed or surroundings.env.get("HPCRUN_PROFILE") or surroundings.config.profile
    if chosen and (typed or chosen != DETECTED):
        return chosen
    return "local" if slurm_unavailable() else DETECTED  # a home may be shared with machines without Slurm


def prepare(
    request: JobRequest, profile_name: str, surroundings: Surroundings, machine: Callable[[], Machine]
) -> Prepared:
    """Decide everything about a job, and write its script.

    Args:
        machine: looked at for a local profile only.

    Raises:
        UsageError, ProfileError, PlanError: the job is not possible; the hint says what to change.
    """
    loaded = load_profile(profile_name, surroundings.profile_folders)
    profile = loaded.profile
    named, given = {*profile.secrets, *request.secrets}, {**surroundings.env, **profile.env, **dict(request.env)}
    request = _with_sweep_file(request, surroundings.cwd)
    check_secrets(request, given, named)
    notes = [*surroundings.typed.notes]
    if profile.scheduler == "slurm":
        changes = apply_sbatch_env(request, surroundings.env)
        notes += [*([f"from your shell: {' '.join(changes.used)}"] if changes.used else []), *changes.notes]
    if script := find_batch_script(request, surroundings):
        return _prepare_script(request, script, loaded, surroundings, notes)
    settled = settle(with_defaults(request, profile, surroundings), loaded, surroundings)
    request, loaded, profile = settled.request, settled.loaded, settled.loaded.profile
    notes += settled.notes
    request = with_container(request, profile, surroundings)
    inside = image_of(request, profile) is not None
    path_may_change = bool(profile.modules or profile.setup or request.load or request.setup) or inside
    request, launcher_notes = with_launcher(request, profile, surroundings)
    request = check_program(request, surroundings, path_may_change=path_may_change, in_container=inside)
    # --python names the one in the container
    hosts = request.model_copy(update={"python": None}) if inside else request
    python = find_python(hosts, profile, surroundings)
    request, snapshot, snapshot_notes = _snapshot(request, python, surroundings)
    notes += snapshot_notes
    messages, mail, message_notes = _messages(request, profile, surroundings)
    left_out = leave_out(request, profile, surroundings)
    excluded = ",".join(filter(None, (request.exclude, *left_out.nodes))) or None
    plan = build_plan(
        request.model_copy(update={"exclude": excluded}),
        profile,
        python=python,
        machine=machine() if profile.scheduler == "local" else Machine(cpus=1),
        notify=messages,
        mail=mail,
    )
    _check_launch_options(request, plan, surroundings)
    notes += [
        *left_out.notes,
        *message_notes,
        *launcher_notes,
        *plan.notes,
        *plan_notes(plan, for_gpu_type(profile, request), surroundings.env),
    ]
    if plan.shape.launcher == "torchrun" and not path_may_change:
        variables = {name: value for name, value in plan.env if value is not None}
        missing = missing_torch_note(plan.python, {**surroundings.env, **variables})
        notes += [missing] if missing else []
    notes += check_job_env(request, loaded, plan.shape.gpu_type)
    added = flight_recorder_env((*clean_env(surroundings.env), *dict(plan.env)))
    plan = replace(plan, notes=tuple(notes), snapshot=snapshot, added=added)
    return Prepared(request, loaded, plan, render_script(plan, load_templates(surroundings.template_folders)))


def _prepare_script(
    request: JobRequest, script: BatchScript, loaded: LoadedProfile, surroundings: Surroundings, notes: list[str]
) -> Prepared:
    """Decide a job that runs a batch script: its own lines decide, not the profile's defaults."""
    from hpcrun.job.batch_plan import plan_script

    profile = loaded.profile
    if profile.scheduler == "slurm":
        request = apply_sbatch_env(request, surroundings.env).request
    request = request_of_script(request, script, surroundings)
    python = python_of_job(request, profile, surroundings)
    request, snapshot, snapshot_notes = _snapshot(request, python, surroundings)
    messages, mail, message_notes = _messages(request, profile, surroundings)
    plan = plan_script(request, profile, script, python=python, notify=messages, mail=mail)
    added = flight_recorder_env((*clean_env(surroundings.env), *dict(plan.env)))
    notes += [*snapshot_notes, *message_notes, *plan.notes]
    plan = replace(plan, notes=tuple(notes), snapshot=snapshot, added=added)
    return Prepared(request, loaded, plan, render_script(plan, load_templates(surroundings.template_folders)))


def _snapshot(
    request: JobRequest, python: PythonEnvironment, surroundings: Surroundings
) -> tuple[JobRequest, Snapshot | None, tuple[str, ...]]:
    """Return the request with its script as it is called in the copy of the code, the copy, and notes.

    Raises:
        UsageError: the script is not in the code.
    """
    if request.snapshot:
        from hpcrun.actions.jobs.snapshot import find_tree, place_in_snapshot, secret_notes  # few jobs have one

        tree = find_tree(Path(request.workdir or surroundings.cwd), surroundings.env)
        request, snapshot = place_in_snapshot(request, tree, python)
        runs = surroundings.env.get("HPCRUN_RUNS") or surroundings.config.runs
        left_out = [surroundings.cwd / runs] if runs else []
        return request, snapshot, secret_notes(tree, request.snapshot_include, left_out)
    if request.snapshot_include:
        raise UsageError("--snapshot-include has no effect without --snapshot")
    return request, None, ()


def _messages(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[Notify | None, dict[str, str], list[str]]:
    """Return the messages that hpcrun sends, the directives of Slurm's own mail, and notes.

    Raises:
        UsageError: a typed destination has no value here, or is not possible.
    """
    config = surroundings.config
    # a check of nodes is no run that somebody waits for
    known = () if request.preflight == "only" else (*config.notify, *profile.notify)
    if not (request.notify or known):
        if request.notify_on:
            raise UsageError("--notify-on has no effect: no destination is configured", hint="add --notify URL")
        return None, {}, []
    from hpcrun.job.notify import decide_notify, is_slurms_mail, mail_types, variables_in

    events = request.notify_on or config.notify_on or profile.notify_on
    waiting_s = config.notify_waiting_s or profile.notify_waiting
    notify, address = decide_notify(request.notify, known, events, waiting_s)
    notes = []
    for to in notify.to if notify else ():
        if missing := [name for name in variables_in(to) if not surroundings.env.get(name)]:
            if to in request.notify:
                raise UsageError(
                    f"--notify: {missing[0]} is not set", hint=f"read -rs {missing[0]} && export {missing[0]}"
                )
            notes.append(f"no messages to {to}: {missing[0]} is not set")
        elif to in request.notify:
            hooks_of("notify").check_destination(to, surroundings.env)
    if profile.scheduler != "slurm" and address:
        if any(is_slurms_mail(to) for to in request.notify):
            raise UsageError(
                f"--notify mailto:{address}: Slurm sends this mail, and this job runs without Slurm",
                hint="name a mail server: --notify 'mailto://SERVER:25?from=ADDRESS&to=ADDRESS'",
            )
        address = None
    return notify, {"mail-user": address, "mail-type": mail_types(events)} if address else {}, notes


def _check_launch_options(request: JobRequest, plan: Plan, surroundings: Surroundings) -> None:
    """Refuse options that srun here, or the torchrun of the job's Python, does not take; and a uv.lock that is old.

    srun answers in milliseconds. To ask torchrun takes seconds, and is done for --torchrun alone: a profile's options
    are the same for every job.

    Raises:
        UsageError: one of them is refused; the message has the program's own words.
    """
    env = surroundings.env
    if plan.python.uv_project:
        from hpcrun.schedulers.software import uv_refusal

        if reason := uv_refusal(plan.python.uv_project, env):
            raise UsageError(f"--uv: {reason}", hint=f"uv lock --project {shlex.quote(plan.python.uv_project)}")
    if not (plan.srun or request.torchrun):
        return
    from hpcrun.schedulers.software import srun_refusal, torchrun_refusal

    if plan.srun and (reason := srun_refusal(option_words(plan.srun), env)):
        raise _refusal("srun", reason, plan.srun, plan.profile, is_typed=bool(request.srun))
    # a cloned project may hold any program as .venv/bin/python, and nothing of it is run before a job is submitted
    if request.torchrun and not (plan.python.of_project or plan.python.uv_project):
        python = plan.python
        words = option_words(plan.torchrun)
        reason = torchrun_refusal(python.executable, words, env, prefix=python.prefix, variable=python.variable)
        if reason:
            raise _refusal("torchrun", reason, plan.torchrun, plan.profile, is_typed=True)


def _refusal(program: Program, reason: str, options: Options, profile: str, *, is_typed: bool) -> UsageError:
    name = next((name for name, _ in options if f"--{name}" in reason), None)
    close = similar_option(program, name) if name and "unrecogni" in reason else None
    where = f"--{program}" if is_typed else f"{program}: of profile {profile!r}"
    return UsageError(
        f"{where}: {program} refuses it: {reason}",
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
    fields = {"walltime_s": walltime_s, "account": config.account}
    return request.model_copy(
        update={name: value for name, value in fields.items() if value and getattr(request, name) is None}
    )


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The nodes that a submission leaves out because they failed, and what a person is told of it."""

    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def leave_out(request: JobRequest, profile: Profile, surroundings: Surroundings) -> LeftOut:
    """Return which nodes a job with --exclude-bad-nodes leaves out; none where it names its nodes itself."""
    wanted = request.exclude_bad_nodes and profile.scheduler == "slurm" and request.nodelist is None
    if not wanted or surroundings.failed_nodes is None:
        return LeftOut()
    known = surroundings.failed_nodes()
    if not known:
        return LeftOut()
    cluster: str | None = None
    with suppress(HpcrunError):
        cluster = surroundings.cluster() if surroundings.cluster else None
    nodes = tuple(dict.fromkeys(one.node for one in known if cluster is not None and one.cluster == cluster))
    text = ", ".join(nodes)
    notes = (f"excludes {text}, which failed in the last 24 hours (see hpcrun nodes); undo: hpcrun nodes forget",)
    return LeftOut(nodes, notes) if nodes else LeftOut()


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
