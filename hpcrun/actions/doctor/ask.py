"""doctor: the asking. Each question may take its ten seconds; doctor asks them all at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcrun.actions.background import BackgroundCall
from hpcrun.actions.doctor.python import Wanted, comes_with_the_job, wanted_by
from hpcrun.actions.doctor.slurm import SlurmAnswers
from hpcrun.actions.doctor.target import Target
from hpcrun.job.plan import Plan, PythonEnvironment
from hpcrun.job.profile import Profile
from hpcrun.runs.place import Mount, RunsFolderFacts, look_at_place, mount_of
from hpcrun.schedulers.client import ask_version, ping, try_directives
from hpcrun.schedulers.detect import SlurmSite, Trial
from hpcrun.schedulers.interpreter import DriverFacts, PythonFacts, ask_driver, ask_python
from hpcrun.schedulers.quota import Quota, ask_quota

_ONE_ANSWER_S = 11.0  # a little more than a command gets


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


def ask_slurm(site: SlurmSite, missing: tuple[str, ...], targets: Sequence[Target]) -> SlurmAnswers:
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


def ask_runs(root: Path, env: Mapping[str, str]) -> RunsAnswers:
    """Look at the runs folder, and ask for the quota there."""
    place = look_at_place(root)
    mount = place.mount
    return RunsAnswers(place, ask_quota(place.tested, (mount.source, mount.point), mount.kind, env) if mount else None)


def ask_job_python(python: PythonEnvironment, profile: Profile | None, env: Mapping[str, str]) -> PythonAnswers:
    """Ask the job's Python for its torch, and this machine for its driver."""
    driver = ask_driver(env)
    wanted = wanted_by(profile, driver)
    if comes_with_the_job(python, profile):
        return PythonAnswers(wanted, driver, None)
    facts = ask_python(
        python.executable,
        env,
        prefix=python.prefix,
        variable=python.variable,
        kernels=wanted.gpus and wanted.capability is not None,
    )
    return PythonAnswers(wanted, driver, facts, mount_of(Path(python.prefix)) if python.prefix else None)
