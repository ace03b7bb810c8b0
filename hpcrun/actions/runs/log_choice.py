"""logs: choosing the log files of ranks, roles, nodes and attempts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hpcrun.errors import NotFoundError, UsageError, did_you_mean
from hpcrun.job.request.parameters import parse_indices
from hpcrun.job.run_paths import WITHIN, RoleRanks
from hpcrun.job.text.units import index_ranges
from hpcrun.runs.attempt import Attempt, attempts, hosts, node_ranks, ranks
from hpcrun.runs.log_files import LogFile, has_text, rank_log
from hpcrun.runs.record import Run


@dataclass(frozen=True, slots=True)
class LogChoice:
    """Which logs to show: those of some ranks, of all, of one node, or of the batch script.

    With ``err``, only stderr is shown.
    """

    ranks: tuple[int, ...] = (0,)  # as the job counts them
    roles: tuple[RoleRanks, ...] = ()  # of the run, which name its ranks
    all_ranks: bool = False
    batch: bool = False
    err: bool = False
    element: int = 0  # of a sweep, else 0
    # where the batch script's own is, below the run's folder
    batch_log: str = str(WITHIN.batch_log)
    node: str | None = None
    attempt: int | None = None  # the attempt, counted from 0 as in the records; None for the last
    # the name of the person's batch script, whose output is shown where the ranks have none; empty
    # for other jobs
    script: str = ""

    @property
    def several(self) -> bool:
        """Whether the logs may be those of several ranks, so that each line needs its rank."""
        return self.all_ranks or self.node is not None or len(self.ranks) > 1


def default_choice(run: Run) -> LogChoice:
    """Return the logs of a run that are shown where none are chosen."""
    batch = run.plan.get("batch") or {}
    return LogChoice((run.main_rank,), run.roles, script=batch.get("name", ""))


def script_log(folder: Path, choice: LogChoice, attempt: int = 0) -> LogFile:
    """Return the log of the batch script."""
    return LogFile(folder / choice.batch_log, choice.script or "batch", attempt)


def role_named(run: Run, name: str | None) -> RoleRanks | None:
    """Return the role of a run with this name; None for None.

    Raises:
        NotFoundError: the run has no role of that name.
    """
    if name is None:
        return None
    roles = {role.name: role for role in run.roles}
    if name in roles:
        return roles[name]
    if roles:
        hint = did_you_mean(name, roles, f"its roles: {', '.join(roles)}")
    else:
        hint = "it is a job of one program"
    raise NotFoundError(f"{run.name} has no role {name!r}", hint=hint)


def parse_ranks(text: str, world_size: int, of: str = "the job") -> tuple[int, ...]:
    """Return the ranks in ``0-3,7``; a world size of 0 is not known.

    Raises:
        UsageError: the text is not a list of ranks.
        NotFoundError: a rank is too large for the job or the role.
    """
    try:
        chosen = parse_indices(text)
    except ValueError as error:
        raise UsageError(f"--rank: {error}") from None
    if 0 < world_size <= chosen[-1]:
        raise NotFoundError(
            f"{of} has no rank {chosen[-1]}", hint=f"its ranks are 0 to {world_size - 1}"
        )
    return chosen


def chosen_ranks(run: Run | None, text: str | None, role_name: str | None) -> tuple[int, ...]:
    """Return the ranks of ``--rank`` and ``--role``, as the job counts the ranks.

    The result is empty without either option, or for ``--role`` alone without a run.
    """
    role = role_named(run, role_name) if run else None
    if role is None:
        if text is None:
            return ()
        return parse_ranks(text, run.world_size if run else 0)
    if text is None:
        counted: Sequence[int] = range(role.ranks)
    else:
        counted = parse_ranks(text, role.ranks, f"role {role.name}")
    return tuple(role.first_rank + rank for rank in counted)


def chosen_attempt(folder: Path, choice: LogChoice) -> Attempt | None:
    """Return the chosen attempt, None if it has not started."""
    begun = attempts(folder, choice.element)
    return next((item for item in begun if choice.attempt in (None, item.number)), None)


def check_choice(folder: Path, choice: LogChoice) -> None:
    """Raise an error for an attempt or a node that the run does not have.

    Raises:
        NotFoundError: the run has no such attempt, or the attempt has no such node.
    """
    there = sorted(item.number for item in attempts(folder, choice.element))
    if choice.attempt is not None and choice.attempt not in there:
        if there:
            hint = f"its attempts: {index_ranges(number + 1 for number in there)}"
        else:
            hint = "the job has not started yet"
        raise NotFoundError(f"{folder.name} has no attempt {choice.attempt + 1}", hint=hint)
    attempt = chosen_attempt(folder, choice)
    if choice.node is None or attempt is None:
        return
    nodes = {*hosts(attempt.folder), *node_ranks(attempt.folder)}
    if nodes and choice.node not in nodes:
        raise NotFoundError(
            f"{folder.name} has no node {choice.node}",
            hint=f"its nodes: {', '.join(sorted(nodes))}",
        )


def choose_logs(folder: Path, choice: LogChoice) -> list[LogFile]:
    """Return the existing logs of a choice; none if the job has not started."""
    if choice.batch:
        return [LogFile(folder / choice.batch_log, "batch")]
    attempt = chosen_attempt(folder, choice)
    if attempt is None:
        return []
    return logs_of(attempt, choice)


def logs_of(attempt: Attempt, choice: LogChoice) -> list[LogFile]:
    """Return the logs of an attempt that are chosen, whether or not they exist yet."""
    if choice.node is not None:
        wanted = list(node_ranks(attempt.folder).get(choice.node, ()))
    elif choice.all_ranks:
        wanted = ranks(attempt.folder)
    else:
        wanted = list(choice.ranks)
    streams = ("err",) if choice.err else ("out", "err")
    logs = []
    for role in choice.roles or (None,):
        folder = replace(attempt.folder, role=role)
        for rank in folder.role_ranks(wanted):
            logs += [rank_log(folder, rank, stream, attempt.number) for stream in streams]
    return logs


def finished_logs(folder: Path, choice: LogChoice) -> list[LogFile]:
    """Return the logs of a run to show without following: those with text, else the batch script's.

    If a job fails before its ranks start, only the batch log says why; a person's script may print
    something itself.
    """
    logs = [log for log in choose_logs(folder, choice) if has_text(log)]
    if logs or choice.batch or choice.attempt is not None:
        return logs
    batch = script_log(folder, choice)
    if not has_text(batch):
        return []
    attempt = chosen_attempt(folder, choice)
    if choice.script or attempt is None or not ranks(attempt.folder):
        return [batch]
    return []
