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
from hpcrun.actions.profiles.detect_types import accounts_of, gpu_offers
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
    options = tuple(
        Option(
            name,
            f"--account {name}",
            "your default in Slurm" if name == facts.default_account else "",
        )
        for name in accounts
    )
    default = accounts.index(now) if now in accounts else 0
    return Choice("account", "account", "the account to charge", options, default)


def gpu_choice(facts: ClusterFacts, account: str | None, profile: Profile | None) -> Choice | None:
    """Return the choice of the GPU type that ``--gpus 4`` means; None if the cluster has only one.

    The default is the profile's type, else the type with the most GPUs.
    """
    offers = [offer for offer in gpu_offers(facts, account) if offer.type]
    if len(offers) < 2:
        return None
    options = [
        Option(
            offer.type or "",
            f"--gpu-type {offer.type}",
            f"{offer.nodes} × {offer.per_node}, {offer.partition.name}",
        )
        for offer in offers
    ]
    names = [*(option.value for option in options), NONE]
    options.append(
        Option(NONE, f"--gpu-type {NONE}", "no default: each job names its type, as --gpus a100:4")
    )
    most = max(offers, key=lambda offer: offer.nodes * offer.per_node).type
    now = (profile.gpu.type or NONE) if profile else most
    default = names.index(now if now in names else most or NONE)
    return Choice(
        "GPU type",
        "gpu.type",
        "the GPU type that --gpus 4 means: nodes × GPUs, partition",
        tuple(options),
        default,
    )


def unmade(choices: Sequence[Choice]) -> UsageError:
    """Return the error for choices that need a terminal: it names the options to add."""
    flags = " ".join(made.options[made.default].flag for made in choices)
    return UsageError("\n".join(made.flags for made in choices), hint=f"hpcrun init {flags}")


def check_choices(choices: Choices, facts: ClusterFacts) -> None:
    """Refuse a typed account or GPU type that the cluster does not have for this user.

    Raises:
        UsageError: the cluster does not have the account or the GPU type for this user.
    """
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
    name = _NAME_CHARS.sub("-", facts.config.get("ClusterName", "")).strip("-_")[:60] or "cluster"
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
        choices: the user's choices of an account and a GPU type.
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
        mine, theirs = (
            flat_values(profile.model_dump(exclude_defaults=True))
            for profile in (now, detected.profile)
        )
        chosen = {("account",), _GPU_TYPE, ("description",), ("name",)}
        changed = (
            key for key, value in theirs.items() if key not in chosen and mine.get(key) != value
        )
        outdated = tuple(map(".".join, changed))
    return Setup(
        name,
        FileChange(path, before, after),
        *plan_config(name, config, runs),
        runs,
        anew=anew,
        outdated=outdated,
        detected=detected,
    )


def write_setup(setup: Setup, place: Place) -> Path | None:
    """Write the files, each completely or not at all.

    Returns:
        The path of the old profile if the profile was replaced, else None.
    """
    profile = setup.profile
    if profile and profile.changed and setup.anew and profile.before:
        kept = _free_name(profile.path)
    else:
        kept = None
    # the profile first: a default profile must exist
    for change in filter(None, (profile, setup.config)):
        if change.changed:
            change.write(
                place.lock, hint="run hpcrun init again", kept=kept if change is profile else None
            )
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
    return text


def _free_name(path: Path) -> Path:
    """Return a free path beside a file for the file's old text.

    The name at this path is not the name of a profile.
    """
    number = 1
    while os.path.lexists(kept := path.with_name(f"{path.name.removesuffix(SUFFIX)}.old-{number}")):
        number += 1
    return kept


# --- what comes after ----------------------------------------------------------------------------


def next_commands(setup: Setup, gpu_type: str | None) -> tuple[tuple[str, str], ...]:
    """Return three commands to try next, each with its purpose.

    Without a default GPU type, the commands name a type.
    """
    offers = setup.detected.offers if setup.detected else ()
    offer = next(
        (offer for offer in offers if offer.type == gpu_type), offers[0] if offers else None
    )
    if setup.detected and offer is None:
        size = "--gpus 0 --cpus 4"
        what = "your script on 4 CPUs"
    else:
        of_nodes, per_node = (offer.nodes, offer.per_node) if offer else (2, 2)
        if of_nodes > 1:
            job = TrialJob(2, min(2, per_node))
        else:
            job = TrialJob(1, min(4, per_node))
        if offer and offer.type and len(offers) > 1 and not gpu_type:
            named = f"{offer.type}:"
        else:
            named = ""
        size = f"--gpus {named}{job.nodes * job.gpus_per_node}" + (
            f" --nodes {job.nodes}" if job.nodes > 1 else ""
        )
        what = f"your script on {job.words}"
    return (
        (f"hpcrun submit {size} train.py", what),
        ("hpcrun status", "what runs, is pending or failed, and why"),
        ("hpcrun logs -f", "the output of the newest run"),
    )


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

    @property
    def words(self) -> str:
        """Return the size as text."""
        noun = f"{self.gpu_type} GPU" if self.gpu_type else "GPU"
        return (
            f"{count(self.nodes, 'node')} × "
            f"{count(self.gpus_per_node, noun) if self.gpus_per_node else 'no GPU'}"
        )


def trial_size(detected: Detected | None, gpu_type: str | None) -> TrialJob:
    """Return the size of the test job, on GPUs of a type or of the first one."""
    if detected is None:
        return TrialJob(2, 0)
    offers = detected.offers
    if not offers:
        return TrialJob(1, 0)
    offer = next((offer for offer in offers if offer.type == gpu_type), offers[0])
    if offer.nodes > 1 and offer.partition.max_nodes != 1:
        nodes = 2
    else:
        nodes = 1
    several = len(offers) > 1 or detected.profile.gpu.type is None
    return TrialJob(
        nodes, 1 if nodes > 1 else min(2, offer.per_node), offer.type if several else None
    )


def prepare_trial(
    job: TrialJob,
    name: str,
    surroundings: Surroundings,
    machine: Callable[[], Machine],
    *,
    has_torch: bool,
) -> Prepared:
    """Prepare the test job for a profile.

    Without torch in the job's Python, torchrun cannot start the ranks, and srun starts them.
    """
    request: dict[str, Any] = {
        "script": _PROGRAM,
        "module": True,
        "name": "hello",
        "nodes": job.nodes,
    }
    request["walltime_s"] = TRIAL_TIME
    if job.gpus_per_node:
        request["gpus_per_node"] = (
            f"{job.gpu_type}:{job.gpus_per_node}" if job.gpu_type else str(job.gpus_per_node)
        )
    else:
        request["gpus"] = "0"
    if not has_torch:
        request["launcher"] = "srun"
    return prepare(read_request(request), name, surroundings, machine)
