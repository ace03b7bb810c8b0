"""doctor: check all that a job needs, in a few seconds and without a job.

All questions are asked at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hpcrun.actions.hooks import HOOKS, hooks_of
from hpcrun.actions.jobs.find_python import find_python
from hpcrun.actions.jobs.prepare import choose_profile
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.status.wait import BackgroundCall
from hpcrun.errors import SchedulerError
from hpcrun.features.doctor.check import (
    PROFILE,
    PYTHON,
    RUNS,
    SLURM,
    Check,
    Checkup,
    Target,
    not_checked,
    targets_of,
)
from hpcrun.features.doctor.profile import (
    judge_container,
    judge_messages,
    judge_modules,
    judge_profile,
    judge_variables,
)
from hpcrun.features.doctor.python import (
    comes_with_the_job,
    judge_driver,
    judge_prefix,
    judge_python,
    judge_torch,
    wanted_by,
)
from hpcrun.features.doctor.site import SlurmAnswers, judge_runs, judge_slurm
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.read_request import read_request
from hpcrun.machine.host import ask_driver, ask_python, ask_quota, try_modules
from hpcrun.machine.process import SlurmSite
from hpcrun.profiles.load import load_profile
from hpcrun.runs.folder_checks import look_at_place, mount_of
from hpcrun.schedulers.client import ask_version, missing_commands, ping
from hpcrun.schedulers.cluster_facts import ask_facts
from hpcrun.schedulers.job_start import Trial, try_directives

# Two commands of ten seconds may follow each other.
_ALL_WITHIN_S = 22.0
_ONE_ANSWER_S = 11.0  # a little more than a command gets
_UNSEEN = not_checked(
    PROFILE, "cluster", "partition, account, nodes and times, since Slurm does not respond"
)


def check_up(profile_name: str | None, surroundings: Surroundings, runs: Path) -> Checkup:
    """Check Slurm, a profile, the runs folder and the job's Python.

    ``profile_name`` is None for the profile that submit would choose.
    """
    env = surroundings.env
    site = SlurmSite(env)
    missing = missing_commands(env)
    name = choose_profile(
        profile_name, surroundings, lambda: "no sbatch" if "sbatch" in missing else None
    )
    loaded = None
    # it is to be detected, and Slurm does not respond: other checks say that
    with suppress(SchedulerError):
        loaded = load_profile(name, surroundings.profile_folders)
    profile = loaded.profile if loaded else None
    on_slurm = profile is None or profile.scheduler == "slurm"
    targets, wrong = targets_of(name, profile, surroundings) if profile and on_slurm else ([], [])
    python = find_python(
        read_request({"script": "doctor"}), profile or Profile(name="none"), surroundings
    )
    modules = profile.modules if profile else ()

    def check_slurm() -> list[Check]:
        answers = _ask_slurm(site, missing, targets)
        checks = judge_slurm(answers)
        if loaded:
            checks = [*checks, *wrong, *_on_cluster(targets, answers)]
        return checks

    def check_messages() -> list[Check]:
        of_profile = profile.notify if profile else ()
        return judge_messages((*surroundings.config.notify, *of_profile), env)

    hangs = Check(
        SLURM, "controller", "red", "Slurm's commands do not respond", "`scontrol ping` by hand"
    )
    why = "no profile is set, and the cluster cannot be detected now"
    no_profile = not_checked(
        PROFILE, "profile", why, "hpcrun doctor -P NAME checks a profile of yours"
    )
    fix = "its file system hangs; use another folder: HPCRUN_RUNS=/path"
    no_answer = Check(RUNS, "writable", "red", f"{runs} does not respond", fix)
    # what checks, and what to say if it is late
    parts: list[tuple[Callable[[], list[Check]], list[Check]]] = []
    if on_slurm:
        unseen = [*wrong, _UNSEEN] if loaded else []
        parts.append((check_slurm, [hangs, *unseen]))
    parts.append((lambda: judge_variables(loaded) if loaded else [no_profile], []))
    if modules:
        late_modules = [judge_modules(modules, None)]
        parts.append((lambda: [judge_modules(modules, try_modules(modules, env))], late_modules))
    if profile:
        parts.append((lambda: judge_container(profile, env), []))
    parts += [
        (check_messages, []),
        (lambda: _check_runs(runs, env, on_slurm=on_slurm), [no_answer]),
        (_checks_of_features, []),
    ]
    until_s = time.monotonic() + _ALL_WITHIN_S
    of_python = BackgroundCall(lambda: _check_python(python, profile, env, on_slurm=on_slurm))
    begun = [(BackgroundCall(part), late) for part, late in parts]
    checks: list[Check] = []
    for call, late in begun:
        answer = call.answer(until_s - time.monotonic())
        checks += late if answer is None else answer
    silent = not_checked(PYTHON, "python", f"{python.executable} does not respond")
    of_job, has_torch = of_python.answer(until_s - time.monotonic()) or ([silent], False)
    return Checkup(name if loaded else None, (*checks, *of_job), has_torch)


def _checks_of_features() -> list[Check]:
    return [Check(*row) for name in HOOKS for row in hooks_of(name).doctor_checks()]


def _on_cluster(targets: list[Target], answers: SlurmAnswers) -> list[Check]:
    if answers.facts is None:
        return [_UNSEEN]
    if not answers.facts.partitions:
        return [not_checked(PROFILE, "cluster", "Slurm lists no partitions")]
    return judge_profile(targets, answers.facts, answers.trials)


def _check_runs(root: Path, env: Mapping[str, str], *, on_slurm: bool) -> list[Check]:
    place = look_at_place(root)
    mount = place.mount
    if mount:
        quota = ask_quota(place.tested, (mount.source, mount.point), mount.kind, env)
    else:
        quota = None
    return judge_runs(root, place, quota, on_slurm=on_slurm)


def _check_python(
    python: PythonEnvironment, profile: Profile | None, env: Mapping[str, str], *, on_slurm: bool
) -> tuple[list[Check], bool]:
    """Return the checks of Python and of the driver, and whether torch can be imported.

    The Python is the one of the job, and the driver is the one of this machine.
    """
    if profile is not None and profile.container.image is not None:  # torch is in the image
        seen = f"{python.executable} starts the ranks; torch comes from the image"
        return [Check(PYTHON, "python", "green", seen)], False
    driver = ask_driver(env)
    wanted = wanted_by(profile, driver)
    if comes_with_the_job(python, profile) or python.of_project:
        why = f"{python.executable} comes from the profile's modules or set-up commands"
        if python.of_project:
            why = (
                f"only jobs run {python.executable} ({python.kind}); activate it, and doctor "
                "checks it"
            )
        return [
            not_checked(PYTHON, "python, torch", why),
            judge_driver(driver, None, wanted),
        ], False
    facts = ask_python(python, env, kernels=wanted.gpus and wanted.capability is not None)
    checks = [judge_python(python, facts)]
    if facts.version is not None:
        checks += judge_prefix(python, mount_of(Path(python.prefix or "/"))) if on_slurm else []
        checks += judge_torch(python, facts, wanted)
    return [*checks, judge_driver(driver, facts, wanted)], bool(facts.torch) and not facts.problem


def _ask_slurm(
    site: SlurmSite, missing: tuple[str, ...], targets: Sequence[Target]
) -> SlurmAnswers:
    """Ask whether the controller answers and, only if it answers, ask everything else.

    So nobody waits for a controller that is away.
    """
    if "scontrol" in missing:
        return SlurmAnswers(missing)
    version = BackgroundCall(lambda: ask_version(site))
    answer = ping(site)
    if answer.away:
        return SlurmAnswers(missing, version.answer(_ONE_ANSWER_S), answer)
    trials = BackgroundCall(
        lambda: _try(site, targets[0]) if targets and "sbatch" not in missing else ()
    )
    facts = ask_facts(site)
    return SlurmAnswers(
        missing, version.answer(_ONE_ANSWER_S), answer, facts, trials.answer(_ONE_ANSWER_S) or ()
    )


def _try(site: SlurmSite, target: Target) -> tuple[Trial, ...]:
    """Have sbatch judge the largest job on one node.

    Where sbatch refuses this job, sbatch also judges a job with a single GPU.
    """
    largest = try_directives(site, target.plan.directives, _form(target.plan))
    if largest.accepted or largest.silent or target.plan.directives == target.smallest.directives:
        return (largest,)
    return (largest, try_directives(site, target.smallest.directives, _form(target.smallest)))


def _form(plan: Plan) -> str:
    for key in ("gres", "gpus-per-node", "gpus"):
        value = plan.directive(key)
        if value:
            return f"--{key}={value}"
    return "a job without GPUs"
