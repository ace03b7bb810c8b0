"""The nodes on which runs of this user failed, for a day.

The nodes are in one small file in the user's state folder. The file is only a hint for submissions:
a file that cannot be read or written is no error, and two processes that write at the same moment
may lose an entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hpcrun.files.reading import kinds_of, needs_of, read_fields, read_object, time_s, whole
from hpcrun.files.writing import make_folder, replace_file

KEPT_S = 24 * 3600.0
MOST = 200
_MOST_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class FailedNode:
    """A node that failed."""

    node: str
    cluster: str | None
    failed_s: float  # when the attempt on it ended, in seconds since the epoch
    why: str  # in words
    run_id: str  # the run that noticed
    # the user has forgotten it; it stays in the file so that the same failure is not added again
    forgotten: bool = False

    def failure(self) -> FailedNode:
        """Return what all entries of the same failure have in common."""
        return replace(self, why="", forgotten=False)

    def is_recent(self, now_s: float) -> bool:
        """Whether the node failed within a day, and not in the future."""
        return 0 <= now_s - self.failed_s < KEPT_S


_KINDS = kinds_of(FailedNode, integer=whole(), real=time_s)


@dataclass(frozen=True, slots=True)
class FailedNodes:
    """The file of failed nodes."""

    path: Path

    def known(self, now_s: float) -> tuple[FailedNode, ...]:
        """Return the nodes that failed within a day and are not forgotten, the newest first.

        Each node has one entry.
        """
        newest: dict[tuple[str | None, str], FailedNode] = {}
        for entry in self._load(now_s):
            if not entry.forgotten:
                newest[entry.cluster, entry.node] = entry
        return tuple(sorted(newest.values(), key=lambda entry: -entry.failed_s))

    def of_cluster(self, cluster: str | None, now_s: float) -> tuple[str, ...]:
        """Return the names of the known failed nodes that belong to a cluster.

        There are none if the cluster has no name.
        """
        if not cluster:
            return ()
        return tuple(entry.node for entry in self.known(now_s) if entry.cluster == cluster)

    def note(self, failures: Iterable[FailedNode], now_s: float) -> None:
        """Add failures that are new."""
        recent = [entry for entry in failures if entry.is_recent(now_s)]
        if not recent:
            return
        before = self._load(now_s)
        known = {entry.failure() for entry in before}
        new = [entry for entry in recent if entry.failure() not in known]
        if new:
            self._save([*before, *new])

    def forget(self, nodes: Sequence[str], now_s: float) -> tuple[str, ...]:
        """Forget these nodes, or all if none is named; return those that were known."""
        entries = self._load(now_s)
        known = {entry.node for entry in entries if not entry.forgotten}
        chosen = known.intersection(nodes) if nodes else known
        if not chosen:
            return ()
        kept = []
        for entry in entries:
            kept.append(replace(entry, forgotten=True) if entry.node in chosen else entry)
        self._save(kept)
        return tuple(sorted(chosen))

    def _load(self, now_s: float) -> list[FailedNode]:
        try:
            rows = read_object(self.path, _MOST_BYTES).get("nodes")
        except (OSError, ValueError):
            return []
        entries = []
        for row in rows if isinstance(rows, list) else ():
            with suppress(ValueError, TypeError):
                known, _ = read_fields(row, _KINDS, needs_of(FailedNode))
                entry = FailedNode(**known)
                if entry.is_recent(now_s):
                    entries.append(entry)
        return sorted(entries, key=lambda entry: entry.failed_s)

    def _save(self, entries: Sequence[FailedNode]) -> None:
        newest = sorted(entries, key=lambda entry: entry.failed_s)[-MOST:]
        text = json.dumps({"nodes": [asdict(entry) for entry in newest]})
        with suppress(OSError):
            make_folder(self.path.parent, 0o700)
            replace_file(self.path, f"{text}\n", durable=False)
