"""init: the user's choices on a cluster, and what to do next.

The choices lead to a profile and a configuration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.ports import Surroundings
from hpcrun.actions.profiles.detect import Choices, Detected
from hpcrun.actions.profiles.detect_types import GpuOffer, accounts_of, gpu_offers
from hpcrun.actions.profiles.edit import FileChange, Place, new_profile_path, plan_config, text_at
from hpcrun.actions.profiles.list_profiles import flat_values
from hpcrun.actions.user_choice import Choice, Option
from hpcrun.errors import ProfileError, UsageError, nearest
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.read_request import read_request
from hpcrun.job.resources.cpus_memory_time import Machine
from hpcrun.job.text.units import count
from hpcrun.profiles.config import DETECTED
from hpcrun.profiles.load import SUFFIX, load_text
from hpcrun.profiles.yaml_edit import set_value, unset_value
from hpcrun.profiles.yaml_file import Key, parse_yaml
from hpcrun.schedulers.cluster_facts import ClusterFacts

NONE = "none"
"""The answer of a person who wants no default GPU type."""
_GPU_TYPE: Key = ("gpu", "type")
_LAUNCHER: Key = ("launcher",)
_CHOSEN: frozenset[Key] = frozenset(
    {("account",), _GPU_TYPE, _LAUNCHER, ("description",), ("name",)}
)
_NAME_CHARS = re.compile(r"[^A-Za-z0-9_-]+")


# --- what is left to a person --------------------------------------------------------------------


def account_choice(facts: ClusterFacts, profile: Profile | None) -> Choice | None:
    """Return the choice of the account to charge.

    Returns:
        The choice; None if there is only one account, or if Slurm does not say.
    """
    accounts = accounts_of(facts)
    if len(accounts) < 2:
        return None
    if profile and profile.account in accounts:
        now: str | None = profile.account
    else:
        now = facts.default_account
    options = []
    for name in accounts:
        about = "your default in Slurm" if name == facts.default_account else ""
        options.append(Option(name, f"--account {name}", about))
    default = accounts.index(now) if now in accounts else 0
    return Choice("account", "account", "the account to charge", tuple(options), default)


def gpu_choice(facts: ClusterFacts, account: str | None, profile: Profile | None) -> Choice | None:
    """Return the choice of the GPU type that ``--gpus 4`` means; None if the cluster has only one.

    The default is the profile's type, else the type with the most GPUs.
    """
    offers = [offer for offer in gpu_offers(facts, account) if offer.type]
    if len(offers) < 2:
        return None
    options = []
    for offer in offers:
        about = f"{offer.nodes} × {offer.per_node}, {offer.partition.name}"
        options.append(Option(offer.type or "", f"--gpu-type {offer.type}", about))
    without = "no default: each job names its type, as --gpus a100:4"
    options.append(Option(NONE, f"--gpu-type {NONE}", without))
    names = [option.value for option in options]
    largest = max(offers, key=lambda offer: offer.nodes * offer.per_node)
    default = largest.type or NONE
    if profile and (profile.gpu.type or NONE) in names:
        default = profile.gpu.type or NONE
    reason = "the GPU type that --gpus 4 means: nodes × GPUs, partition"
    return Choice("GPU type", "gpu.type", reason, tuple(options), names.index(default))


_LAUNCHERS = (
    Option("torchrun", "--launcher torchrun", "the default"),
    Option(
        "srun", "--launcher srun", "starts sooner; without TORCHELASTIC_* and torchrun's options"
    ),
)


def launcher_choice(facts: ClusterFacts, profile: Profile | None) -> Choice | None:
    """Return the choice of the program that starts the ranks of jobs with GPUs.

    Returns:
        The choice; None without GPUs, or if the profile has a launcher for other programs.
    """
    values = [option.value for option in _LAUNCHERS]
    now = "torchrun"
    if profile and profile.launcher:
        now = profile.launcher
    if now not in values or not gpu_offers(facts):
        return None
    reason = "what starts the ranks of a job"
    return Choice("launcher", "launcher", reason, _LAUNCHERS, values.index(now))


def unmade(choices: Sequence[Choice]) -> UsageError:
    """Return the error for choices that need a terminal: it names the options to add."""
    flags = " ".join(made.options[made.default].flag for made in choices)
    return UsageError("\n".join(made.flags for made in choices), hint=f"hpcrun init {flags}")


def check_choices(choices: Choices, facts: ClusterFacts) -> None:
    """Refuse typed choices that init does not offer.

    Raises:
        UsageError: the cluster does not have the account or the GPU type for this user, or the
            launcher is not torchrun or srun.
    """
    launchers = [option.value for option in _LAUNCHERS]
    if choices.launcher not in (None, *launchers):
        raise UsageError(
            f"--launcher {choices.launcher}: init writes {' or '.join(launchers)}",
            hint="hpcrun profile set launcher NAME sets another one",
        )
    types = [offer.type for offer in gpu_offers(facts) if offer.type]
    for flag, answer, known in (
        ("--account", choices.account, accounts_of(facts)),
        ("--gpu-type", choices.gpu_type, [*types, NONE]),
    ):
        if answer is None or not known or answer in known:
            continue
        close = nearest(answer, known)
        if close:
            hint = f"did you mean {flag} {close}?"
        else:
            hint = f"there are: {', '.join(known)}"
        raise UsageError(f"{flag} {answer}: the cluster does not have it for you", hint=hint)


def default_name(facts: ClusterFacts, taken: set[str]) -> str:
    """Return a name for the profile: the cluster's name, unless it would hide a shipped profile."""
    plain = _NAME_CHARS.sub("-", facts.config.get("ClusterName", ""))
    name = plain.strip("-_")[:60] or "cluster"
    if name in taken or name == DETECTED:
        return f"{name}-cluster"
    return name


# --- the files -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setup:
    """What init writes."""

    name: str
    # the change of the profile's file; None for the profile ``local``, which is shipped
    profile: FileChange | None
    config: FileChange  # the change of the user's config.yaml
    # the default profile of config.yaml until now, where it was another
    instead_of: str | None = None
    runs: str | None = None  # the runs folder that is set; None where it stays as it is
    anew: bool = False  # an existing profile is replaced as a whole
    # keys of an existing profile for which the cluster now reports other values
    outdated: tuple[str, ...] = ()
    detected: Detected | None = None  # the profile that was detected; None without Slurm
    # what was chosen for the user, who was not asked, with the answers
    chosen: tuple[tuple[Choice, str], ...] = ()

    @property
    def files(self) -> tuple[FileChange, ...]:
        """Return the changes, the profile first: a default profile must exist."""
        if self.profile:
            return (self.profile, self.config)
        return (self.config,)


def existing_profile(name: str, place: Place, *, anew: bool) -> Profile | None:
    """Return the user's own profile of that name.

    Returns:
        The profile; None if there is no file, or if the file is invalid and is replaced (``anew``).

    Raises:
        ProfileError: the file is invalid and is not replaced.
    """
    path = new_profile_path(name, place.user, force=True)
    text = text_at(path)
    if text is None:
        return None
    try:
        return load_text(text, path, place.folders).profile
    except ProfileError:
        if anew:
            return None
        raise


def plan_setup(
    name: str,
    detected: Detected,
    choices: Choices,
    config: Path,
    runs: str | None,
    place: Place,
    *,
    anew: bool,
) -> Setup:
    """Return the files to write; nothing is written yet.

    An existing profile keeps all lines except those of the choices.

    Args:
        name: the name of the profile.
        detected: the profile that hpcrun detected.
        choices: the user's choices of an account, a GPU type and a launcher.
        config: the user's config.yaml.
        runs: the runs folder to set; None leaves it as it is.
        place: the folder of the user's profiles, and every folder of profiles.
        anew: replace an existing profile by the detected one.
    """
    path = new_profile_path(name, place.user, force=True)
    before = text_at(path)
    after = detected.text
    outdated: tuple[str, ...] = ()
    if before is not None and not anew:
        after = _with_choices(before, choices, path, place)
        now = load_text(after, path, place.folders).profile
        outdated = _outdated_keys(now, detected.profile)
    config_change, instead_of = plan_config(name, config, runs)
    return Setup(
        name,
        FileChange(path, before, after),
        config_change,
        instead_of,
        runs,
        anew=anew,
        outdated=outdated,
        detected=detected,
    )


def _outdated_keys(profile: Profile, detected: Profile) -> tuple[str, ...]:
    """Return the keys of a profile for which the cluster reports other values.

    A value that the user chooses is never outdated.
    """
    values = flat_values(profile.model_dump(exclude_defaults=True))
    outdated = []
    for key, value in flat_values(detected.model_dump(exclude_defaults=True)).items():
        if key not in _CHOSEN and values.get(key) != value:
            outdated.append(".".join(key))
    return tuple(outdated)


def write_setup(setup: Setup, place: Place) -> Path | None:
    """Write the files, each completely or not at all.

    Returns:
        The path of the old profile if the profile was replaced, else None.
    """
    hint = "run hpcrun init again"
    profile = setup.profile
    kept = None
    # the profile first: a default profile must exist
    if profile and profile.changed:
        if setup.anew and profile.before:
            kept = _free_name(profile.path)
        profile.write(place.lock, hint=hint, kept=kept)
    if setup.config.changed:
        setup.config.write(place.lock, hint=hint)
    return kept


def _with_choices(text: str, choices: Choices, path: Path, place: Place) -> str:
    """Return the text of a profile with the choices set.

    A choice that is not made, or already set, changes no line.
    """
    now = load_text(text, path, place.folders).profile
    if choices.account not in (None, now.account):
        text = set_value(text, ("account",), choices.account, path)
    if choices.gpu_type == NONE and now.gpu.type:
        type_ = (parse_yaml(text, path).data.get("gpu") or {}).get("type")
        if type_:
            text = unset_value(text, _GPU_TYPE, path)
        else:
            text = set_value(text, _GPU_TYPE, None, path)
    elif choices.gpu_type not in (None, NONE, now.gpu.type):
        text = set_value(text, _GPU_TYPE, choices.gpu_type, path)
    if choices.launcher in (None, now.launcher or "torchrun"):
        return text
    if choices.launcher == "torchrun" and parse_yaml(text, path).data.get("launcher"):
        text = unset_value(text, _LAUNCHER, path)
        now = load_text(text, path, place.folders).profile
    if choices.launcher != (now.launcher or "torchrun"):
        text = set_value(text, _LAUNCHER, choices.launcher, path)
    return text


def _free_name(path: Path) -> Path:
    """Return a free path beside a file for the file's old text.

    The name at this path is not the name of a profile.
    """
    stem = path.name.removesuffix(SUFFIX)
    number = 1
    while os.path.lexists(path.with_name(f"{stem}.old-{number}")):
        number += 1
    return path.with_name(f"{stem}.old-{number}")


# --- what comes after ----------------------------------------------------------------------------


def next_commands(setup: Setup, gpu_type: str | None) -> tuple[tuple[str, str], ...]:
    """Return three commands to try next, each with its purpose.

    Without a default GPU type, the commands name a type.
    """
    if setup.detected and not setup.detected.offers:
        size = "--gpus 0 --cpus 4"
        what = "your script on 4 CPUs"
    else:
        job = TrialJob(2, 2)
        gpu_name = ""
        if setup.detected:
            offers = setup.detected.offers
            offer = _offer_of(gpu_type, offers)
            job = TrialJob(1, min(4, offer.per_node))
            if offer.nodes > 1:
                job = TrialJob(2, min(2, offer.per_node))
            if offer.type and len(offers) > 1 and not gpu_type:
                gpu_name = f"{offer.type}:"
        size = f"--gpus {gpu_name}{job.nodes * job.gpus_per_node}"
        if job.nodes > 1:
            size += f" --nodes {job.nodes}"
        what = f"your script on {job.words}"
    return (
        (f"hpcrun submit {size} train.py", what),
        ("hpcrun status", "what runs, is pending or failed, and why"),
        ("hpcrun logs -f", "the output of the newest run"),
    )


def _offer_of(gpu_type: str | None, offers: Sequence[GpuOffer]) -> GpuOffer:
    """Return the GPUs of a type, or the first ones."""
    return next((offer for offer in offers if offer.type == gpu_type), offers[0])


def runs_problem(folder: Path) -> str | None:
    """Return why a folder cannot hold runs, None if it can, as far as this machine tells."""
    if not str(folder).isprintable():
        return "its name cannot be written to config.yaml"
    there = next(part for part in (folder, *folder.parents) if os.path.lexists(part))
    if not there.is_dir():
        return f"{there} is not a folder"
    if os.access(there, os.W_OK | os.X_OK):
        return None
    return f"you cannot write to {there}"


TRIAL_TIME = "5m"
"""The time limit of the test job: it takes a few seconds, most of them for the import of torch."""


_PROGRAM = "hpcrun_hello"


@dataclass(frozen=True, slots=True)
class TrialJob:
    """The size of the test job.

    The job has two nodes where there are two, since the network fails most often.
    """

    nodes: int
    gpus_per_node: int
    gpu_type: str | None = None
    launcher: str = "srun"

    @property
    def words(self) -> str:
        """Return the size as text."""
        noun = f"{self.gpu_type} GPU" if self.gpu_type else "GPU"
        gpus = "no GPU"
        if self.gpus_per_node:
            gpus = count(self.gpus_per_node, noun)
        return f"{count(self.nodes, 'node')} × {gpus}"


def trial_size(detected: Detected | None, gpu_type: str | None) -> TrialJob:
    """Return the size of the test job, on GPUs of a type or of the first one."""
    if detected is None:
        return TrialJob(2, 0, launcher="python")
    offers = detected.offers
    if not offers:
        return TrialJob(1, 0)
    offer = _offer_of(gpu_type, offers)
    named = offer.type
    if len(offers) == 1 and detected.profile.gpu.type is not None:
        named = None  # the profile's own type
    if offer.nodes > 1 and offer.partition.max_nodes != 1:
        return TrialJob(2, 1, named)
    return TrialJob(1, min(2, offer.per_node), named)


def prepare_trial(
    job: TrialJob,
    name: str,
    surroundings: Surroundings,
    machine: Callable[[], Machine],
) -> Prepared:
    """Prepare the test job for a profile.

    With Slurm, srun starts the ranks: torchrun would import torch once more on each node, and does
    not start without torch.
    """
    request: dict[str, Any] = {
        "script": _PROGRAM,
        "module": True,
        "name": "hello",
        "nodes": job.nodes,
        "walltime_s": TRIAL_TIME,
        "launcher": job.launcher,
    }
    if not job.gpus_per_node:
        request["gpus"] = "0"
    elif job.gpu_type:
        request["gpus_per_node"] = f"{job.gpu_type}:{job.gpus_per_node}"
    else:
        request["gpus_per_node"] = str(job.gpus_per_node)
    return prepare(read_request(request), name, surroundings, machine)
