"""The facts of a cluster: a few of Slurm's commands at once, and a copy of their answers in the user's cache.

Thanks to the copy, a submission without a profile asks Slurm nothing more for an hour. If it cannot be read or written,
Slurm is asked.
"""

from __future__ import annotations

import grp
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from hpcrun.errors import SchedulerError
from hpcrun.schedulers import cluster_text as text
from hpcrun.schedulers.cluster_text import Association, NodeKind, Partition, QosLimits
from hpcrun.schedulers.process import Completed, SlurmSite, user_name
from hpcrun.schedulers.slurm import SharedCopy
from hpcrun.version import __version__

_OF_ASSOC = frozenset({"account", "qos"})  # answers of the same database as the associations: one message for all
_CONFIG = ["scontrol", "show", "config"]
_CONFIG_KEYS = frozenset(
    ["ClusterName", "SLURM_VERSION", "AccountingStorageType", "AccountingStorageEnforce", "PreemptType", "PreemptMode"]
)
_PARTITIONS = ["scontrol", "--oneliner", "show", "partition"]
_NODES = ["scontrol", "--oneliner", "show", "node"]
_SACCT = ["sacct", "--allocations", "--noheader", "--parsable2", "--starttime=now", "--format=JobID"]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts that a cluster reports."""

    user: str
    groups: tuple[str, ...]
    config: dict[str, str]
    kinds: list[NodeKind]  # kinds of nodes, by partition
    partitions: list[Partition]
    associations: list[Association] | None  # of the user; None if the database did not respond
    accounting: bool
    default_account: str | None = None  # of the user, which Slurm charges for a job without one
    qos: list[QosLimits] = field(default_factory=list)
    problems: dict[str, str] = field(default_factory=dict)  # command → why it reported nothing


def ask_facts(site: SlurmSite) -> ClusterFacts:
    """Ask everything at once, so that commands that hang take ten seconds together, not each."""
    user = user_name()
    commands = {
        "config": _CONFIG,
        "partitions": _PARTITIONS,
        "nodes": _NODES,
        "assoc": text.assoc_command(user),
        "account": text.sacctmgr("user", user, fields=["defaultaccount"]),  # of a job that names none
        "qos": text.sacctmgr("qos", fields=text.QOS_FIELDS),
        "sacct": _SACCT,
    }
    from concurrent.futures import ThreadPoolExecutor  # not for those who only read what an earlier command asked

    with ThreadPoolExecutor(len(commands)) as pool:
        answers = dict(zip(commands, pool.map(site.run, commands.values()), strict=True))
    return _facts(user, answers, {name: text.command_name(command) for name, command in commands.items()})


def _facts(user: str, answers: dict[str, Completed], names: dict[str, str]) -> ClusterFacts:
    problems = {
        names[key]: _last_line(answer.stderr) or f"exit status {answer.status}"
        for key, answer in answers.items()
        if not answer.ok and key not in _OF_ASSOC
    }
    config = text.parse_config(answers["config"].stdout) if answers["config"].ok else {}
    kinds = text.parse_nodes(answers["nodes"].stdout)
    preempts = "partition_prio" in config.get("PreemptType", "")
    partitions = text.parse_partitions(answers["partitions"].stdout, preempts=preempts)
    for key, facts in (("nodes", kinds), ("partitions", partitions), ("config", config)):
        if answers[key].ok and not facts:
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
        problems=problems,
    )


def _last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2].strip()


def _groups() -> tuple[str, ...]:
    names = []
    for gid in os.getgroups():
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:  # a directory service that does not know its own group
            continue
    return tuple(names)


def check_answered(facts: ClusterFacts, otherwise: str = "") -> None:
    """Raise SchedulerError for facts without any node and partition; ``otherwise`` is what else a person can do."""
    if facts.partitions or facts.kinds:
        return
    reasons = "\n".join(f"{command}: {why}" for command, why in facts.problems.items())
    raise SchedulerError(
        f"Slurm does not respond:\n{reasons}" if reasons else "this cluster has no partitions",
        hint=f"run it on a machine where `sinfo` works{otherwise}",
    )


VALID_S = 3600.0
PARTIAL_VALID_S = 60.0  # if something that should have answered did not


class FactsCache(SharedCopy):
    """The file with the facts of one cluster."""

    kind = "facts"

    def load(self, now_s: float) -> ClusterFacts | None:
        """Return the facts, None if they are too old, of another version, or cannot be read."""
        try:
            record = json.loads(self.read())
            valid = record["version"] == __version__ and 0 <= now_s - record["asked_s"] < record["valid_s"]
            return _facts_of_record(record["facts"]) if valid else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def save(self, facts: ClusterFacts, now_s: float) -> None:
        """Keep facts for an hour; for a minute if something that should have answered did not."""
        valid_s = PARTIAL_VALID_S if _is_partial(facts) else VALID_S
        record = {"version": __version__, "asked_s": now_s, "valid_s": valid_s, "facts": asdict(facts)}
        self.write(json.dumps(record).encode())

    def drop(self) -> None:
        """Forget the facts: Slurm has refused a job that they allow."""
        with suppress(OSError):
            self.path.unlink()


def _is_partial(facts: ClusterFacts) -> bool:
    """Whether a command failed that should have worked: without a database, sacctmgr and sacct always fail."""
    database = "slurmdbd" in facts.config.get("AccountingStorageType", "")
    return any(database or not command.startswith("sacct") for command in facts.problems)


_RECORDS = {"kinds": NodeKind, "partitions": Partition, "qos": QosLimits, "associations": Association}


def _facts_of_record(record: dict[str, Any]) -> ClusterFacts:
    lists = {
        name: [class_(**{key: _tuples(value) for key, value in item.items()}) for item in record[name]]
        for name, class_ in _RECORDS.items()
        if record[name] is not None
    }
    return ClusterFacts(**{**record, **lists, "groups": tuple(record["groups"])})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
