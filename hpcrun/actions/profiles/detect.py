"""profile detect: query the cluster, and write its profile."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.detect_types import GpuOffer, gpu_offers
from hpcrun.actions.profiles.detect_yaml import Choices, DetectedCluster, check_loads, profile_text
from hpcrun.actions.profiles.edit import check_name
from hpcrun.errors import ProfileError, UsageError
from hpcrun.job.profile import Profile
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.load import SUFFIX
from hpcrun.profiles.save import replace_text
from hpcrun.schedulers.client import try_gpu_forms
from hpcrun.schedulers.cluster_facts import ClusterFacts, ask_facts, check_answered
from hpcrun.schedulers.host import host_facts
from hpcrun.schedulers.process import SlurmSite

_NO_CHOICES = Choices()


@dataclass(frozen=True, slots=True)
class Detected:
    """A profile that was detected."""

    text: str
    profile: Profile
    offers: tuple[GpuOffer, ...]  # the GPU types that the user may use
    warnings: tuple[str, ...]  # the commands that failed
    path: Path | None = None  # the file that was written, None if none was


def detect(site: SlurmSite, surroundings: Surroundings, path: Path | None = None) -> Detected:
    """Query the cluster and return the text of its profile, which loads; if a path is given, write it there."""
    detected = replace(detected_profile(ask_cluster(site), site, surroundings), path=path)
    if path:
        replace_text(path, detected.text)
    return detected


def ask_cluster(site: SlurmSite) -> ClusterFacts:
    """Query the cluster."""
    facts = ask_facts(site)
    check_answered(facts)
    return facts


def detected_profile(
    facts: ClusterFacts, site: SlurmSite, surroundings: Surroundings, choices: Choices = _NO_CHOICES
) -> Detected:
    """Return the profile of a cluster from its answers.

    Args:
        choices: the user's choices; the account decides which partitions are open.
    """
    offers = gpu_offers(facts, choices.account)
    trials = try_gpu_forms(site, offers[0].type, offers[0].partition.name) if offers else []
    cluster = DetectedCluster(
        facts,
        offers,
        trials,
        host_facts(surroundings.host, site.env, timeout_s=site.within_s),
        in_job="SLURM_JOB_ID" in surroundings.env,
        choices=choices,
    )
    text = profile_text(cluster)
    profile = check_loads(text, surroundings.profile_folders)
    warnings = [f"{command}: {why}" for command, why in facts.problems.items()]
    if trials and not any(trial.accepted for trial in trials):
        warnings.append(f"sbatch --test-only: {trials[0].message or 'no response'}")
    return Detected(text, profile, tuple(offers), tuple(warnings))


def new_profile_path(name: str, folder: Path, *, force: bool) -> Path:
    """Return the file for a new profile."""
    if name in ("local", DETECTED):  # a file of that name would hide the profile
        raise UsageError(f"hpcrun itself uses the profile {name}", hint="choose another name, as mysite")
    path = folder / f"{check_name(name)}{SUFFIX}"
    if os.path.lexists(path) and not force:
        raise ProfileError(f"{path} already exists", hint="choose another name, or replace the file with --force")
    return path
