"""clean: choose the run folders to remove, and remove them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.actions.note_action import note_action
from hpcrun.actions.ports import Ports
from hpcrun.actions.status.decide_status import LOST_AFTER_S, last_sign_s
from hpcrun.actions.status.past_jobs import job_record, jobs_of_run
from hpcrun.actions.status.run_filter import run_text
from hpcrun.actions.status.run_status import RunStatus, is_in, unconfirmed_text
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import HpcrunError
from hpcrun.job.job_states import UNKNOWN
from hpcrun.job.run_paths import RunFolder, is_checkpoint, parse_numbers
from hpcrun.runs.attempt import has_started, names_in
from hpcrun.runs.store import Leftover, RunStore

DEFAULT_AGE_S = 30 * 86400
"""The age of the runs that ``clean`` removes by default."""
SURELY_OVER_AFTER_S = 30 * 86400.0
"""The time since its last heartbeat after which a started run is over, even if its cluster cannot
be asked.
"""
HAS_CHECKPOINTS = "it has checkpoints"


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """Bytes on the disk."""

    total: int  # of the whole folder, checkpoints included
    checkpoints: int  # of the files in the folders of ``HPCRUN_CHECKPOINT_DIR``


@dataclass(frozen=True, slots=True)
class CleanChoice:
    """The criteria for the runs to remove."""

    older_than_s: int | None = None  # the least age in seconds since the end; None for any age
    states: frozenset[str] = frozenset()  # those in one of these states; empty for any
    keep: int = 0  # but not the newest so many of them
    named: bool = False  # the user has named them one by one
    checkpoints: bool = False  # also runs with checkpoints


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run that could be removed."""

    item: RunStatus
    ended_s: float  # when it ended, in seconds since the epoch
    size: DiskUsage
    kept: str | None = None  # why it stays, None if it is removed


@dataclass(frozen=True, slots=True)
class CleanLeftover:
    """A folder that a killed process left while it made or removed a run."""

    leftover: Leftover
    total: int  # its size in bytes; 0 if it stays, since it may be anything


@dataclass(frozen=True, slots=True)
class CleanPlan:
    """The runs to remove, oldest first, and the requested runs that stay."""

    going: tuple[Candidate, ...]
    staying: tuple[Candidate, ...]
    leftovers: tuple[CleanLeftover, ...] = ()  # leftovers to remove with them, and those that stay

    @property
    def going_leftovers(self) -> tuple[CleanLeftover, ...]:
        """Leftovers that would be removed."""
        return tuple(item for item in self.leftovers if item.leftover.kept is None)

    @property
    def total(self) -> int:
        """The bytes that removing frees."""
        runs = sum(candidate.size.total for candidate in self.going)
        return runs + sum(item.total for item in self.going_leftovers)

    @property
    def checkpoints(self) -> int:
        """Bytes of checkpoints among them."""
        return sum(candidate.size.checkpoints for candidate in self.going)


def plan_clean(
    runs: Sequence[RunStatus], choice: CleanChoice, *, store: RunStore, now_s: float
) -> CleanPlan:
    """Choose the runs to remove.

    A run that may still be alive is never removed, nor a run whose folder is not its own.

    Args:
        runs: all runs with their present status, oldest first.
        choice: which runs the user wants to remove.
        store: the store of the runs, which also lists markers without runs.
        now_s: the present time, in seconds since the epoch.
    """
    chosen = [item for item in runs if _is_chosen(item, choice, now_s)]
    if choice.keep:
        chosen = chosen[: -choice.keep]
    going = []
    staying = []
    users = _users_of_folders(store)
    for item in chosen:
        candidate = _candidate(item, choice, store, now_s)
        user = users.get(item.folder.resolve())
        if candidate.kept is None and user:
            kept = f"{user}, which has not ended, uses its checkpoints or its code"
            candidate = replace(candidate, kept=kept)
        if candidate.kept is None:
            going.append(candidate)
        else:
            staying.append(candidate)
    leftovers = []
    if not choice.named:
        for leftover in store.leftovers(now_s - LOST_AFTER_S):
            total = 0 if leftover.kept else run_size(leftover.path).total
            leftovers.append(CleanLeftover(leftover, total))
    return CleanPlan(tuple(going), tuple(staying), tuple(leftovers))


def still_going(plan: CleanPlan, choice: CleanChoice, ports: Ports) -> CleanPlan:
    """Return the plan after a question to the user, during which a run may have been requeued.

    Such a run stays.
    """
    run_ids = [candidate.item.run.run_id for candidate in plan.going]
    runs = get_status(run_ids, ports).runs
    named = CleanChoice(named=True, checkpoints=choice.checkpoints)
    again = plan_clean(runs, named, store=ports.store, now_s=ports.now_s())
    return replace(again, leftovers=plan.leftovers)


def remove_runs(plan: CleanPlan, ports: Ports) -> tuple[list[Candidate], list[HpcrunError]]:
    """Remove the runs of a plan, and markers without runs.

    What a run has used is noted before its folder goes: ``history`` counts it from then on.

    Returns:
        The removed runs and the failures.
    """
    store = ports.store
    gone = []
    errors = []
    for candidate in plan.going:
        _note_removal(candidate.item, ports)
        try:
            store.delete(candidate.item.run.run_id)
            gone.append(candidate)
        except HpcrunError as error:
            errors.append(error)
    leftovers = [item.leftover for item in plan.going_leftovers]
    errors += store.remove_leftovers(leftovers, ports.now_s() - LOST_AFTER_S)
    return gone, errors


def _note_removal(item: RunStatus, ports: Ports) -> None:
    """Note what a run has used."""
    run = item.run
    jobs = [job_record(job) for job in jobs_of_run(item)]
    note_action(ports, "clean", [run], scheduler=run.scheduler, text=run_text(item), jobs=jobs)


def _users_of_folders(store: RunStore) -> dict[Path, str]:
    """Return the folder of a run → another run that has not ended and needs the folder.

    Links lead from the other run to the checkpoints and to the snapshot of the code.
    """
    users = {}
    for run_id in store.active_ids():
        folder = RunFolder(store.folder(run_id))
        if folder.code.is_symlink():
            users[folder.code.resolve().parent] = run_id
        for index in parse_numbers(names_in(folder.elements))[:1]:  # all have the same lineage
            checkpoints = folder.element(index).checkpoints
            if checkpoints.is_symlink():
                users[checkpoints.resolve().parents[2]] = run_id
    return users


def _is_chosen(item: RunStatus, choice: CleanChoice, now_s: float) -> bool:
    if choice.states and not is_in(item, choice.states):
        return False
    ended_s = last_sign_s(item.run, item.folder, item.status)
    if choice.older_than_s is not None and now_s - ended_s < choice.older_than_s:
        return False
    # a run that may still be alive is listed only if the user named it or its state
    over = _lives(item, ended_s, now_s) is None
    return over or choice.named or bool(choice.states)


def _candidate(item: RunStatus, choice: CleanChoice, store: RunStore, now_s: float) -> Candidate:
    ended_s = last_sign_s(item.run, item.folder, item.status)
    size = run_size(item.folder)
    kept = _lives(item, ended_s, now_s)
    if kept is None and not store.is_own_folder(item.run.run_id):
        if item.folder.is_symlink():
            kept = "its folder is a symbolic link to a folder outside this run"
        else:
            kept = "it belongs to another user"
    if kept is None and size.checkpoints and not choice.checkpoints:
        kept = HAS_CHECKPOINTS
    return Candidate(item, ended_s, size, kept)


def _lives(item: RunStatus, ended_s: float, now_s: float) -> str | None:
    """Return why a run may still be alive, None if it cannot be."""
    if item.status.final and not item.unconfirmed:
        return None
    last_s = max(ended_s, item.status.asked_s)
    is_surely_over = has_started(item.folder) and now_s - last_s > SURELY_OVER_AFTER_S
    last_state = f"it was {item.status.state} when last polled, and may still be"
    if item.unconfirmed:
        if is_surely_over:
            return None
        return f"{unconfirmed_text(item)}; check on {item.run.place}"
    if item.elsewhere:
        if is_surely_over:
            return None
        return f"{last_state}; check on {item.run.place}"
    if item.stale:
        return last_state
    if item.status.state != UNKNOWN:
        return f"it is {item.status.state}"
    if item.run.scheduler == "slurm" and item.run.cluster is None:
        return None if is_surely_over else "its cluster is unknown"
    if now_s - ended_s > LOST_AFTER_S:
        return None
    return "it may still be running"


def run_size(folder: Path) -> DiskUsage:
    """Return the size of a run's folder.

    Links in it are not followed; an unreadable folder counts as empty.
    """
    total = 0
    checkpoints = 0
    waiting: list[tuple[str, tuple[str, ...]]] = [(os.path.realpath(folder), ())]
    # os.walk calls itself for each level up to Python 3.11, and a path may have two thousand
    while waiting:
        where, parts = waiting.pop()
        with suppress(OSError), os.scandir(where) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append((entry.path, (*parts[:3], entry.name)))
                    continue
                with suppress(OSError):  # lstat(2): blocks of 512 bytes, whatever the file system's
                    size = entry.stat(follow_symlinks=False).st_blocks * 512
                    total += size
                    if is_checkpoint(parts):
                        checkpoints += size
    return DiskUsage(total, checkpoints)
