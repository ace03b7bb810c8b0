"""Preparing a job: request → profile → plan → script. Nothing is submitted."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.hooks import hooks_of
from hpcrun.actions.jobs.choices import settle
from hpcrun.actions.jobs.program import (
    changes_path,
    check_program,
    find_batch_script,
    find_python,
    missing_packages,
    with_container,
    with_launcher,
)
from hpcrun.actions.jobs.staged_data import find_data
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.variables import check_job_env
from hpcrun.errors import UsageError
from hpcrun.job.batch.sbatch_input import apply_sbatch_env
from hpcrun.job.launch_options import Options, Program, similar_option
from hpcrun.job.plan.job_plan import (
    Plan,
    PythonEnvironment,
    Snapshot,
    build_plan,
    flight_recorder_env,
    job_env,
)
from hpcrun.job.plan.plan_notes import plan_notes
from hpcrun.job.plan.role_ranks import requests_of, with_programs, with_size
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.job_request import JobRequest, check_secrets
from hpcrun.job.request.notify_options import Notify
from hpcrun.job.resources.container import image_of
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.resources.shape import for_gpu_type, option_words
from hpcrun.job.script import render_script
from hpcrun.machine.process import clean_env
from hpcrun.profiles.config import DETECTED, Config
from hpcrun.profiles.folders import load_templates
from hpcrun.profiles.load import LoadedProfile, load_profile
from hpcrun.schedulers.srun_options import srun_refusal

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
        batch = self.plan.batch
        env = {
            **job_env(self.request, self.profile.profile),
            **dict(batch.secrets if batch else ()),
        }
        return {name: env[name] for name, value in self.plan.env if value is None and name in env}


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
    loaded = load_profile(profile_name, surroundings.profile_folders)
    profile, env = loaded.profile, surroundings.env
    request = _with_sweep_file(request, surroundings.cwd)
    request = with_size(request) if request.roles else request
    check_secrets(
        request, {**env, **profile.env, **dict(request.env)}, {*profile.secrets, *request.secrets}
    )
    notes = [*surroundings.typed.notes]
    if request.roles:
        script = None
    else:
        script = find_batch_script(request, surroundings)
    if profile.scheduler == "slurm":
        request, shell_notes = apply_sbatch_env(request, env)
        notes += shell_notes
        # the lines of a batch script decide instead of the configuration
        if not script:
            request = _with_config(request, surroundings.config, profile)
    if script:
        request = _as_script_asks(request, script, surroundings)
        python = find_python(request, profile, surroundings)
        kind = "for hpcrun's programs; the script has its own"
        python = replace(python, kind=kind, prefix=None, of_project=False)
    else:
        if request.roles:
            ranks = {"nproc_per_node": request.nproc_per_node, "launcher": request.launcher}
        else:
            ranks = {}
        # of roles, ranks and launcher hold only for some
        settled = settle(request.model_copy(update=dict.fromkeys(ranks)), loaded, surroundings)
        request = settled.request.model_copy(update=ranks)
        loaded, profile = settled.loaded, settled.loaded.profile
        notes += settled.notes
        request = with_container(request, profile, surroundings)
        in_container = image_of(request, profile) is not None
        path_may_change = changes_path(request, profile) or in_container
        request, launcher_notes = _with_programs(
            request, profile, surroundings, path_may_change, in_container
        )
        python = find_python(request, profile, surroundings, in_container=in_container)
    request, snapshot, listing = _with_snapshot(request, python, surroundings)
    notes += listing.secret_notes() if listing else ()
    notify, mail, message_notes = _messages(request, profile, surroundings)
    if script:
        from hpcrun.job.plan.batch_plan import plan_script

        plan = plan_script(request, profile, script, python=python, notify=notify, mail=mail)
        notes += [*message_notes, *plan.notes]
    else:
        failed = failed_nodes(request, profile, surroundings)
        plan = build_plan(
            request.model_copy(
                update={"exclude": ",".join(filter(None, (request.exclude, *failed))) or None}
            ),
            profile,
            python=python,
            machine=machine() if profile.scheduler == "local" else Machine(cpus=1),
            notify=notify,
            mail=mail,
        )
        _check_launch_options(request, plan, surroundings)
        if failed:
            when = "which failed in the last 24 hours (see hpcrun nodes)"
            notes.append(f"excludes {', '.join(failed)}, {when}; undo: hpcrun nodes forget")
        notes += [*message_notes, *launcher_notes, *plan.notes]
        notes += plan_notes(plan, for_gpu_type(profile, request), env)
        if not path_may_change:
            launchers = {plan.shape.launcher, *(role.launcher for role in plan.roles)}
            variables = {name: value for name, value in plan.env if value is not None}
            notes += missing_packages(launchers, plan.python, {**env, **variables})
        notes += check_job_env(request, loaded, plan.shape.gpu_type)
    added = flight_recorder_env((*clean_env(env), *dict(plan.env)))
    plan = replace(
        plan,
        notes=tuple(notes),
        snapshot=snapshot,
        added=added,
        stage=_data(request, surroundings.cwd),
    )
    text = render_script(plan, load_templates(surroundings.template_folders))
    return Prepared(request, loaded, plan, text, listing)


def with_defaults(request: JobRequest, profile: Profile, surroundings: Surroundings) -> JobRequest:
    """Fill in values that the request of a Slurm job does not have.

    The values come from SBATCH_* and the configuration.
    """
    if profile.scheduler != "slurm":
        return request
    return _with_config(
        apply_sbatch_env(request, surroundings.env)[0], surroundings.config, profile
    )


def _with_config(request: JobRequest, config: Config, profile: Profile) -> JobRequest:
    """Fill in the configured time and account.

    Both come after the options and the environment, and before the profile.
    """
    walltime_s, most = config.walltime_s, profile.time.max
    if walltime_s and most:
        walltime_s = min(walltime_s, most)  # only a default: within the profile's limit
    fields = {"walltime_s": walltime_s, "account": config.account}
    return request.model_copy(
        update={
            name: value
            for name, value in fields.items()
            if value and getattr(request, name) is None
        }
    )


def _with_sweep_file(request: JobRequest, cwd: Path) -> JobRequest:
    if request.sweep_file is None:
        return request
    if request.sweep:
        raise UsageError(
            "--sweep and --sweep-file cannot be combined", hint="write all parameters to the file"
        )
    from hpcrun.profiles.sweep_file import load_sweep_file  # few jobs are sweeps

    rows = load_sweep_file(cwd / os.path.expanduser(request.sweep_file))
    return request.model_copy(update={"sweep": rows, "sweep_file": None})


def _with_programs(
    request: JobRequest,
    profile: Profile,
    surroundings: Surroundings,
    path_may_change: bool,
    in_container: bool,
) -> tuple[JobRequest, list[str]]:
    """Return the request with its program as the job calls the program, and notes on launchers.

    A request with roles has the programs of the roles.

    Raises:
        UsageError: the program of a role is a batch script.
    """
    done = list[JobRequest]()
    notes = list[str]()
    for number, one in enumerate(requests_of(request) or [request]):
        if request.roles and find_batch_script(one, surroundings):
            raise UsageError(
                f"{one.script} is a batch script, which cannot be the program of a role",
                hint=f"without its #SBATCH lines: bash {one.script}",
            )
        of_role = (
            bool(request.roles)
            and request.launcher is None
            and request.roles[number].launcher is None
        )
        changed, added = with_launcher(one, profile, surroundings, of_role=of_role)
        done.append(
            check_program(
                changed, surroundings, path_may_change=path_may_change, in_container=in_container
            )
        )
        notes += added
    return (with_programs(request, done) if request.roles else done[0]), notes


def _as_script_asks(
    request: JobRequest, script: BatchScript, surroundings: Surroundings
) -> JobRequest:
    """Return the request with the folder and the task ids of a batch script.

    Raises:
        UsageError: the folder of the script's --chdir does not exist.
    """
    from hpcrun.job.plan.batch_plan import with_array

    if script.options.workdir and not request.workdir:
        folder = str(surroundings.cwd / script.options.workdir)
        if not os.path.isdir(folder):
            raise UsageError(
                f"{script.name}: --chdir={script.options.workdir}: there is no such folder"
            )
        request = request.model_copy(update={"workdir": folder})
    return with_array(request, script)


def _with_snapshot(
    request: JobRequest, python: PythonEnvironment, surroundings: Surroundings
) -> tuple[JobRequest, Snapshot | None, Listing | None]:
    """Return the request with its script as called in the copy of the code.

    Returns:
        The request, the copy, and the list of the copy's files; no copy and no list without a
            snapshot.

    Raises:
        UsageError: --snapshot-include is used without --snapshot.
    """
    if not request.snapshot:
        if request.snapshot_include:
            raise UsageError("--snapshot-include has no effect without --snapshot")
        return request, None, None
    from hpcrun.actions.jobs.snapshot import find_tree, list_code, place_in_snapshot

    tree = find_tree(Path(request.workdir or surroundings.cwd), surroundings.env)
    done = [place_in_snapshot(one, tree, python)[0] for one in requests_of(request)]
    request, snapshot = place_in_snapshot(request, tree, python)
    request = with_programs(request, done) if done else request
    return request, snapshot, list_code(tree, request.snapshot_include, surroundings.runs)


def _data(request: JobRequest, cwd: Path) -> tuple[tuple[str, str, int | None], ...]:
    # a check of nodes needs no data
    return find_data(
        () if request.preflight == "only" else request.stage, Path(request.workdir or cwd)
    )


def _messages(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[Notify | None, dict[str, str], list[str]]:
    """Return the messages that hpcrun sends, the directives for mail from Slurm, and notes.

    Raises:
        UsageError: --notify-on has no destination, a variable of a --notify destination is not set,
            or mail needs Slurm and the job has no Slurm.
    """
    config = surroundings.config
    # a check of nodes sends no messages: its user waits for it
    if request.preflight == "only":
        known: tuple[str, ...] = ()
    else:
        known = (*config.notify, *profile.notify)
    if not (request.notify or known):
        if request.notify_on:
            raise UsageError(
                "--notify-on has no effect: no destination is configured", hint="add --notify URL"
            )
        return None, {}, []
    from hpcrun.job.request.notify_options import (
        decide_notify,
        is_slurms_mail,
        mail_types,
        variables_in,
    )

    events = request.notify_on or config.notify_on or profile.notify_on
    waiting_s = config.notify_waiting_s or profile.notify_waiting
    notify, address = decide_notify(request.notify, known, events, waiting_s)
    notes = []
    for to in notify.to if notify else ():
        missing = [name for name in variables_in(to) if not surroundings.env.get(name)]
        if missing:
            if to in request.notify:
                raise UsageError(
                    f"--notify: {missing[0]} is not set",
                    hint=f"read -rs {missing[0]} && export {missing[0]}",
                )
            notes.append(f"no messages to {to}: {missing[0]} is not set")
        elif to in request.notify:
            hooks_of("notify").check_destination(to, surroundings.env)
    if profile.scheduler != "slurm" and address:
        if any(is_slurms_mail(to) for to in request.notify):
            raise UsageError(
                f"--notify mailto:{address}: Slurm sends this mail, and this job runs without "
                "Slurm",
                hint="name a mail server: --notify 'mailto://SERVER:25?from=ADDRESS&to=ADDRESS'",
            )
        address = None
    return notify, {"mail-user": address, "mail-type": mail_types(events)} if address else {}, notes


def failed_nodes(
    request: JobRequest, profile: Profile, surroundings: Surroundings
) -> tuple[str, ...]:
    """Return the nodes that a job with --exclude-bad-nodes excludes.

    The result is empty if the request names the nodes.
    """
    wanted = request.exclude_bad_nodes and profile.scheduler == "slurm" and request.nodelist is None
    return surroundings.failed_nodes() if wanted else ()


def _check_launch_options(request: JobRequest, plan: Plan, surroundings: Surroundings) -> None:
    """Refuse options that this machine's srun or the job's torchrun does not know.

    An outdated uv.lock is refused too. srun answers in milliseconds, torchrun in seconds. So
    torchrun is asked only for --torchrun: a profile's options are the same for every job.

    Raises:
        UsageError: the project's uv.lock is outdated.
        UsageError: srun or torchrun does not know an option.
    """  # noqa: DOC501
    env, python = surroundings.env, plan.python
    if not (plan.srun or request.torchrun or python.uv_project):
        return
    from hpcrun.machine.host import torchrun_refusal, uv_refusal

    if python.uv_project and (reason := uv_refusal(python.uv_project, env)):
        raise UsageError(
            f"--uv: {reason}", hint=f"uv lock --project {shlex.quote(python.uv_project)}"
        )
    if plan.srun and (reason := srun_refusal(option_words(plan.srun), env)):
        raise _refusal("srun", reason, plan.srun, plan.profile, is_typed=bool(request.srun))
    # a cloned project may hold any program as .venv/bin/python, and nothing of it is run before a
    # job is submitted
    if request.torchrun and not (python.of_project or python.uv_project):
        words = option_words(plan.torchrun)
        reason = torchrun_refusal(python, words, env)
        if reason:
            raise _refusal("torchrun", reason, plan.torchrun, plan.profile, is_typed=True)


def _refusal(
    program: Program, reason: str, options: Options, profile: str, *, is_typed: bool
) -> UsageError:
    name = next((name for name, _ in options if f"--{name}" in reason), None)
    if name and "unrecogni" in reason:
        close = similar_option(program, name)
    else:
        close = None
    if is_typed:
        where = f"--{program}"
    else:
        where = f"{program}: of profile {profile!r}"
    return UsageError(
        f"{where}: {program} refuses it: {reason}",
        hint=f"did you mean {close}?"
        if close and close != name
        else f"`{program} --help` lists its options",
    )
