"""The facts of a cluster in a file of the user's cache, so that a submission without a profile asks Slurm nothing more.

The file is valid while slurm.conf, the files that it includes, and gres.conf are the same. Accounts, and changes by
``scontrol update``, are in none of these files, so it is valid for a day at most; and a configuration that has changed
just now may not yet be the controller's, so it is valid only for as long as the configuration has not changed.
It is only a copy: if it cannot be read or written, Slurm is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hpcrun.reading import open_regular
from hpcrun.schedulers.detect import ClusterFacts
from hpcrun.schedulers.detect_text import Association, NodeKind, Partition, QosLimits
from hpcrun.schedulers.slurm import slurm_conf_paths
from hpcrun.version import __version__
from hpcrun.writing import replace_file

LONGEST_S = 24 * 3600.0
SHORTEST_S = 60.0
WITHOUT_FILE_S = 3600.0
"""How long facts are valid if there is no slurm.conf to watch: a client may get it from the controller (configless)."""
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.MULTILINE | re.IGNORECASE)
_MOST_FILES = 50
_MOST_BYTES = 32 << 20
"""Bytes of a cluster's facts: one of 10,000 nodes has far fewer, since equal nodes are counted together."""


@dataclass(frozen=True, slots=True)
class ConfigStamp:
    """The present state of Slurm's configuration files.

    Attributes:
        digest: changes with the contents of the files.
        changed_s: when the newest one changed, in seconds since the epoch; None if no file can be read.
    """

    digest: str
    changed_s: float | None

    def valid_for_s(self, now_s: float) -> float:
        """Return how long facts of this moment are valid."""
        if self.changed_s is None:
            return WITHOUT_FILE_S
        return min(LONGEST_S, max(SHORTEST_S, now_s - self.changed_s))


def read_stamp(env: Mapping[str, str]) -> ConfigStamp:
    """Return the state of the configuration files; no command runs."""
    digest, newest = hashlib.sha256(__version__.encode()), None
    for path in slurm_conf_paths(env):
        for content, changed_s in _files(path):
            digest.update(content)
            newest = max(newest or 0.0, changed_s)
        if newest is not None:
            break
    return ConfigStamp(digest.hexdigest(), newest)


def _files(conf: Path) -> Iterator[tuple[bytes, float]]:
    """Yield the contents and the time of slurm.conf, of the files that it includes, and of gres.conf beside it."""
    left, done = [conf, conf.with_name("gres.conf")], set[Path]()
    while left and len(done) < _MOST_FILES:
        path = left.pop(0)
        if path in done:
            continue
        done.add(path)
        try:
            content, changed_s = path.read_bytes(), path.stat().st_mtime
        except OSError:
            if path == conf:
                return
            continue
        yield content, changed_s
        # slurm.conf(5): a name without a folder is beside slurm.conf
        left += [conf.parent / name.strip("\"'") for name in _INCLUDE.findall(content.decode("utf-8", "replace"))]


@dataclass(frozen=True, slots=True)
class FactsCache:
    """The file with the facts of one cluster.

    Attributes:
        folder: its folder, which belongs to the user.
        cluster: the cluster; None if it has no name.
    """

    folder: Path
    cluster: str | None

    @property
    def path(self) -> Path:
        """The file: one for each cluster, since a home may be that of several."""
        return self.folder / f"facts-{re.sub(r'[^A-Za-z0-9_-]', '_', self.cluster or 'unnamed')}.json"

    def load(self, stamp: ConfigStamp, now_s: float) -> ClusterFacts | None:
        """Return the facts, None if they are too old, or of another configuration or user, or cannot be read."""
        try:
            with open_regular(self.path, links=False) as file:
                found = os.fstat(file.fileno())
                if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022 or found.st_size > _MOST_BYTES:
                    return None
                said = json.loads(file.read(_MOST_BYTES))
            valid = said["digest"] == stamp.digest and 0 <= now_s - said["asked_s"] < said["valid_s"]
            return _facts(said["facts"]) if valid else None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def save(self, facts: ClusterFacts, stamp: ConfigStamp, now_s: float) -> None:
        """Keep facts; if something that should have answered did not, only for a minute."""
        valid_s = SHORTEST_S if _is_partial(facts) else stamp.valid_for_s(now_s)
        said = {"digest": stamp.digest, "asked_s": now_s, "valid_s": valid_s, "facts": asdict(facts)}
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self.path, json.dumps(said).encode(), durable=False)

    def drop(self) -> None:
        """Forget the facts: Slurm has refused a job that they allow."""
        with suppress(OSError):
            self.path.unlink()


def _is_partial(facts: ClusterFacts) -> bool:
    """Whether a command failed that should have worked: without a database, sacctmgr and sacct always fail."""
    database = "slurmdbd" in facts.config.get("AccountingStorageType", "")
    return any(database or not command.startswith("sacct") for command in facts.problems)


def _facts(said: dict[str, Any]) -> ClusterFacts:
    associations = said["associations"]
    return ClusterFacts(
        **{
            **said,
            "groups": tuple(said["groups"]),
            "kinds": [_kind(kind) for kind in said["kinds"]],
            "partitions": [Partition(**_with_tuples(part)) for part in said["partitions"]],
            "qos": [QosLimits(**limits) for limits in said["qos"]],
            "associations": None if associations is None else [Association(**_with_tuples(a)) for a in associations],
        }
    )


def _kind(said: dict[str, Any]) -> NodeKind:
    return NodeKind(**{**said, "gpus": tuple((type_, count) for type_, count in said["gpus"])})


def _with_tuples(said: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
