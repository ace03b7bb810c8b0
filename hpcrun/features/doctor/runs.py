"""doctor: the runs folder. Pure judgement of what was found there."""

from __future__ import annotations

import errno
import shlex
from pathlib import Path

from hpcrun.features.doctor.check import RUNS, Check, Level
from hpcrun.runs.file_system import Mount, RunsFolderFacts
from hpcrun.schedulers.host import Quota, Use

# File systems that many machines mount at once.
_SHARED = frozenset(
    """
    nfs nfs4 lustre gpfs mmfs beegfs fhgfs ceph fuse.ceph cifs smb3 afs panfs pvfs2 orangefs wekafs glusterfs
    fuse.glusterfs quobyte fuse.quobyte fuse.juicefs gfs2 ocfs2 cvfs dvs
    """.split()
)
_LOW_BYTES = 10**9
_LOW_FILES = 1000
_NEARLY = 0.9
_ELSEWHERE = "HPCRUN_RUNS=/path uses another folder"
_GB = 10**9


def judge_runs(root: Path, place: RunsFolderFacts, quota: Quota | None, *, uid: int, on_slurm: bool) -> list[Check]:
    """Return how the runs folder is.

    Args:
        uid: of the person who asks.
        on_slurm: whether other machines must see it.
    """
    checks = [judge_write(root, place)]
    if place.other_use is not None:
        fix = f"use a folder only for runs: HPCRUN_RUNS={shlex.quote(str(root / 'hpcrun-runs'))}"
        checks.append(Check(RUNS, "use", "red", f"it is {place.other_use}; hpcrun creates no runs in it", fix))
    if place.exists:
        checks.append(judge_mode(root, place, uid))
    if place.mount is not None:
        checks.append(judge_file_system(place.mount, on_slurm=on_slurm))
    checks.append(judge_space(place))
    return checks if quota is None else [*checks, *judge_quota(quota)]


def judge_write(root: Path, place: RunsFolderFacts) -> Check:
    """Judge whether a file could be written and renamed."""
    error = place.error
    if error is None:
        seen = f"{root}" if place.exists else f"{root} will be created; {place.tested} is writable"
        return Check(RUNS, "writable", "green", seen)
    fix = _ELSEWHERE
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = f"free some space there; {_ELSEWHERE}"
    return Check(RUNS, "writable", "red", f"{place.tested}: {error.strerror}", fix)


def judge_mode(root: Path, place: RunsFolderFacts, uid: int) -> Check:
    """Judge who else can write: what lies there is read, and run, as the person's own."""
    seen = f"mode {place.mode:04o}"
    if place.mode & 0o002:
        return Check(RUNS, "access", "red", f"{seen}: writable by everyone", f"chmod o-w {shlex.quote(str(root))}")
    if place.owner not in (uid, 0):
        return Check(RUNS, "access", "yellow", f"it belongs to another user (uid {place.owner})", _ELSEWHERE)
    if place.mode & 0o020:
        return Check(RUNS, "access", "yellow", f"{seen}: writable by its group", f"chmod g-w {shlex.quote(str(root))}")
    return Check(RUNS, "access", "green", f"{seen}, writable only by {'you' if place.owner == uid else 'root'}")


def is_shared(mount: Mount) -> bool:
    """Return whether a file system is of a kind that many machines mount at once."""
    return mount.kind in _SHARED


def judge_file_system(mount: Mount, *, on_slurm: bool) -> Check:
    """Judge whether compute nodes can plausibly see the folder."""
    seen = f"{mount.kind} at {mount.point}"
    if not on_slurm or is_shared(mount):
        return Check(RUNS, "file system", "green", seen)
    fix = f"if compute nodes cannot see it, use a folder on a shared file system: {_ELSEWHERE}"
    return Check(RUNS, "file system", "yellow", f"{seen}: possibly local to this machine", fix)


def judge_space(place: RunsFolderFacts) -> Check:
    """Judge what is left for an ordinary user."""
    files = "" if place.free_files is None else f" and {place.free_files:,} files"
    seen = f"{_size(place.free_bytes)}{files} left"
    if place.free_bytes == 0 or place.free_files == 0:
        return Check(RUNS, "space", "red", seen, f"free some space there; {_ELSEWHERE}")
    if place.free_bytes < _LOW_BYTES or (place.free_files is not None and place.free_files < _LOW_FILES):
        return Check(RUNS, "space", "yellow", seen, f"free some space there; {_ELSEWHERE}")
    return Check(RUNS, "space", "green", seen)


def judge_quota(quota: Quota) -> list[Check]:
    """Judge what a quota leaves; nothing where there is none."""
    found = []
    for name, use, text in (
        ("quota", quota.space_kb, lambda kb: _size(kb * 1024)),
        ("quota of files", quota.files, str),
    ):
        most = use.limit or use.quota
        if most:
            seen = f"{text(use.used)} of {text(most)} used"
            level = _level(use, most)
            fix = None if level == "green" else f"remove old runs (hpcrun status --all lists them); {_ELSEWHERE}"
            found.append(Check(RUNS, name, level, seen, fix))
    return found


def _level(use: Use, most: int) -> Level:
    if use.limit and use.used >= use.limit:
        return "red"
    over_soft = bool(use.quota) and use.used >= use.quota
    return "yellow" if over_soft or use.used >= most * _NEARLY else "green"


def _size(size_bytes: int) -> str:
    if size_bytes >= _GB:
        return f"{size_bytes / _GB:.{0 if size_bytes >= 10 * _GB else 1}f} GB"
    return f"{size_bytes // 10**6} MB" if size_bytes >= 10**6 else f"{size_bytes // 1000} kB"
