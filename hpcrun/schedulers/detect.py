"""Asks a cluster for its properties: a few of Slurm's commands at once, each with a timeout of ten seconds."""

from __future__ import annotations

import grp
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpcrun.errors import SchedulerError
from hpcrun.schedulers import detect_text as text
from hpcrun.schedulers.detect_host import HostFacts, look_at_host
from hpcrun.schedulers.detect_text import Association, NodeKind, Partition, QosLimits
from hpcrun.schedulers.environment import env_for_answers, user_name
from hpcrun.schedulers.process import Completed, run_command

ANSWER_WITHIN_S = 10.0
_OF_ASSOC = frozenset({"account", "qos"})
"""Answers of the same database as the associations: one message for all."""
GPU_FORMS = ("gres", "gpus-per-node", "gpus")  # the portable one first
_CONFIG = ["scontrol", "show", "config"]
_CONFIG_KEYS = frozenset(
    ["ClusterName", "SLURM_VERSION", "AccountingStorageType", "AccountingStorageEnforce", "PreemptType", "PreemptMode"]
)
_PARTITIONS = ["scontrol", "--oneliner", "show", "partition"]
_NODES = ["scontrol", "--oneliner", "show", "node"]
_SACCT = ["sacct", "--allocations", "--noheader", "--parsable2", "--starttime=now", "--format=JobID"]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts that a cluster reports.

    Attributes:
        sources: fact → the command that reported it: ``nodes``, ``partitions``.
        kinds: kinds of nodes, by partition.
        associations: of the user; None if the database did not respond.
        default_account: of the user, which Slurm charges for a job without one.
        problems: command → why it reported nothing.
    """

    user: str
    groups: tuple[str, ...]
    config: dict[str, str]
    kinds: list[NodeKind]
    partitions: list[Partition]
    associations: list[Association] | None
    accounting: bool
    default_account: str | None = None
    qos: list[QosLimits] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trial:
    """sbatch's answer to one form of the GPU directive; ``said`` is its message.

    Attributes:
        answered: False after a timeout.
    """

    form: str
    accepted: bool
    said: str
    answered: bool = True


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """The cluster whose commands are on PATH, and this host.

    Attributes:
        env: the environment its commands run in.
        within_s: the timeout of each command.
    """

    env: Mapping[str, str]
    within_s: float = ANSWER_WITHIN_S

    def ask(self) -> ClusterFacts:
        """Ask everything at once, so that commands that hang take ten seconds together, not each."""
        user = user_name()
        commands = {
            "sinfo": text.sinfo_command(),
            "config": _CONFIG,
            "partitions": _PARTITIONS,
            "nodes": _NODES,
            "assoc": text.assoc_command(user),
            "account": text.default_account_command(user),
            "qos": text.qos_command(),
            "sacct": _SACCT,
        }
        from concurrent.futures import ThreadPoolExecutor  # not for those who only read what an earlier command asked

        with ThreadPoolExecutor(len(commands)) as pool:
            answers = dict(zip(commands, pool.map(self.run, commands.values()), strict=True))
        return _facts(user, answers, {name: text.said_by(command) for name, command in commands.items()})

    def try_gpu_forms(self, type_: str | None, partition: str) -> list[Trial]:
        """Let sbatch check each form of the GPU directive; if it does not respond, skip the rest."""
        trials = []
        for form in GPU_FORMS:
            answer = self.run(text.try_gpus_command(form, type_, partition))
            said = answer.stderr.strip().splitlines()
            trials.append(Trial(form, answer.ok, said[-1].strip() if said else ""))
            if answer.status is None:
                break
        return trials

    def look_here(self, host: str) -> HostFacts:
        """Look at this host."""
        return look_at_host(host, self.env, timeout_s=self.within_s)

    def run(self, argv: Sequence[str]) -> Completed:
        """Run one of Slurm's commands without the user's filters."""
        return run_command(argv, timeout_s=self.within_s, env=env_for_answers(self.env))


def _facts(user: str, answers: dict[str, Completed], names: dict[str, str]) -> ClusterFacts:
    problems = {names[key]: _why(answer) for key, answer in answers.items() if not answer.ok and key not in _OF_ASSOC}
    config = text.parse_config(answers["config"].stdout) if answers["config"].ok else {}
    kinds, partitions = text.parse_sinfo(answers["sinfo"].stdout)
    sources = {"nodes": names["sinfo"], "partitions": names["sinfo"]}
    # scontrol shows more than sinfo: resources reserved for the system, users of a partition, preemption
    if detailed := text.parse_nodes(answers["nodes"].stdout):
        kinds, sources["nodes"] = detailed, names["nodes"]
    preempts = "partition_prio" in config.get("PreemptType", "")
    if told := text.parse_partitions(answers["partitions"].stdout, preempts=preempts):
        partitions, sources["partitions"] = told, names["partitions"]
    for key, found in (("sinfo", kinds), ("nodes", detailed), ("partitions", told), ("config", config)):
        if answers[key].ok and not found:
            problems[names[key]] = "its output was not understood"
    associations = text.parse_assoc(answers["assoc"].stdout) if answers["assoc"].ok else None
    account = answers["account"].stdout.strip().splitlines() if answers["account"].ok else []
    return ClusterFacts(
        user=user,
        groups=_groups(),
        config={key: value for key, value in config.items() if key in _CONFIG_KEYS},
        kinds=kinds,
        partitions=partitions,
        associations=associations,
        accounting=answers["sacct"].ok,
        qos=text.parse_qos(answers["qos"].stdout) if answers["qos"].ok else [],
        default_account=account[0].strip() or None if account else None,
        sources=sources,
        problems=problems,
    )


def _why(answer: Completed) -> str:
    lines = answer.stderr.strip().splitlines()
    return lines[-1].strip() if lines else f"exit status {answer.status}"


def _groups() -> tuple[str, ...]:
    names = []
    for gid in os.getgroups():
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:  # a directory service that does not know its own group
            continue
    return tuple(names)


def check_answered(facts: ClusterFacts, otherwise: str = "") -> None:
    """Refuse facts without any node and partition.

    Args:
        otherwise: what else a person can do.

    Raises:
        SchedulerError: nothing answered.
    """
    if facts.partitions or facts.kinds:
        return
    reasons = "\n".join(f"{command}: {why}" for command, why in facts.problems.items())
    raise SchedulerError(
        f"Slurm does not respond:\n{reasons}" if reasons else "this cluster has no partitions",
        hint=f"run it on a machine where `sinfo` works{otherwise}",
    )
