"""doctor: look at all that a job needs, in a few seconds and without a job."""

from __future__ import annotations

import os
import time
from pathlib import Path

from hpcrun.actions.background import BackgroundCall
from hpcrun.actions.doctor.ask import PythonAnswers, RunsAnswers, ask_job_python, ask_runs, ask_slurm
from hpcrun.actions.doctor.check import PROFILE, PYTHON, RUNS, SLURM, Check, Checkup, not_checked
from hpcrun.actions.doctor.container import judge_container
from hpcrun.actions.doctor.environment import judge_modules, judge_variables
from hpcrun.actions.doctor.profile import judge_profile
from hpcrun.actions.doctor.python import judge_driver, judge_prefix, judge_python, judge_torch
from hpcrun.actions.doctor.runs import judge_runs
from hpcrun.actions.doctor.slurm import SlurmAnswers, judge_slurm
from hpcrun.actions.doctor.target import Target, targets_of
from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.prepare import choose_profile
from hpcrun.actions.jobs.program import find_python
from hpcrun.errors import UsageError
from hpcrun.job.plan import PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.job.request import read_request
from hpcrun.profiles.load import load_profile
from hpcrun.runs.place import Mount
from hpcrun.schedulers.client import missing_commands
from hpcrun.schedulers.detect import SlurmSite
from hpcrun.schedulers.modules import try_modules

# Two commands of ten seconds may follow each other.
_ALL_WITHIN_S = 22.0


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
    name = _choose(asked, surroundings, no_sbatch="sbatch" in missing)
    loaded = load_profile(name, surroundings.profile_folders) if name else None
    profile = loaded.profile if loaded else None
    on_slurm = profile is None or profile.scheduler == "slurm"
    targets, wrong = targets_of(name, profile, surroundings) if name and profile and on_slurm else ([], [])
    python = find_python(read_request({"script": "doctor"}), profile or Profile(name="none"), surroundings)
    modules = profile.modules if profile else ()

    until_s = time.monotonic() + _ALL_WITHIN_S
    asked_slurm = BackgroundCall(lambda: ask_slurm(site, missing, targets)) if on_slurm else None
    asked_runs = BackgroundCall(lambda: ask_runs(runs, env))
    contained = profile is not None and profile.container.image is not None
    asked_python = BackgroundCall(lambda: ask_job_python(python, profile, env))
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
    found = asked_runs.answer(until_s - time.monotonic())
    checks += _runs(runs, found, on_slurm=on_slurm)
    said = found.place.mount if found else None
    if contained:  # torch is in the image; of this machine it takes a Python that starts the ranks
        checks.append(
            Check(PYTHON, "python", "green", f"{python.executable} starts the ranks; torch comes from the image")
        )
        return Checkup(name, tuple(checks))
    checks += _python(python, asked_python.answer(until_s - time.monotonic()), said, on_slurm=on_slurm)
    return Checkup(name, tuple(checks))


def _choose(asked: str | None, surroundings: Surroundings, *, no_sbatch: bool) -> str | None:
    """Return the profile that submit would choose, None where it would ask for one."""
    try:
        return choose_profile(asked, surroundings, lambda: "no sbatch" if no_sbatch else None)
    except UsageError:
        return None


def _no_profile() -> Check:
    return Check(
        PROFILE,
        "profile",
        "yellow",
        "not checked: no profile is chosen",
        "hpcrun doctor -P NAME; `hpcrun profile list` has the names",
    )


def _slurm(answers: SlurmAnswers | None) -> list[Check]:
    if answers is None:
        return [Check(SLURM, "controller", "red", "Slurm's commands do not respond", "`scontrol ping` by hand")]
    return judge_slurm(answers)


def _on_cluster(targets: list[Target], answers: SlurmAnswers | None) -> list[Check]:
    if answers is None or answers.facts is None:
        return [not_checked(PROFILE, "cluster", "partition, account, nodes and times, since Slurm does not answer")]
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
        return [not_checked(PYTHON, "python, torch", why), driver]
    checks = [judge_python(python, answers.facts)]
    if answers.facts.version is not None:
        checks += judge_prefix(python, answers.mount) if on_slurm and answers.mount != said else []
        checks += judge_torch(python, answers.facts, answers.wanted)
    return [*checks, driver]
