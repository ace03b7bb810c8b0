"""hpcrun cancel, hold, release and shell: what changes or enters a job of the queue."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Iterator, Sequence

from hpcrun.actions.runs.allocation import nodes_of, open_shell, unlisted_words
from hpcrun.actions.runs.cancel import (
    Cancellation,
    cancel_runs,
    change_pending,
    left_waiting,
    named_statuses,
)
from hpcrun.actions.runs.find import FoundRun
from hpcrun.actions.status.run_status import RunStatus, one_element
from hpcrun.actions.status.status_query import active_ids, one_status
from hpcrun.cli.complete import RUN, run_name
from hpcrun.cli.confirm import confirm
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.control_without_terminal import DONE, check_consent
from hpcrun.cli.options import argument, flag, option
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    can_ask,
    note,
    stderr,
    stdout,
    wants_json,
)
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.job_states import PENDING, parse_states
from hpcrun.runs.record import Run
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.protocol import Verb
from hpcrun.views.changes_json import CANCELLED_AS, cancel_json, pending_json
from hpcrun.views.text import count

_RUNS_HELP = "Job ids, run ids, names, or 'last'. RUN/3 is element 3 of a sweep."

_YES = flag(
    "--yes -y",
    "Ask nothing. Without a terminal, only ids and unique names of runs that were submitted without"
    " one need no --yes.",
)


def cancel(
    runs: list[str] | None = argument("RUN", _RUNS_HELP, complete=run_name),
    states: list[str] | None = option(
        "--state STATE", "Cancel runs in these states: pending,running. With RUN, only among those."
    ),
    yes: bool = _YES,
    _json: JsonOption = False,
) -> Outcomes:
    """Cancel runs: terminate running jobs and remove pending ones (scancel)."""
    wanted = parse_states(states or [])
    names = runs or []
    if not names and not wanted:
        raise UsageError(
            "no run is given", hint="hpcrun cancel RUN..., or hpcrun cancel --state pending"
        )
    context = make_context()
    named = yield from context.named(names)
    items = _chosen(named, wanted, context)
    if wanted and not items:
        yield note([f"no runs in this state in {context.store.root}"])
        yield Outcome(document=lambda: cancel_json(Cancellation([], []), []))
        return
    if not yes:
        yield from check_consent("cancel", names, named, items, context)
        if wanted and can_ask() and not wants_json() and not (yield from _agreed(items)):
            yield note(["nothing was cancelled"])
            return
    cancellation = cancel_runs(items, context.ports)
    waiting = _dependents(cancellation, context.store)
    yield Outcome(
        lambda: _cancel_text(cancellation, waiting, summary=bool(wanted)),
        lambda: cancel_json(cancellation, waiting),
    )
    cancellation.check()


def _chosen(
    named: Sequence[FoundRun], states: Collection[str], context: Context
) -> Sequence[RunStatus]:
    """Return the named runs, or all active ones if none is named.

    If states are given, the result has only the runs in one of them.
    """
    if named:
        pairs = [item.named for item in named]
    else:
        pairs = [(run_id, None) for run_id in active_ids(context.store)]
    items = named_statuses(pairs, context.ports)
    if not states:
        return items
    return [item for item in items if item.status.state in states]


def _agreed(items: Sequence[RunStatus]) -> Generator[Outcome, None, bool]:
    """Show the runs, and return whether to cancel them; one run needs no question."""
    if len(items) == 1:
        return True
    lines = []
    for item in items:
        job_id = item.run.job_id or "-"
        lines.append(f"  {item.run.name}  job {job_id}  {item.status.state}")
    yield note(lines)
    return confirm(f"Cancel {count(len(items), 'run')}?")


def _dependents(cancellation: Cancellation, store: RunStore) -> list[Run]:
    """Return the runs that may start once these runs are cancelled as a whole."""
    run_ids = set()
    for cancelled in cancellation.runs:
        if cancelled.seen in CANCELLED_AS and cancelled.item.element is None:
            run_ids.add(cancelled.item.run.run_id)
    return left_waiting(run_ids, store)


def _cancel_text(
    cancellation: Cancellation, waiting: Sequence[Run], *, summary: bool
) -> Iterator[TextPart]:
    lines = []
    for cancelled in cancellation.runs:
        if cancelled.seen not in CANCELLED_AS:
            continue
        run = cancelled.item.run
        line = f"{CANCELLED_AS[cancelled.seen]}  job {run.job_id}, run {run.run_id}"
        if cancelled.item.element is not None:
            line += f"/{cancelled.item.element}"
        lines.append(line)
    yield stdout(lines)
    if waiting:
        names = " ".join(str(run.job_id or run.run_id) for run in waiting)
        hint = f"hint: to cancel them as well: hpcrun cancel {names}"
        yield stderr(["hpcrun: jobs that depend on a cancelled run may start now", hint])
    if summary and len(lines) > 1:
        yield stderr([f"{count(len(lines), 'run')} cancelled"])
    for item in cancellation.others:
        if item.status.final:
            name = _job_or_run(item.run)
            yield stderr([f"hpcrun: {name} has already ended: {item.status.state}"])


def _job_or_run(run: Run) -> str:
    """Return the name of a run's job for a message; the run itself if it has no job id."""
    if run.job_id is None:
        return f"run {run.run_id}"
    return f"job {run.job_id}"


def hold(
    runs: list[str] = argument("RUN", _RUNS_HELP, default=..., complete=run_name),
    yes: bool = _YES,
    _json: JsonOption = False,
) -> Outcomes:
    """Keep pending runs from starting until they are released (scontrol hold)."""
    yield from _change_pending("hold", runs, yes=yes)


def release(
    runs: list[str] = argument("RUN", _RUNS_HELP, default=..., complete=run_name),
    yes: bool = _YES,
    _json: JsonOption = False,
) -> Outcomes:
    """Let runs that were held start (scontrol release)."""
    yield from _change_pending("release", runs, yes=yes)


def _change_pending(verb: Verb, names: list[str], *, yes: bool) -> Outcomes:
    done = DONE[verb]
    context = make_context()
    named = yield from context.named(names)
    items = named_statuses([item.named for item in named], context.ports)
    if not yes:
        yield from check_consent(verb, names, named, items, context)
    changed, others = change_pending(verb, items, context.ports)
    yield Outcome(
        lambda: _changed_text(changed, others, done),
        lambda: pending_json(verb, done, changed, others),
    )
    if not changed:
        raise PlanError(
            f"nothing was {done}: only a pending job can be {done}",
            hint="hpcrun status lists the runs",
        )


def _changed_text(
    changed: Sequence[RunStatus], others: Sequence[RunStatus], done: str
) -> Iterator[TextPart]:
    yield stdout(f"{done}  job {item.run.job_id}, run {item.run.run_id}" for item in changed)
    for item in others:
        yield stderr([f"hpcrun: {_why_unchanged(item, done)}"])


def _why_unchanged(item: RunStatus, done: str) -> str:
    """Return why a run was neither held nor released: its job is not pending, as far as known."""
    name = _job_or_run(item.run)
    state = item.status.state
    if item.status.final:
        return f"{name} has already ended: {state}"
    if item.run.job_id is None:
        return f"{name} has no job id yet: {state}"
    if not item.live:
        return unlisted_words(item)
    if state == PENDING:
        return f"{name} has no pending elements"
    return f"{name} is {state}: only a pending job can be {done}"


def shell(
    run: str = RUN, node: str | None = option("--node NAME", "Node of the job. Default: the first.")
) -> Outcomes:
    """Open a shell inside the allocation of a running job.

    It shares the CPUs, memory and GPUs of the ranks, and ends with the job.
    Without a terminal it reads commands from stdin.
    """
    context = make_context()
    [named] = yield from context.named([run])
    whole = one_status(named.run.run_id, context.ports).runs[0]
    item, remark = one_element(whole, named.element)
    yield note([remark])
    is_terminal = sys.stdin.isatty()
    if is_terminal and item.status.state == "RUNNING":
        if named.run.scheduler == "local":
            place = "this machine"
        else:
            host = node or next(iter(nodes_of(item)), "the first node")
            place = f"{host} (job {item.run.job_id})"
        yield note([f"Shell on {place}. Type exit to leave."])
    status = open_shell(item, node, context.env, is_terminal=is_terminal)
    if status < 0:
        status = 128 - status  # as a shell does after a signal
    yield Outcome(status=status)
