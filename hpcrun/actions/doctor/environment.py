"""doctor: what a profile puts into a job's environment: its variables and modules."""

from __future__ import annotations

from collections.abc import Sequence

from hpcrun.actions.doctor.check import PROFILE, Check, not_checked
from hpcrun.actions.profiles.variables import check_profile_env
from hpcrun.profiles.load import LoadedProfile
from hpcrun.schedulers.modules import ModuleFacts


def judge_variables(loaded: LoadedProfile) -> list[Check]:
    """Judge a profile's variables by the catalogue: one that submit refuses is red, one that it remarks on yellow."""
    checks = []
    for finding, key in check_profile_env(loaded):
        where = loaded.origins.get(key)
        seen = f"{finding.name}={finding.value}: {finding.problem}" + (f" ({where})" if where else "")
        fix = finding.instead or f"hpcrun profile env {finding.name} explains it"
        checks.append(Check(PROFILE, "variable", "red" if finding.impossible else "yellow", seen, fix))
    if checks:
        return checks
    profile = loaded.profile
    names = {**profile.fabric.env(), **profile.env}
    return [Check(PROFILE, "variables", "green", " ".join(names))] if names else []


def judge_modules(names: Sequence[str], facts: ModuleFacts | None) -> Check:
    """Judge whether this machine can load a profile's modules, one after the other as a job does.

    Args:
        facts: None where there was no answer.
    """
    every = " ".join(names)
    if facts is None or facts.problem:
        return not_checked(PROFILE, "modules", facts.problem if facts and facts.problem else "no answer")
    if not facts.command:
        fix = "source the site's module system in ~/.bashrc, or remove `modules` from the profile"
        return Check(PROFILE, "modules", "red", f"this machine has no module command, for {every}", fix)
    if facts.failed:
        seen = "; ".join(f"{name} cannot be loaded" + (f": {words}" if words else "")
                         for name, words in facts.failed.items())  # fmt: skip
        return Check(PROFILE, "modules", "red", seen, f"`module avail {next(iter(facts.failed))}` lists what there is")
    return Check(PROFILE, "modules", "green", f"{every}: loaded in this order")
