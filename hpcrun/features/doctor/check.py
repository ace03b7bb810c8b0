"""What doctor checks and finds.

That is the jobs by which doctor judges a profile, and one line for each check.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from hpcrun.actions.jobs.job_defaults import with_defaults
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.detect_types import best_partition, why_closed
from hpcrun.errors import HpcrunError, UsageError
from hpcrun.job.plan.job_plan import Plan, PythonEnvironment, build_plan
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.read_request import read_request
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.resources.shape import for_gpu_type
from hpcrun.schedulers.cluster_facts import ClusterFacts, NodeKind

Level = Literal["green", "yellow", "red"]
SLURM = "Slurm"
PROFILE = "Profile"
RUNS = "Runs folder"
PYTHON = "Python"
_NO_PYTHON = PythonEnvironment("python3", "not checked")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was checked."""

    group: str
    name: str
    level: Level  # red where jobs will fail, yellow where they may or where it could not be seen
    seen: str  # the finding
    fix: str | None = None  # one command or sentence; None where there is nothing to do here


@dataclass(frozen=True, slots=True)
class Checkup:
    """All checks, those of a group together."""

    profile: str | None  # the one that was checked, None where none is chosen
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is red."""
        return not any(check.level == "red" for check in self.checks)


def not_checked(group: str, name: str, why: str, fix: str | None = None) -> Check:
    """Return that something could not be checked."""
    return Check(group, name, "yellow", f"not checked: {why}", fix)


@dataclass(frozen=True, slots=True)
class Target:
    """The largest job on one node that a profile makes, for one GPU type."""

    named: str  # the profile as it was typed
    type: str | None  # the entry of ``gpu.types`` that it is for, None for the profile's own values
    profile: Profile  # as it is for that type
    plan: Plan
    smallest: Plan  # the plan of a job with one GPU

    def set_(self, key: str, value: object) -> str:
        """Return the command that changes a key of the profile, in the section of this type."""
        if self.type:
            key = f"gpu.types.{self.type}.{key.removeprefix('gpu.')}"
        setting = shlex.quote(f"{key}={value}")
        return f"hpcrun profile set {shlex.quote(self.named)} {setting}"

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions its job asks for; none for the cluster's default."""
        names = (self.plan.directive("partition") or "").split(",")
        return tuple(name for name in names if name)

    @property
    def label(self) -> str:
        """What stands before the names of its checks."""
        return f"{self.type} " if self.type else ""

    def has(self, kind: NodeKind) -> bool:
        """Return whether nodes have the GPUs of its job, whatever their number."""
        return not self.plan.shape.gpus_per_node or self.count(kind) > 0

    def count(self, kind: NodeKind) -> int:
        """Return how many GPUs of its type such a node has."""
        type_ = self.plan.shape.gpu_type
        return sum(count for name, count in kind.gpus if type_ in (None, name))

    def set_partition(self, facts: ClusterFacts, close: str | None = None) -> str | None:
        """Return the command that names an open partition with the GPUs of the job.

        At best, this is the partition ``close`` to the name. Return None if no such partition is
        open.
        """
        if (self.plan.directive("partition") or "") != (self.profile.partition or ""):
            return "SBATCH_PARTITION, or `sbatch:` in the profile, sets it"
        holding = {kind.partition for kind in facts.shown_kinds if self.has(kind)}
        best = best_partition(facts, {close} if close in holding else holding)
        if best and why_closed(best, facts) is None:
            return self.set_("partition", best.name)
        return None


def targets_of(
    named: str, profile: Profile, surroundings: Surroundings
) -> tuple[list[Target], list[Check]]:
    """Return the largest jobs of a profile, and the errors where no job is possible.

    The profile or SBATCH_TIMELIMIT can be the reason that no job is possible.
    """
    # what --gpus 4 means comes first: sbatch judges that one
    types: list[str | None] = sorted(profile.gpu.types, key=lambda type_: type_ != profile.gpu.type)
    targets = []
    wrong = []
    for type_ in types or [None]:
        try:
            targets.append(_target(named, type_, profile, surroundings))
        except HpcrunError as error:
            name = f"{type_} job" if type_ else "job"
            if isinstance(error, UsageError):
                fix = error.hint or "correct it, or unset it"
            else:
                fix = f"hpcrun profile show {shlex.quote(named)} --origin shows where it is set"
            wrong.append(Check(PROFILE, name, "red", error.message, fix))
    return targets, wrong


def _target(named: str, type_: str | None, profile: Profile, surroundings: Surroundings) -> Target:
    chosen = profile
    if type_:
        chosen = for_gpu_type(profile, read_request({"script": "doctor", "gpus": f"{type_}:1"}))
    plans = []
    most = chosen.gpu.per_node or 0
    for count in (most, min(1, most)):
        gpus = f"{type_}:{count}" if type_ else str(count)
        # one process: how ranks start changes nothing of what a node must have
        options = {
            "script": "doctor",
            "module": True,
            "gpus_per_node": gpus,
            "nodes": 1,
            "launcher": "python",
        }
        request, _ = with_defaults(read_request(options), chosen, surroundings)
        plans.append(build_plan(request, profile, python=_NO_PYTHON, machine=Machine(cpus=1)))
    return Target(named, type_, chosen, *plans)
