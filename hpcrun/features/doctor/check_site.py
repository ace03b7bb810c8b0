"""Slurm and the runs folder as they are seen from here.

Pure judgement of what was asked and found.
"""

from __future__ import annotations

import errno
import shlex
from dataclasses import dataclass
from pathlib import Path

from hpcrun.features.doctor.check import RUNS, SLURM, Check, Level
from hpcrun.machine.host import Quota, Use
from hpcrun.runs.folder_checks import Mount, RunsFolderFacts
from hpcrun.schedulers.away_nodes import ListedNode
from hpcrun.schedulers.client import COMMANDS, Ping, major_release
from hpcrun.schedulers.cluster_facts import ClusterFacts
from hpcrun.schedulers.job_start import Trial

# Without these no job can be submitted, seen or ended from here.
_NEEDED = frozenset({"sbatch", "squeue", "scancel", "scontrol"})
_SLOW_S = 2.0
_ACCOUNTING = ("sacct", "sacctmgr show assoc")
# File systems that many machines mount at once.
_SHARED = frozenset(
    """
    nfs nfs4 lustre gpfs mmfs beegfs fhgfs ceph fuse.ceph cifs smb3 afs panfs pvfs2 orangefs wekafs
    glusterfs fuse.glusterfs quobyte fuse.quobyte fuse.juicefs gfs2 ocfs2 cvfs dvs
    """.split()
)
_LOW_BYTES = 10**9
_LOW_FILES = 1000
_NEARLY = 0.9
_ELSEWHERE = "HPCRUN_RUNS=/path uses another folder"
_GB = 10**9


@dataclass(frozen=True, slots=True)
class SlurmAnswers:
    """What Slurm's commands answered; what was not asked, since Slurm does not respond, is None.

    Attributes:
        trials: sbatch's judgement of the profile's largest job on one node and, where it refuses
            that, of the smallest.
        awaited: the nodes that keep this largest job from starting now.
    """

    missing: tuple[str, ...]
    version: str | None = None
    ping: Ping | None = None
    facts: ClusterFacts | None = None
    trials: tuple[Trial, ...] = ()
    awaited: tuple[ListedNode, ...] = ()


def judge_slurm(answers: SlurmAnswers) -> list[Check]:
    """Return how Slurm is: its commands here, the controller, accounting."""
    checks = [judge_commands(answers.missing, answers.version)]
    if answers.ping is None:
        return checks
    checks.append(judge_controller(answers.ping))
    if answers.facts is None:
        return checks
    mismatch = judge_versions(answers.version, answers.facts.config.get("SLURM_VERSION"))
    if mismatch:
        checks.append(mismatch)
    for command, why in answers.facts.problems.items():
        if command not in _ACCOUNTING:
            fix = f"`{command}` by hand shows whether the problem persists"
            checks.append(Check(SLURM, command, "yellow", why, fix))
    checks.append(judge_accounting(answers.facts))
    return checks


def judge_commands(missing: tuple[str, ...], version: str | None) -> Check:
    """Judge which of Slurm's commands are on PATH."""
    if missing:
        level: Level = "red" if _NEEDED & set(missing) else "yellow"
        if len(missing) == len(COMMANDS):
            some = "none of Slurm's commands is"
        else:
            some = f"{', '.join(missing)} not"
        fix = (
            "on a laptop: hpcrun login HOST; or load the site's slurm module; without Slurm use "
            "--profile local"
        )
        if level == "yellow":
            fix = "ask the administrators for all Slurm commands, or load its slurm module"
        return Check(SLURM, "commands", level, f"{some} on PATH", fix)
    seen = " ".join(COMMANDS)
    if version:
        seen += f", version {version}"
    return Check(SLURM, "commands", "green", seen)


def judge_versions(client: str | None, controller: str | None) -> Check | None:
    """Judge whether the commands are of the controller's release.

    Return None where the releases are the same, or where one of them is unknown.
    """
    if not client or not controller or major_release(client) == major_release(controller):
        return None
    release = major_release(controller)
    fix = (
        f"use the commands of {release}: load the site's slurm module, or remove another Slurm "
        "from PATH"
    )
    return Check(
        SLURM,
        "versions",
        "yellow",
        f"commands of Slurm {client}, a controller of {controller}",
        fix,
    )


def judge_controller(ping: Ping) -> Check:
    """Judge whether the controller answers."""
    up = [server for server in ping.servers if server.up]
    down = [f"{server.host} ({server.role})" for server in ping.servers if not server.up]
    if not up:
        seen = f"{', '.join(down)} does not respond" if down else ping.words
        fix = "`scontrol ping` shows when it is back; else ask the administrators"
        return Check(SLURM, "controller", "red", seen, fix)
    if ping.took_s >= 1:
        duration = f"{ping.took_s:.1f} s"
    else:
        duration = f"{max(1, round(ping.took_s * 1000))} ms"
    took = f"{up[0].host} answers within {duration}"
    if down:
        return Check(
            SLURM,
            "controller",
            "yellow",
            f"{took}; {', '.join(down)} is down",
            "tell the administrators",
        )
    if ping.took_s > _SLOW_S:
        return Check(
            SLURM, "controller", "yellow", took, "it is busy: poll less often; sbatch may be slow"
        )
    return Check(SLURM, "controller", "green", took)


def judge_accounting(facts: ClusterFacts) -> Check:
    """Judge whether sacct answers."""
    if facts.accounting:
        enforced = facts.config.get("AccountingStorageEnforce", "none")
        return Check(SLURM, "accounting", "green", f"sacct answers; enforced: {enforced}")
    why = facts.problems.get("sacct", "no response")
    fix = "no action needed: when Slurm has purged a job, hpcrun uses the records in its run folder"
    return Check(SLURM, "accounting", "yellow", f"sacct: {why}", fix)


def judge_runs(
    root: Path, place: RunsFolderFacts, quota: Quota | None, *, on_slurm: bool
) -> list[Check]:
    """Return how the runs folder is for this user; on Slurm, other machines must see it."""
    checks = [judge_write(root, place)]
    if place.other_use is not None:
        fix = f"use a folder only for runs: HPCRUN_RUNS={shlex.quote(str(root / 'hpcrun-runs'))}"
        checks.append(
            Check(RUNS, "use", "red", f"it is {place.other_use}; hpcrun creates no runs in it", fix)
        )
    if place.exists or place.unsafe:
        checks.append(judge_access(place))
    if place.mount is not None:
        checks.append(judge_file_system(place.mount, on_slurm=on_slurm))
    checks.append(judge_space(place))
    if quota is not None:
        checks += judge_quota(quota)
    return checks


def judge_write(root: Path, place: RunsFolderFacts) -> Check:
    """Judge whether a file could be written and renamed."""
    error = place.error
    if error is None:
        if place.exists:
            seen = f"{root}"
        else:
            seen = f"{root} will be created; {place.tested} is writable"
        return Check(RUNS, "writable", "green", seen)
    fix = _ELSEWHERE
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = f"free some space there; {_ELSEWHERE}"
    return Check(RUNS, "writable", "red", f"{place.tested}: {error.strerror}", fix)


def judge_access(place: RunsFolderFacts) -> Check:
    """Judge who else can write: what lies there is read, and run, as the person's own."""
    if place.unsafe:
        return Check(RUNS, "access", "red", place.unsafe.message, place.unsafe.hint)
    return Check(RUNS, "access", "green", "no other user can write to it")


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
    free = _size(place.free_bytes)
    has_few_files = False
    if place.free_files is not None:
        free += f" and {place.free_files:,} files"
        has_few_files = place.free_files < _LOW_FILES
    seen = f"{free} left"
    fix = f"free some space there; {_ELSEWHERE}"
    if place.free_bytes == 0 or place.free_files == 0:
        return Check(RUNS, "space", "red", seen, fix)
    if place.free_bytes < _LOW_BYTES or has_few_files:
        return Check(RUNS, "space", "yellow", seen, fix)
    return Check(RUNS, "space", "green", seen)


def judge_quota(quota: Quota) -> list[Check]:
    """Judge what a quota leaves; nothing where there is none."""
    checks = []
    for name, use, text in (
        ("quota", quota.space_kb, lambda kb: _size(kb * 1024)),
        ("quota of files", quota.files, str),
    ):
        most = use.limit or use.quota
        if most:
            seen = f"{text(use.used)} of {text(most)} used"
            level = _level(use, most)
            fix = None
            if level != "green":
                fix = f"remove old runs (hpcrun status --all lists them); {_ELSEWHERE}"
            checks.append(Check(RUNS, name, level, seen, fix))
    return checks


def _level(use: Use, most: int) -> Level:
    if use.limit and use.used >= use.limit:
        return "red"
    over_soft = bool(use.quota) and use.used >= use.quota
    if over_soft or use.used >= most * _NEARLY:
        return "yellow"
    return "green"


def _size(size_bytes: int) -> str:
    if size_bytes >= _GB:
        digits = 0 if size_bytes >= 10 * _GB else 1
        return f"{size_bytes / _GB:.{digits}f} GB"
    if size_bytes >= 10**6:
        return f"{size_bytes // 10**6} MB"
    return f"{size_bytes // 1000} kB"
