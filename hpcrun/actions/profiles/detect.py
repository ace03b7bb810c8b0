"""profile detect: ask the cluster what it is, and write that down as a profile."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.profiles.detect_types import gpu_offers
from hpcrun.actions.profiles.detect_yaml import DetectedCluster, profile_text
from hpcrun.errors import HpcrunError, ProfileError, SchedulerError, UsageError
from hpcrun.job.profile import Profile
from hpcrun.profiles.folder import Source
from hpcrun.profiles.load import SUFFIX, load_text
from hpcrun.profiles.save import replace_text
from hpcrun.schedulers.detect import ClusterFacts, SlurmSite

# What is the same on every Slurm cluster.
_BASE = "base/slurm"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Detected:
    """A profile that was detected.

    Attributes:
        warnings: what could not be asked.
        path: where it was written, None where it was not.
    """

    text: str
    profile: Profile
    warnings: tuple[str, ...]
    path: Path | None = None


def detect(site: SlurmSite, surroundings: Surroundings) -> Detected:
    """Ask the cluster, and return the profile's text, which loads.

    Raises:
        SchedulerError: nothing answered.
    """
    facts = site.ask()
    if not facts.partitions and not facts.kinds:
        raise SchedulerError(_silence(facts), hint="run it on a machine where `sinfo` works")
    offers = gpu_offers(facts)
    trials = site.try_gpu_forms(offers[0].type, offers[0].partition.name) if offers else []
    found = DetectedCluster(
        facts,
        offers,
        trials,
        site.look_here(surroundings.host),
        in_job="SLURM_JOB_ID" in surroundings.env,
        base=_BASE,
    )
    text = profile_text(found)
    profile = _loaded(text, surroundings.profile_folders)
    warnings = [f"{command}: {why}" for command, why in facts.problems.items()]
    if trials and not any(trial.accepted for trial in trials):
        warnings.append(f"sbatch --test-only: {trials[0].said or 'no answer'}")
    return Detected(text, profile, tuple(warnings))


def detect_and_write(site: SlurmSite, surroundings: Surroundings, *, name: str, folder: Path, force: bool) -> Detected:
    """Ask the cluster and write the profile of that name to a folder.

    Raises:
        UsageError, ProfileError: the name cannot be, is taken, or the file cannot be written.
        SchedulerError: nothing answered.
    """
    path = new_profile_path(name, folder, force=force)  # before a cluster is asked for nothing
    found = detect(site, surroundings)
    replace_text(path, found.text)
    return replace(found, path=path)


def _silence(facts: ClusterFacts) -> str:
    said = "\n".join(f"{command}: {why}" for command, why in facts.problems.items())
    return f"Slurm does not respond:\n{said}" if said else "this cluster has no partitions"


def _loaded(text: str, folders: Sequence[Source]) -> Profile:
    """Load the text as a profile: what is written must be one that loads."""
    path = Path(f"detected{SUFFIX}")  # for messages; nothing is written
    try:
        return load_text(text, path, folders).profile
    except ProfileError as error:
        said = error.message.replace(f"{path}:", "line ")
        raise HpcrunError(
            f"the detected profile is not valid: {said}\n{text}",
            hint="this is a bug in hpcrun; please report it with the text above",
        ) from None


def new_profile_path(name: str, folder: Path, *, force: bool) -> Path:
    """Return the file for a new profile.

    Raises:
        UsageError: it cannot be a profile's name.
        ProfileError: the file already exists, and ``force`` is not set.
    """
    if not _NAME.fullmatch(name) or name.endswith((SUFFIX, ".yml")):
        raise UsageError(
            f"{name!r} cannot be a profile's name", hint="use letters, digits, '-', '_' and '.', as mysite"
        )
    path = folder / f"{name}{SUFFIX}"
    if os.path.lexists(path) and not force:
        raise ProfileError(f"{path} already exists", hint="choose another name, or replace the file with --force")
    return path
