"""doctor: Slurm as it is seen from here, without a profile. Pure judgement of what was asked."""

from __future__ import annotations

from dataclasses import dataclass

from hpcrun.features.doctor.check import SLURM, Check, Level
from hpcrun.schedulers.client import COMMANDS, Ping, major_release
from hpcrun.schedulers.cluster_facts import ClusterFacts, Trial

# Without these no job can be submitted, seen or ended from here.
_NEEDED = frozenset({"sbatch", "squeue", "scancel", "scontrol"})
_SLOW_S = 2.0
_ACCOUNTING = ("sacct", "sacctmgr show assoc")


@dataclass(frozen=True, slots=True)
class SlurmAnswers:
    """What Slurm's commands answered; what was not asked, since nobody would have answered, is None.

    Attributes:
        trials: sbatch's judgement of the profile's largest job on one node and, where it refuses that, of the smallest.
    """

    missing: tuple[str, ...]
    version: str | None = None
    ping: Ping | None = None
    facts: ClusterFacts | None = None
    trials: tuple[Trial, ...] = ()


def judge_slurm(answers: SlurmAnswers) -> list[Check]:
    """Return how Slurm is: its commands here, the controller, accounting."""
    checks = [judge_commands(answers.missing, answers.version)]
    if answers.ping is None:
        return checks
    checks.append(judge_controller(answers.ping))
    if answers.facts is None:
        return checks
    if mismatch := judge_versions(answers.version, answers.facts.config.get("SLURM_VERSION")):
        checks.append(mismatch)
    silent = [
        Check(SLURM, command, "yellow", why, f"`{command}` by hand shows whether the problem persists")
        for command, why in answers.facts.problems.items()
        if command not in _ACCOUNTING
    ]
    return [*checks, *silent, judge_accounting(answers.facts)]


def judge_commands(missing: tuple[str, ...], version: str | None) -> Check:
    """Judge which of Slurm's commands are on PATH."""
    if missing:
        level: Level = "red" if _NEEDED & set(missing) else "yellow"
        some = "none of Slurm's commands is" if len(missing) == len(COMMANDS) else f"{', '.join(missing)} not"
        fix = "log in to a machine with Slurm, or load the site's slurm module; without Slurm use --profile local"
        if level == "yellow":
            fix = "ask the administrators for all Slurm commands, or load its slurm module"
        return Check(SLURM, "commands", level, f"{some} on PATH", fix)
    return Check(SLURM, "commands", "green", " ".join(COMMANDS) + (f", version {version}" if version else ""))


def judge_versions(client: str | None, controller: str | None) -> Check | None:
    """Judge whether the commands are of the controller's release; None where they are, or nobody says."""
    if not client or not controller or major_release(client) == major_release(controller):
        return None
    release = major_release(controller)
    fix = f"use the commands of {release}: load the site's slurm module, or remove another Slurm from PATH"
    return Check(SLURM, "versions", "yellow", f"commands of Slurm {client}, a controller of {controller}", fix)


def judge_controller(ping: Ping) -> Check:
    """Judge whether the controller answers."""
    up = [server for server in ping.servers if server.up]
    down = [f"{server.host} ({server.role})" for server in ping.servers if not server.up]
    if not up:
        seen = f"{', '.join(down)} does not respond" if down else ping.words
        fix = "`scontrol ping` shows when it is back; else ask the administrators"
        return Check(SLURM, "controller", "red", seen, fix)
    took = f"{up[0].host} answers within {_duration(ping.took_s)}"
    if down:
        return Check(SLURM, "controller", "yellow", f"{took}; {', '.join(down)} is down", "tell the administrators")
    if ping.took_s > _SLOW_S:
        return Check(SLURM, "controller", "yellow", took, "it is busy: poll less often; sbatch may be slow")
    return Check(SLURM, "controller", "green", took)


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1000))} ms"


def judge_accounting(facts: ClusterFacts) -> Check:
    """Judge whether sacct answers."""
    if facts.accounting:
        enforced = facts.config.get("AccountingStorageEnforce", "none")
        return Check(SLURM, "accounting", "green", f"sacct answers; enforced: {enforced}")
    why = facts.problems.get("sacct", "no response")
    fix = "no action needed: when Slurm has purged a job, hpcrun uses the records in its run folder"
    return Check(SLURM, "accounting", "yellow", f"sacct: {why}", fix)
