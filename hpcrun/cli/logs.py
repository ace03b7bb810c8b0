"""hpcrun logs."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.actions.runs.log_choice import (
    LogChoice,
    check_choice,
    choose_logs,
    chosen_attempt,
    chosen_ranks,
    default_choice,
    finished_logs,
)
from hpcrun.actions.status.run_status import element_of, interesting_element
from hpcrun.actions.status.status_query import last_known
from hpcrun.cli.complete import RUN
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.log_output import Lines, print_finished, print_followed
from hpcrun.cli.options import check_least, check_one_of, flag, option, read_duration
from hpcrun.cli.output import Outcome, Outcomes, note
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import InterruptedByUser, UsageError
from hpcrun.explain.first_line import ending, has_failed
from hpcrun.job.text.patterns import Pattern, PatternError, compile_pattern
from hpcrun.job.text.units import rank_text
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.elements import elements_of
from hpcrun.runs.record import Run
from hpcrun.runs.store import DamagedRunError
from hpcrun.views.text import count, one_line

if TYPE_CHECKING:
    from hpcrun.actions.status.wait import Waiter


@dataclass(frozen=True, slots=True)
class _LogSource:
    """The place of the logs; a run with a damaged record has nothing else."""

    folder: Path
    run: Run | None = None
    waiter: Waiter | None = None
    choice: LogChoice = field(default_factory=LogChoice)


def logs(
    run: str = RUN,
    follow: bool = flag("--follow -f", "Follow the log until the job ends (tail -f)."),
    rank: str | None = option(
        "--rank RANKS",
        "Ranks to show: 3, 0-3 or 0-3,7. Default: 0; of a failed run, the rank that failed first.",
    ),
    role: str | None = option(
        "--role NAME", "Show the ranks of one role; --rank then counts its own ranks."
    ),
    all_ranks: bool = flag("--all-ranks", "Show all ranks, each line with its rank."),
    node: str | None = option("--node NAME", "Show the ranks of one node."),
    batch: bool = flag(
        "--batch", "Show the log of the batch script, with the messages of srun and torchrun."
    ),
    err: bool = flag("--err", "Show only stderr."),
    attempt: int | None = option("--attempt N", "Attempt to show, from 1. Default: the last."),
    lines: int | None = option("--lines -n N", "Show only the last N lines."),
    grep: str | None = option("--grep RE", "Show only lines that match a regular expression."),
    since: str | None = option("--since TIME", "Show only lines of the last 10m, 2h ..."),
    merge: bool = flag("--merge", "Sort the lines of all ranks by their timestamps."),
    folder: str | None = RUNS,
) -> Outcomes:
    """Show the output of a run's ranks, stdout and stderr."""
    check_one_of(rank=rank, node=node, batch=batch, **{"all-ranks": all_ranks})
    check_one_of(role=role, node=node, batch=batch, **{"all-ranks": all_ranks})
    check_one_of(batch=batch, merge=merge)
    # the log of the batch script is one for all attempts
    check_one_of(batch=batch, attempt=attempt)
    check_one_of(follow=follow, merge=merge)
    check_one_of(follow=follow, since=since)
    check_least("-n", lines, 0)
    check_least("--attempt", attempt, 1)
    context = context_of(folder)
    pattern = _pattern(grep)
    since_s = _since_s(since, context.now_s())
    place = yield from _find(run, context)
    is_any_rank = rank is None and role is None and node is None
    choice = replace(
        place.choice,
        ranks=chosen_ranks(place.run, rank, role) or place.choice.ranks,
        all_ranks=all_ranks or (merge and is_any_rank),
        batch=batch,
        err=err,
        node=node,
        attempt=None if attempt is None else attempt - 1,  # the records count from 0
    )
    if not is_any_rank or err:
        choice = replace(choice, script="")
    if is_any_rank and choice == replace(place.choice, err=err, script=choice.script):
        choice, remark = _with_failed_rank(choice, place, context)
        yield note([remark])
    check_choice(place.folder, choice)
    begun = chosen_attempt(place.folder, choice)
    if attempt is None and not batch:
        yield note(_last_of_several(begun))
    shown = Lines(
        last=lines,
        pattern=pattern,
        since_s=since_s,
        merge=merge,
        started_s=begun.started_s if begun else context.now_s(),
        colours="NO_COLOR" not in context.env,
    )
    activity = "following" if follow else "reading"
    interrupted = InterruptedByUser(
        f"stopped {activity} the log; the job is not affected",
        hint=f"to continue: hpcrun logs -f {run}",
    )
    with interrupted_as(interrupted):
        yield from _show(place, choice, shown, follow=follow)


def _last_of_several(attempt: Attempt | None) -> list[str]:
    if attempt is None or attempt.number == 0:
        return []
    number = attempt.number + 1
    return [f"hpcrun: showing attempt {number} of {number}; the first: --attempt 1"]


def _find(name: str, context: Context) -> Generator[Outcome, None, _LogSource]:
    try:
        [named] = yield from context.named([name])
    except DamagedRunError as error:
        if error.run_id is None:
            raise
        yield note([f"hpcrun: {error.message}", "its logs are readable:"])
        return _LogSource(context.store.folder(error.run_id))
    run = named.run
    waiter = context.waiter(run.run_id)
    folder = context.store.folder(run.run_id)
    choice = default_choice(run)
    elements = elements_of(run)
    if elements is None:
        return _LogSource(folder, run, waiter, choice)
    element = named.element
    if element is None:
        item = waiter.poll()
        element = interesting_element(item.elements)
        state = element_of(item, element).status.state
        whole = f"{name} is a sweep of {count(len(item.elements), 'element')}"
        shown = f"showing {run.name}/{element}, {state}; choose another with {name}/N"
        yield note([one_line(f"hpcrun: {whole}; {shown}")])
    log = str(elements.batch_log(Path(), element))
    choice = replace(choice, element=element, batch_log=log)
    return _LogSource(folder, run, replace(waiter, element=element), choice)


def _with_failed_rank(
    choice: LogChoice, place: _LogSource, context: Context
) -> tuple[LogChoice, str | None]:
    """Return the choice of the rank that failed first, with a note.

    The run's records say which rank it is. If they do not, the choice stays as it is, without a
    note.
    """
    known = last_known([place.folder.name], store=context.store, now_s=context.now_s())
    if not known.runs:
        return choice, None
    item = known.runs[0]
    if item.elements:
        item = element_of(item, choice.element)
    if not has_failed(item.status):
        return choice, None
    end = ending(item, context.rules)
    if end.rank is None and end.role is None:
        return choice, None
    rank = end.rank or 0
    who = rank_text(rank, role=end.role)
    if end.rank is not None:
        who += ", which failed first"
    if end.role is not None:
        rank += end.role.first_rank
    first = replace(choice, ranks=(rank,))
    if first == choice or not finished_logs(place.folder, replace(first, script="")):
        return choice, None
    other_roles = [f"--role {role.name}" for role in choice.roles if role != end.role]
    others = other_roles[0] if other_roles else "--rank 0"
    return first, f"hpcrun: showing {who}; others: {others}, or --all-ranks"


def _show(place: _LogSource, choice: LogChoice, lines: Lines, *, follow: bool) -> Outcomes:
    waiter = place.waiter
    if follow and waiter is not None:
        item = waiter.current()
        if not item.status.final:
            waiter.tell(item)
            print_followed(place.folder, choice, waiter, lines)
            return
    if not print_finished(place.folder, choice, lines):
        yield note([one_line(f"hpcrun: {_nothing(place, choice)}")])


def _nothing(place: _LogSource, choice: LogChoice) -> str:
    """Return why there is no log to show."""
    state = ""
    if place.waiter is not None:
        status = place.waiter.current().status
        state = f": the job is {status.state}"
        if status.reason:
            state += f" ({status.reason})"
        if not status.final:
            hint = "; --all-ranks shows all roles" if choice.roles else ""
            return f"no output yet{state}{hint}"
    logs = choose_logs(place.folder, choice)
    if logs and not any(log.path.exists() for log in logs):
        return f"there is no log {logs[0].path}: never written, or deleted"
    return f"no output{state}"


def _since_s(since: str | None, now_s: float) -> float | None:
    """Return the time from which --since shows lines; None without --since."""
    return None if since is None else now_s - read_duration("--since", since)


def _pattern(text: str | None) -> Pattern | None:
    if text is None:
        return None
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise UsageError(
            f"--grep {text}: {error}",
            hint=r"it is a regular expression: write \( for a literal bracket",
        ) from None
