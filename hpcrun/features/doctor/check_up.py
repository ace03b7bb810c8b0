"""doctor: check all that a job needs, in a few seconds and without a job.

All questions are asked at the same time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
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
from hpcrun.features.doctor.check_profile import (
    judge_container,
    judge_messages,
    judge_modules,
    judge_profile,
    judge_variables,
)
from hpcrun.features.doctor.check_python import (
    comes_with_the_job,
    judge_compiled_files,
    judge_driver,
    judge_namesakes,
    judge_prefix,
    judge_python,
    judge_torch,
    wanted_by,
)
from hpcrun.features.doctor.check_site import SlurmAnswers, judge_runs, judge_slurm
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.read_request import read_request
from hpcrun.machine.host import ask_driver, ask_python, ask_quota, try_modules
from hpcrun.machine.namesakes import namesakes
from hpcrun.machine.process import SlurmSite
from hpcrun.profiles.load import LoadedProfile, load_profile
from hpcrun.runs.folder_checks import look_at_place, mount_of
from hpcrun.schedulers.away_nodes import AwaitedNodes, ListedNode, may_wait
from hpcrun.schedulers.client import ask_version, missing_commands, ping
from hpcrun.schedulers.cluster_facts import ask_facts
from hpcrun.schedulers.job_start import Trial, try_directives

# Two commands of ten seconds may follow each other.
_ALL_WITHIN_S = 22.0
_ONE_ANSWER_S = 11.0  # a little more than a command gets
_UNSEEN = not_checked(
    PROFILE, "cluster", "partition, account, nodes and times, since Slurm does not respond"
)
_SLURM_HANGS = Check(
    SLURM, "controller", "red", "Slurm's commands do not respond", "`scontrol ping` by hand"
)
_NO_PROFILE = not_checked(
    PROFILE,
    "profile",
    "no profile is set, and the cluster cannot be detected now",
    "hpcrun doctor -P NAME checks a profile of yours",
)


@dataclass(frozen=True, slots=True)
class _Part:
    """Checks that are made at the same time as those of the other parts."""

    check: Callable[[], list[Check]]
    late: Sequence[Check] = ()  # what to say if the checks do not end in time


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
    targets: list[Target] = []
    wrong: list[Check] = []
    if profile and on_slurm:
        targets, wrong = targets_of(name, profile, surroundings)
    request = read_request({"script": "doctor"})
    python = find_python(request, profile or Profile(name="none"), surroundings)

    def check_slurm() -> list[Check]:
        answers = _ask_slurm(site, missing, targets)
        checks = judge_slurm(answers)
        if loaded:
            checks = [*checks, *wrong, *_on_cluster(targets, answers)]
        return checks

    parts = []
    if on_slurm:
        unseen = [*wrong, _UNSEEN] if loaded else []
        parts.append(_Part(check_slurm, [_SLURM_HANGS, *unseen]))
    parts += _profile_parts(loaded, env)
    destinations = surroundings.config.notify
    if profile:
        destinations = (*destinations, *profile.notify)
    parts.append(_Part(partial(judge_messages, destinations, env)))
    fix = "its file system hangs; use another folder: HPCRUN_RUNS=/path"
    late_runs = Check(RUNS, "writable", "red", f"{runs} does not respond", fix)
    parts.append(_Part(lambda: _check_runs(runs, env, on_slurm=on_slurm), [late_runs]))
    parts.append(_Part(_checks_of_features))
    if profile and on_slurm:
        home = Path(env.get("HOME", "/"))
        parts.append(_Part(lambda: judge_compiled_files(profile, mount_of(home), env)))
    parts.append(_Part(lambda: judge_namesakes(namesakes(env.get("PATH", "")))))
    until_s = time.monotonic() + _ALL_WITHIN_S
    of_python = BackgroundCall(lambda: _check_python(python, profile, env, on_slurm=on_slurm))
    checks = _checks_of(parts, until_s)
    silent = not_checked(PYTHON, "python", f"{python.executable} does not respond")
    of_job = of_python.answer(until_s - time.monotonic()) or [silent]
    return Checkup(name if loaded else None, (*checks, *of_job))


def _checks_of(parts: Sequence[_Part], until_s: float) -> list[Check]:
    """Return the checks of all parts, which are made at the same time."""
    begun = [(BackgroundCall(part.check), part.late) for part in parts]
    checks: list[Check] = []
    for call, late in begun:
        answer = call.answer(until_s - time.monotonic())
        checks += late if answer is None else answer
    return checks


def _profile_parts(loaded: LoadedProfile | None, env: Mapping[str, str]) -> list[_Part]:
    """Return the checks of a profile that need no Slurm: variables, modules and container."""
    if loaded is None:
        return [_Part(lambda: [_NO_PROFILE])]
    profile = loaded.profile
    parts = [_Part(partial(judge_variables, loaded))]
    if profile.modules:
        late = judge_modules(profile.modules, None)
        parts.append(_Part(partial(_check_modules, profile.modules, env), [late]))
    parts.append(_Part(partial(judge_container, profile, env)))
    return parts


def _check_modules(modules: Sequence[str], env: Mapping[str, str]) -> list[Check]:
    return [judge_modules(modules, try_modules(modules, env))]


def _checks_of_features() -> list[Check]:
    checks = []
    for name in HOOKS:
        checks += [Check(*row) for row in hooks_of(name).doctor_checks()]
    return checks


def _on_cluster(targets: list[Target], answers: SlurmAnswers) -> list[Check]:
    if answers.facts is None:
        return [_UNSEEN]
    if not answers.facts.partitions:
        return [not_checked(PROFILE, "cluster", "Slurm lists no partitions")]
    return judge_profile(targets, answers.facts, answers.trials, answers.awaited)


def _check_runs(root: Path, env: Mapping[str, str], *, on_slurm: bool) -> list[Check]:
    place = look_at_place(root)
    mount = place.mount
    quota = None
    if mount:
        quota = ask_quota(place.tested, (mount.source, mount.point), mount.kind, env)
    return judge_runs(root, place, quota, on_slurm=on_slurm)


def _check_python(
    python: PythonEnvironment, profile: Profile | None, env: Mapping[str, str], *, on_slurm: bool
) -> list[Check]:
    """Return the checks of Python and of the driver.

    The Python is the one of the job, and the driver is the one of this machine.
    """
    if profile is not None and profile.container.image is not None:  # torch is in the image
        seen = f"{python.executable} starts the ranks; torch comes from the image"
        return [Check(PYTHON, "python", "green", seen)]
    driver = ask_driver(env)
    wanted = wanted_by(profile, driver)
    if comes_with_the_job(python, profile) or python.of_project:
        if python.of_project:
            activate = "activate it, and doctor checks it"
            why = f"only jobs run {python.executable} ({python.kind}); {activate}"
        else:
            why = f"{python.executable} comes from the profile's modules or set-up commands"
        unseen = not_checked(PYTHON, "python, torch", why)
        return [unseen, judge_driver(driver, None, wanted)]
    facts = ask_python(python, env, kernels=wanted.gpus and wanted.capability is not None)
    checks = [judge_python(python, facts)]
    if facts.version is not None:
        if on_slurm:
            checks += judge_prefix(python, mount_of(Path(python.prefix or "/")))
        checks += judge_torch(python, facts, wanted)
    checks.append(judge_driver(driver, facts, wanted))
    return checks


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
    trials = None
    if targets and "sbatch" not in missing:
        trials = BackgroundCall(lambda: _try(site, targets[0]))
    facts = ask_facts(site)
    client = version.answer(_ONE_ANSWER_S)
    judgement = trials.answer(_ONE_ANSWER_S) if trials else None
    awaited: tuple[ListedNode, ...] = ()
    if judgement and not judgement[0].accepted and may_wait(judgement[0].message):
        awaited = AwaitedNodes(site).of_job(targets[0].plan.directives)
    return SlurmAnswers(missing, client, answer, facts, judgement or (), awaited)


def _try(site: SlurmSite, target: Target) -> tuple[Trial, ...]:
    """Have sbatch judge the largest job on one node.

    Where sbatch refuses this job, sbatch also judges a job with a single GPU.
    """
    plan = target.plan
    smallest = target.smallest
    largest = try_directives(site, plan.directives, _form(plan))
    if largest.accepted or largest.silent or plan.directives == smallest.directives:
        return (largest,)
    return (largest, try_directives(site, smallest.directives, _form(smallest)))


def _form(plan: Plan) -> str:
    for key in ("gres", "gpus-per-node", "gpus"):
        value = plan.directive(key)
        if value:
            return f"--{key}={value}"
    return "a job without GPUs"
