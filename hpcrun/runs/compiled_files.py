"""--warm: which compiled files an attempt began with, and what its compilers have made."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from hpcrun.files import reading
from hpcrun.job.run_paths import AttemptFolder, RunsFolder, parse_nodes
from hpcrun.runs.attempt import Attempt, names_in

_WARM: dict[str, reading.Kind] = {
    "into": reading.text,
    "run": reading.text,
    "files": reading.whole(),
    "cold": reading.text,
    "set": reading.list_of(reading.text),
}
_NEW: dict[str, reading.Kind] = {
    "files": reading.whole(),
    "first": reading.time_s,
    "last": reading.time_s,
}
# as in_job/launch/compiled/generations.py names and limits them
_SET = re.compile(r".+\.(?P<code>[0-9a-f]{16})\.(?P<size>\d{1,15})\.set")
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class NewFiles:
    """What the compilers of one node have made: files, and the times of the first and the last."""

    files: int
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class CompiledFiles:
    """The compiled files of an attempt.

    Attributes:
        run: the run whose files each node had at the start; empty after a cold start.
        unpacked: the number of these files.
        why_cold: why the attempt started cold although there were such files; empty otherwise.
        new: node → what its compilers have made, of nodes where this is more than nothing.
        chosen: the variables of compilers that a person has set: their files are not kept.
        saved: the bytes of the archives with the new files; None if they are not all there.
    """

    run: str
    unpacked: int
    why_cold: str
    new: Mapping[str, NewFiles]
    chosen: tuple[str, ...]
    saved: int | None

    @property
    def last_s(self) -> float:
        """When a compiler made the last new file, in seconds since the epoch; 0 without any."""
        return _last_s(self.new)


def compiled_files(attempt: Attempt) -> CompiledFiles | None:
    """Return the compiled files of an attempt; None if it keeps none, or that is not known."""
    try:
        record, _ = reading.read_fields(reading.read_object(attempt.folder.warm), _WARM)
    except (OSError, ValueError):
        return None
    return CompiledFiles(
        run=record.get("run", ""),
        unpacked=record.get("files", 0),
        why_cold=record.get("cold", ""),
        new=_new_files(attempt.folder),
        chosen=tuple(record.get("set", ())),
        saved=_saved(attempt.folder, record.get("into", "")),
    )


def last_compiled_s(folder: AttemptFolder) -> float:
    """Return when a compiler made the last file, in seconds since the epoch; 0 if none is known."""
    return _last_s(_new_files(folder))


def _last_s(new: Mapping[str, NewFiles]) -> float:
    return max((of_node.last_s for of_node in new.values()), default=0.0)


def _new_files(folder: AttemptFolder) -> dict[str, NewFiles]:
    new = {}
    for node in parse_nodes(names_in(folder.path), "compiled"):
        try:
            data = reading.read_object(folder.node_file(node, "compiled"))
            record, _ = reading.read_fields(data, _NEW, needed=tuple(_NEW))
        except (OSError, ValueError):
            continue
        new[node] = NewFiles(record["files"], record["first"], record["last"])
    return new


def _saved(folder: AttemptFolder, into: str) -> int | None:
    """Return the bytes of the archives of an attempt; None if one is missing, or unknown.

    Only a folder beside the run is looked at: others may have written the record.
    """
    path = PurePath(into)
    generation = RunsFolder(folder.run.parent).compiled(path.parent.name, path.name)
    matches = map(_SET.fullmatch, names_in(generation))
    unpacked = {match["code"]: int(match["size"]) for match in matches if match}
    if not unpacked or sum(unpacked.values()) > _MOST_BYTES:
        return None
    size = 0
    for code in unpacked:
        try:
            size += os.lstat(generation / f"{code}.tar.gz").st_size
        except OSError:
            return None
    return size
