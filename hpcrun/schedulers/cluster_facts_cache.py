"""The last answers of a cluster about itself, in a file that stays valid for an hour."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from hpcrun.schedulers.cluster_facts import (
    Association,
    ClusterFacts,
    NodeKind,
    Partition,
    QosLimits,
)
from hpcrun.schedulers.queue_cache import SharedCopy
from hpcrun.version import __version__

VALID_S = 3600.0
_RECORDS = {
    "kinds": NodeKind,
    "partitions": Partition,
    "qos": QosLimits,
    "associations": Association,
}


class FactsCache(SharedCopy):
    """The file with the facts of one cluster."""

    kind = "facts"

    def load(self, now_s: float) -> ClusterFacts | None:
        """Return the facts, None if they are too old, of another version, or cannot be read."""
        try:
            record = json.loads(self.read())
            age_s = now_s - record["asked_s"]
            if record["version"] != __version__ or not 0 <= age_s < record["valid_s"]:
                return None
            return _facts_of_record(record["facts"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def save(self, facts: ClusterFacts, now_s: float) -> None:
        """Keep facts for an hour, unless something that should have answered did not."""
        if _is_partial(facts):
            return
        record = {
            "version": __version__,
            "asked_s": now_s,
            "valid_s": VALID_S,
            "facts": asdict(facts),
        }
        self.write(json.dumps(record).encode())

    def drop(self) -> None:
        """Forget the facts: Slurm has refused a job that they allow."""
        with suppress(OSError):
            self.path.unlink()


def _is_partial(facts: ClusterFacts) -> bool:
    """Return whether a command failed that should have worked.

    Without a database, sacctmgr and sacct always fail.
    """
    database = "slurmdbd" in facts.config.get("AccountingStorageType", "")
    return any(database or not command.startswith("sacct") for command in facts.problems)


def _facts_of_record(record: dict[str, Any]) -> ClusterFacts:
    fields = {**record, "groups": tuple(record["groups"])}
    for name, class_ in _RECORDS.items():
        if record[name] is not None:
            fields[name] = [class_(**_with_tuples(item)) for item in record[name]]
    return ClusterFacts(**fields)


def _with_tuples(item: dict[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in item.items()}


def _tuples(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_tuples, value))
    return value
