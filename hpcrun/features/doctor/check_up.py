"""doctor: look at all that a job needs, in a few seconds and without a job: all is asked at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.background import BackgroundCall
from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.prepare import choose_profile
from hpcrun.actions.jobs.program import find_python
from hpcrun.errors import SchedulerError
from hpcrun.features.doctor.check import PROFILE, PYTHON, RUNS, SLURM, Check, Checkup, not_checked
from hpcrun.features.doctor.profile import (
    judge_container,
    judge_messages,
    judge_modules,
    judge_profile,
    judge_variables,
)
from hpcrun.features.doctor.python import (
    Wanted,
    comes_with_the_job,
    judge_driver,
    judge_prefix,
    judge_python,
    judge_torch,
    wanted_by,
)
from hpcrun.features.doctor.runs import judge_runs
from hpcrun.features.doctor.slurm import SlurmAnswers, judge_slurm
from hpcrun.features.doctor.target import Target, targets_of
from hpcrun.job.plan import Plan, PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.job.request import read_request
from hpcrun.profiles.load import LoadedProfile, load_profile
from hpcrun.runs.file_system import Mount, RunsFolderFacts, look_at_place, mount_of
from hpcrun.schedulers.client import ask_version, missing_commands, ping, try_directives
from hpcrun.schedulers.cluster_facts import SlurmSite, Trial
from hpcrun.schedulers.host import Quota, ask_quota, try_modules
from hpcrun.schedulers.software import DriverFacts, PythonFacts, ask_driver, ask_python

# Two commands of ten seconds may follow each other.
_ALL_WITHIN_S = 22.0
_ONE_ANSWER_S = 11.0  # a little more than a command gets


def check_up(asked: str | None, surroundings: Surroundings, *, site: SlurmSite, runs: Path) -> Checkup:
    """Look at Slurm, a profile, the runs folder and the job's Python.

    Args:
        asked: a profile; None for the one that submit would choose.
        runs: the runs folder.

    Raises:
        ProfileError: the profile is missing or wrong.
    """
    env = surroundings.env
    missing = missing_commands(env)
    name = choose_profile(asked, surroundings, lambda: "no sbatch" if "sbatch" in missing else None)
    loaded = _load(name, surroundings)
    checked = name if loaded else None
    profile = loaded.profile if loaded else None
    on_slurm = profile is None or profile.scheduler == "slurm"
    targets, wrong = targets_of(name, profile, surroundings) if profile and on_slurm else ([], [])
    python = find_python(read_request({"script": "doctor"}), profile or Profile(name="none"), surroundings)
    modules = profile.modules if profile else ()

    until_s = time.monotonic() + _ALL_WITHIN_S
    asked_slurm = BackgroundCall(lambda: _ask_slurm(site, missing, targets)) if on_slurm else None
    asked_runs = BackgroundCall(lambda: _ask_runs(runs, env))
    contained = profile is not None and profile.container.image is not None
    asked_python = BackgroundCall(lambda: _ask_job_python(python, profile, env))
    asked_modules = BackgroundCall(lambda: try_modules(modules, env)) if modules else None

    checks: list[Check] = []
    if asked_slurm is not None:
        answers = asked_slurm.answer(until_s - time.monotonic())
        checks += _slurm(answers)
        checks += [*wrong, *_on_cluster(targets, answers)] if loaded else []
    checks += judge_variables(loaded) if loaded else [_no_profile()]
    if asked_modules is not None:
        checks.append(judge_modules(modules, asked_modules.answer(until_s - time.monotonic())))
    checks += judge_container(profile, env) if profile else []
    checks += judge_messages((*surroundings.config.notify, *(profile.notify if profile else ())), env)
    found = asked_runs.answer(until_s - time.monotonic())
    checks += _runs(runs, found, on_slurm=on_slurm)
    said = found.place.mount if found else None
    if contained:  # torch is in the image; of this machine it takes a Python that starts the ranks
        checks.append(
            Check(PYTHON, "python", "green", f"{python.executable} starts the ranks; torch comes from the image")
        )
        return Checkup(checked, tuple(checks))
    answers_of_python = asked_python.answer(until_s - time.monotonic())
    checks += _python(python, answers_of_python, said, on_slurm=on_slurm)
    facts = answers_of_python.facts if answers_of_python else None
    return Checkup(checked, tuple(checks), has_torch=facts is not None and bool(facts.torch) and not facts.problem)


def _load(name: str, surroundings: Surroundings) -> LoadedProfile | None:
    """Return the profile, None if it is to be detected and Slurm does not respond: other checks say that."""
    try:
        return load_profile(name, surroundings.profile_folders)
    except SchedulerError:
        return None


def _no_profile() -> Check:
    why = "no profile is set, and the cluster cannot be detected now"
    return not_checked(PROFILE, "profile", why, "hpcrun doctor -P NAME checks a profile of yours")


def _slurm(answers: SlurmAnswers | None) -> list[Check]:
    if answers is None:
        return [Check(SLURM, "controller", "red", "Slurm's commands do not respond", "`scontrol ping` by hand")]
    return judge_slurm(answers)


def _on_cluster(targets: list[Target], answers: SlurmAnswers | None) -> list[Check]:
    if answers is None or answers.facts is None:
        return [not_checked(PROFILE, "cluster", "partition, account, nodes and times, since Slurm does not respond")]
    if not answers.facts.partitions:
        return [not_checked(PROFILE, "cluster", "Slurm lists no partitions")]
    return judge_profile(targets, answers.facts, answers.trials)


def _runs(root: Path, answers: RunsAnswers | None, *, on_slurm: bool) -> list[Check]:
    if answers is None:
        fix = "its file system hangs; use another folder: HPCRUN_RUNS=/path"
        return [Check(RUNS, "writable", "red", f"{root} does not respond", fix)]
    return judge_runs(root, answers.place, answers.quota, uid=os.getuid(), on_slurm=on_slurm)


def _python(
    python: PythonEnvironment, answers: PythonAnswers | None, said: Mount | None, *, on_slurm: bool
) -> list[Check]:
    """Judge the job's Python; ``said`` is the file system of which enough has been said."""
    if answers is None:
        return [not_checked(PYTHON, "python", f"{python.executable} does not respond")]
    driver = judge_driver(answers.driver, answers.facts, answers.wanted)
    if answers.facts is None:
        why = f"{python.executable} comes from the profile's modules or set-up commands"
        if python.of_project:
            why = f"only jobs run {python.executable} ({python.kind}); activate it, and doctor checks it"
        return [not_checked(PYTHON, "python, torch", why), driver]
    checks = [judge_python(python, answers.facts)]
    if answers.facts.version is not None:
        checks += judge_prefix(python, answers.mount) if on_slurm and answers.mount != said else []
        checks += judge_torch(python, answers.facts, answers.wanted)
    return [*checks, driver]


@dataclass(frozen=True, slots=True)
class RunsAnswers:
    """What was found at the runs folder."""

    place: RunsFolderFacts
    quota: Quota | None


@dataclass(frozen=True, slots=True)
class PythonAnswers:
    """What the job's Python and this machine's driver said.

    Attributes:
        facts: None where the job brings its Python itself.
        mount: what its environment lies on.
    """

    wanted: Wanted
    driver: DriverFacts
    facts: PythonFacts | None
    mount: Mount | None = None


def _ask_slurm(site: SlurmSite, missing: tuple[str, ...], targets: Sequence[Target]) -> SlurmAnswers:
    """Ask whether the controller answers and, only if it does, everything else: nobody waits for one that is away.

    Args:
        missing: commands that are not on PATH.
        targets: the first one's job is shown to sbatch.
    """
    if "scontrol" in missing:
        return SlurmAnswers(missing)
    version = BackgroundCall(lambda: ask_version(site))
    answer = ping(site)
    if answer.away:
        return SlurmAnswers(missing, version.answer(_ONE_ANSWER_S), answer)
    trials = BackgroundCall(lambda: _try(site, targets[0]) if targets and "sbatch" not in missing else ())
    facts = site.ask()
    return SlurmAnswers(missing, version.answer(_ONE_ANSWER_S), answer, facts, trials.answer(_ONE_ANSWER_S) or ())


def _try(site: SlurmSite, target: Target) -> tuple[Trial, ...]:
    """Have sbatch judge the largest job on one node and, where it refuses that, one with a single GPU."""
    largest = try_directives(site, target.plan.directives, _form(target.plan))
    if largest.accepted or not largest.answered or target.plan.directives == target.smallest.directives:
        return (largest,)
    return (largest, try_directives(site, target.smallest.directives, _form(target.smallest)))


def _form(plan: Plan) -> str:
    for key in ("gres", "gpus-per-node", "gpus"):
        if value := plan.directive(key):
            return f"--{key}={value}"
    return "a job without GPUs"


def _ask_runs(root: Path, env: Mapping[str, str]) -> RunsAnswers:
    place = look_at_place(root)
    mount = place.mount
    return RunsAnswers(place, ask_quota(place.tested, (mount.source, mount.point), mount.kind, env) if mount else None)


def _ask_job_python(python: PythonEnvironment, profile: Profile | None, env: Mapping[str, str]) -> PythonAnswers:
    driver = ask_driver(env)
    wanted = wanted_by(profile, driver)
    if comes_with_the_job(python, profile) or python.of_project:
        return PythonAnswers(wanted, driver, None)
    facts = ask_python(
        python.executable,
        env,
        prefix=python.prefix,
        variable=python.variable,
        kernels=wanted.gpus and wanted.capability is not None,
    )
    return PythonAnswers(wanted, driver, facts, mount_of(Path(python.prefix)) if python.prefix else None)
