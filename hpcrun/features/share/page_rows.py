"""The rows of text on the page: what ran, when, where and how, from the record of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from hpcrun.actions.status.decide_status import ended_text
from hpcrun.actions.status.run_status import counts_text
from hpcrun.features.share.gather_page import AttemptSpan, SharedRun
from hpcrun.job import job_states
from hpcrun.job.request.parameters import parameters_text
from hpcrun.job.text.quoting import quote_bash
from hpcrun.job.text.units import listed
from hpcrun.runs.attempt import RESTART
from hpcrun.runs.record import LastStatus, Run, pairs_of
from hpcrun.views.status_table import link_text
from hpcrun.views.text import (
    clock_text,
    code_text,
    folded_command,
    size_and_ranks,
    versions_text,
)

Row = tuple[str, str]
_KINDS = {
    job_states.COMPLETED: "ok",
    job_states.RUNNING: "run",
    "COMPLETING": "run",
    "CONFIGURING": "run",
}
_LONGEST_LINE = 88
MOST_NODES = 16


def kind_of(status: LastStatus) -> str:
    """Return the class of a state in the style sheet."""
    return _KINDS.get(status.state, "bad" if status.final else "wait")


def date_text(at_s: float) -> str:
    """Return a date with its time and its distance from UTC: readers may be elsewhere."""
    when = datetime.fromtimestamp(at_s).astimezone()
    offset = when.strftime("%z")
    zone = "UTC"
    if offset not in ("", "+0000"):
        zone += f"{offset[:3]}:{offset[3:5]}"
    return f"{when:%Y-%m-%d %H:%M:%S} {zone}"


def tiles(shared: SharedRun) -> Iterator[Row]:
    """Yield the numbers at the top of the page."""
    item = shared.item
    run = item.run
    if item.elements:
        yield "Elements", str(len(item.elements))
        done = sum(one.status.state == job_states.COMPLETED for one in item.elements)
        yield "Completed", f"{done} of {len(item.elements)}"
    yield "Size", size_and_ranks(run)
    elapsed = item.status.ran_s
    if elapsed:
        yield "Ran for" if item.status.final else "Running for", clock_text(elapsed)
    if shared.attempts:
        waited = min(span.attempt.started_s for span in shared.attempts) - run.created_s
        yield "Waited", clock_text(max(0, int(waited)))
    if len(shared.attempts) > 1 and not item.elements:
        yield "Attempts", str(len(shared.attempts))


def facts(shared: SharedRun) -> Iterator[Row]:
    """Yield what, when and where."""
    item = shared.item
    run = item.run
    name = run.run_id
    if item.element is not None:
        name += f", element {item.element}"
    yield "run", name
    if run.job_id:
        yield "job", run.job_id
    if run.note:
        yield "note", run.note
    if item.about:
        yield "parameters", item.about
    yield "state", _state(shared)
    yield "submitted", f"{date_text(run.created_s)} on {run.host}"
    if shared.attempts:
        yield "started", date_text(min(span.attempt.started_s for span in shared.attempts))
        if item.status.final:
            yield "ended", date_text(max(span.ended_s for span in shared.attempts))
    yield "where", _where(run)
    nodes: dict[str, None] = {}  # in the order of the attempts, each once
    for span in shared.attempts:
        nodes.update(dict.fromkeys(span.nodes))
    if nodes:
        yield "nodes", listed(list(nodes), MOST_NODES)
    if shared.versions:
        yield "versions", versions_text(shared.versions)
    yield from shared.trackers
    yield from _relations(run)


def _relations(run: Run) -> Iterator[Row]:
    """Yield the place of a run in a chain, and the runs that it repeats or waits for."""
    place = link_text(run)
    if place:
        yield "chain", place
    if run.resubmitted_from:
        yield "repeats", run.resubmitted_from
    for dependency in run.after:
        yield f"after {dependency['condition']}", dependency["run_id"]


def _state(shared: SharedRun) -> str:
    item = shared.item
    status = item.status
    if item.elements:
        return counts_text([one.status.state for one in item.elements])
    parts = [status.state]
    if status.exit_status:
        parts.append(f"exit status {status.exit_status}")
    if status.reason and status.reason not in ("NonZeroExitCode", "None"):
        parts.append(status.reason)
    if not status.final or item.stale:
        parts.append(f"as of {date_text(status.asked_s)}")
    return ", ".join(parts)


def _where(run: Run) -> str:
    if run.scheduler == "local":
        return f"{run.host}, without Slurm (profile {run.profile})"
    directives = dict(pairs_of(run.plan.get("directives")))
    names = ("partition", "account", "qos", "constraint", "reservation")
    parts = [f"cluster {run.cluster}" if run.cluster else "Slurm"]
    parts += [f"{name} {directives[name]}" for name in names if directives.get(name)]
    parts.append(f"profile {run.profile}")
    return ", ".join(parts)


def ended(span: AttemptSpan) -> Row:
    """Return the class in the style sheet, and the words, of the end of an attempt."""
    status = span.status
    exit_ = span.attempt.exit
    if status and status.state == job_states.CANCELLED:
        return "stop", "cancelled"
    if exit_ is None:
        if status is not None and not status.final:
            return "run", "runs"
        return "bad", "killed without a record of its end, or its node failed"
    if exit_.again:
        kind = "again"
    else:
        kind = "ok" if exit_.status == 0 else "bad"
    if exit_.status == 0 and not exit_.reason:
        return kind, "completed"
    text = ended_text(span.attempt)
    if exit_.again and exit_.how != RESTART:
        text += ", requeued"
    if exit_.message:
        text += f": {exit_.message}"
    return kind, text


def command_text(command: Sequence[Sequence[str]]) -> str:
    """Return the text of a command.

    A long command is on several lines, where an option and its value stay together.
    """
    groups = [" ".join(map(quote_bash, words)) for words in command]
    return "\n".join(folded_command(groups, _LONGEST_LINE))


def program_text(shared: SharedRun) -> str:
    """Return the command of every rank; empty if the record has none."""
    plan = shared.item.run.plan
    words = plan.get("command")
    if not isinstance(words, list) or plan.get("preflight") == "only":
        return ""
    text = " ".join(quote_bash(str(argument)) for argument in words)
    return f"{text} ..." if plan.get("sweep") else text


def code_rows(shared: SharedRun) -> Iterator[Row]:
    """Yield the code that ran."""
    code = dict(shared.code or {"copied": False})
    if not code.get("copied", True):
        files = "the job ran the files themselves, which may have changed since"
        yield "snapshot", f"none: {files} (hpcrun submit --snapshot)"
        if shared.code:
            yield "at submission", code_text(code)
        return
    yield "snapshot", code_text(code)
    if code.get("commit"):
        yield "commit", str(code["commit"])
    if shared.item.run.code_of:
        yield "of run", shared.item.run.code_of


def element_label(index: int, shared: SharedRun) -> str:
    """Return the name of an element on the time line."""
    for element in shared.item.elements:
        if element.index == index and element.parameters:
            return f"{index}: {parameters_text(element.parameters)}"
    return str(index)
