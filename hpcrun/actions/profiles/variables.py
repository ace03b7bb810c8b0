"""The variables of jobs: the known ones, those of a profile and why, and mistakes in a job's.

The variables of a profile are those that the profile sets; the reason is given with each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpcrun.actions.ports import Surroundings
from hpcrun.errors import NotFoundError, ProfileError, UsageError, nearest
from hpcrun.job.plan.job_plan import planned_env
from hpcrun.job.profile_model import FabricSection, Profile
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.text.recognise_secrets import MASK, is_secret
from hpcrun.job.text.spelling import spell
from hpcrun.profiles.load import LoadedProfile, load_profile, profile_names
from hpcrun.profiles.variable_catalogue import (
    ONE_NODE,
    PREFIXES,
    Finding,
    Variable,
    load_catalogue,
)
from hpcrun.profiles.yaml_file import Key, Origin

KNOWN_NAMES = (*PREFIXES, "MASTER_")
"""The beginnings of the names of which hpcrun knows something."""
# variable → the key of ``fabric`` that sets it; ``interface`` sets the others
_OF_FABRIC = {"NCCL_IB_HCA": "hcas", "HPCRUN_HOST_SUFFIX": "host_suffix"}


@dataclass(frozen=True, slots=True)
class SetVariable:
    """A variable that a profile sets."""

    name: str
    value: str  # what it is set to; masked if the name is that of a secret
    origin: Origin | None  # where that is written
    variable: Variable | None  # its entry in the catalogue, None without one
    problem: str | None = None  # its problem in one line


@dataclass(frozen=True, slots=True)
class ProfileVariables:
    """The variables that a profile sets in a job, before --env."""

    profile: str
    set_here: tuple[SetVariable, ...]
    by_script: tuple[Variable, ...]  # variables that hpcrun's script sets in every job


def find_variables(name: str, surroundings: Surroundings) -> Variable | ProfileVariables:
    """Return the catalogue's entry of a variable, or the variables that a profile sets.

    Args:
        name: a variable's name in any case, a profile's name, or a path of a profile.
        surroundings: give the folders of profiles.

    Raises:
        NotFoundError: hpcrun knows no variable and no profile of that name.
    """
    catalogue = load_catalogue()
    if name.upper() in catalogue:
        return catalogue[name.upper()]
    profiles = profile_names(surroundings.profile_folders)
    if name in profiles or "/" in name or name.endswith((".yaml", ".yml")):
        return _of_profile(load_profile(name, surroundings.profile_folders))
    if name.upper() in catalogue.others:
        raise NotFoundError(
            f"{name.upper()} is a variable that hpcrun does not know",
            hint="hpcrun profile env lists the known variables",
        )
    close = nearest(name, list(profiles)) or nearest(name.upper(), list(catalogue))
    hint = "hpcrun profile env lists the variables"
    if close:
        hint = f"did you mean {close!r}?"
    raise NotFoundError(f"there is no variable and no profile {name!r}", hint=hint)


def _of_profile(loaded: LoadedProfile) -> ProfileVariables:
    catalogue = load_catalogue()
    profile = loaded.profile
    env = {**profile.fabric.env(), **profile.env}
    findings = _findings(env, profile, _any_size(profile))
    problems = {finding.name: finding.advice for finding in findings}
    rows = []
    for name, value in env.items():
        shown = MASK if is_secret(name, value, profile.secrets) else value
        origin = _origin(name, loaded)
        rows.append(SetVariable(name, shown, origin, catalogue.get(name), problems.get(name)))
    for number, name in enumerate(profile.secrets):
        if name not in env:
            origin = loaded.origins.get(("secrets", str(number)))
            rows.append(SetVariable(name, MASK, origin, catalogue.get(name)))
    by_script = tuple(variable for variable in catalogue.values() if variable.hpcrun)
    return ProfileVariables(profile.name, tuple(rows), by_script)


@dataclass(frozen=True, slots=True)
class JobHardware:
    """What decides whether a variable of a job is harmful."""

    gpu_type: str | None  # of its GPUs, as the site calls it
    nodes: int


def check_job_env(
    request: JobRequest, loaded: LoadedProfile, size: JobHardware, *, of_profile: bool = True
) -> None:
    """Check that the variables of --env and of the profile have possible values.

    Args:
        request: the job, with its own variables.
        loaded: the profile of the job, with the file of each value.
        size: the size of the job.
        of_profile: the job gets the variables of the profile.

    Raises:
        UsageError: a variable of --env has an impossible value.
        ProfileError: a variable of the profile has an impossible value.
    """
    profile = loaded.profile
    if not of_profile:
        profile = profile.model_copy(update={"env": {}, "fabric": FabricSection(), "secrets": ()})
    planned = planned_env(request, profile)
    env = {name: value for name, value in planned if value is not None}
    for finding in _findings(env, loaded.profile, size):
        if not finding.impossible:
            continue
        hint = f"hpcrun profile env {finding.name} explains it"
        origin = _origin(finding.name, loaded)
        if origin is None or finding.name in dict(request.env):
            raise UsageError(f"{spell('env')} {finding.text()}", hint=hint)
        raise ProfileError(f"{origin}: env.{finding.text()}", hint=hint)


def _any_size(profile: Profile) -> JobHardware:
    """Return the size of the jobs of a profile: several nodes, with its own type of GPU."""
    return JobHardware(profile.gpu.type, nodes=2)


def check_profile_env(loaded: LoadedProfile) -> list[tuple[Finding, Key]]:
    """Return the problems with the variables that a profile sets, each with its key.

    The values of secrets are not checked.
    """
    profile = loaded.profile
    env = {**profile.fabric.env(), **profile.env}
    for name, value in list(env.items()):
        if is_secret(name, value, profile.secrets):
            del env[name]
    problems = []
    for finding in _findings(env, profile, _any_size(profile)):
        key = _place(finding.name, loaded) or ("env", finding.name)
        problems.append((finding, key))
    return problems


def _findings(env: Mapping[str, str], profile: Profile, size: JobHardware) -> Sequence[Finding]:
    """Return the problems with the variables of a job."""
    if not any(name.startswith(KNOWN_NAMES) for name in env):
        return ()
    return load_catalogue().check(env, gpu_text(profile, size), network_words(profile, size))


def gpu_text(profile: Profile, size: JobHardware) -> str:
    """Return the type and the model of a job's GPUs."""
    card = None
    entry = profile.gpu.types.get(size.gpu_type or "")
    if entry:
        card = entry.card.model
    if not card and size.gpu_type in (None, profile.gpu.type):
        card = profile.card.model
    return f"{size.gpu_type or ''} {card or ''}"


def network_words(profile: Profile, size: JobHardware) -> frozenset[str]:
    """Return the kind of network between the nodes of a job, and whether it has one node."""
    kind = profile.fabric.kind or ""
    return frozenset({kind, ONE_NODE}) if size.nodes == 1 else frozenset({kind})


def _origin(name: str, loaded: LoadedProfile) -> Origin | None:
    """Return where a profile sets a variable; None if it does not."""
    place = _place(name, loaded)
    return None if place is None else loaded.origins[place]


def _place(name: str, loaded: LoadedProfile) -> Key | None:
    """Return the key that gives a variable its value, under ``env`` or in ``fabric``."""
    of_fabric = _OF_FABRIC.get(name, "interface")
    for place in (("env", name), ("fabric", of_fabric)):
        if place in loaded.origins:
            return place
    return None
