"""The rows of text on the page: what ran, when, where and how, from the record of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from hpcrun.actions.status.decide_status import ended_text
from hpcrun.actions.status.run_status import counts_text
from hpcrun.features.share.share import AttemptSpan, SharedRun
from hpcrun.job import job_states
from hpcrun.job.request.parameters import parameters_text
from hpcrun.job.text.quoting import quote_bash
from hpcrun.job.text.units import listed
from hpcrun.runs.attempt import RESTART
from hpcrun.runs.record import LastStatus, Run, pairs_of
from hpcrun.views.status_table import link_text
from hpcrun.views.text import clock_text, code_text, count, folded_command, size_text

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
    if offset in ("", "+0000"):
        zone = "UTC"
    else:
        zone = f"UTC{offset[:3]}:{offset[3:5]}"
    return f"{when:%Y-%m-%d %H:%M:%S} {zone}"


def tiles(shared: SharedRun) -> Iterator[Row]:
    """Yield the numbers at the top of the page."""
    item, run = shared.item, shared.item.run
    if item.elements:
        yield "Elements", str(len(item.elements))
        done = sum(one.status.state == job_states.COMPLETED for one in item.elements)
        yield "Completed", f"{done} of {len(item.elements)}"
    yield "Size", f"{size_text(run)}, {count(run.world_size, 'rank')}"
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
    item, run, status = shared.item, shared.item.run, shared.item.status
    yield "run", run.run_id if item.element is None else f"{run.run_id}, element {item.element}"
    if run.job_id:
        yield "job", run.job_id
    if item.about:
        yield "parameters", item.about
    yield "state", _state(shared)
    yield "submitted", f"{date_text(run.created_s)} on {run.host}"
    if shared.attempts:
        yield "started", date_text(min(span.attempt.started_s for span in shared.attempts))
    if shared.attempts and status.final:
        yield "ended", date_text(max(span.ended_s for span in shared.attempts))
    yield "where", _where(run)
    nodes = list(dict.fromkeys(node for span in shared.attempts for node in span.nodes))
    if nodes:
        yield "nodes", listed(nodes, MOST_NODES)
    yield from shared.trackers
    place = link_text(run)
    if place:
        yield "chain", place
    if run.resubmitted_from:
        yield "repeats", run.resubmitted_from
    for dependency in run.after:
        yield f"after {dependency['condition']}", dependency["run_id"]


def _state(shared: SharedRun) -> str:
    item, status = shared.item, shared.item.status
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
    parts = [f"{name} {directives[name]}" for name in names if directives.get(name)]
    return ", ".join(
        [f"cluster {run.cluster}" if run.cluster else "Slurm", *parts, f"profile {run.profile}"]
    )


def ended(span: AttemptSpan) -> Row:
    """Return the class in the style sheet, and the words, of the end of an attempt."""
    status, exit_ = span.status, span.attempt.exit
    if status and status.state == job_states.CANCELLED:
        return "stop", "cancelled"
    if exit_ is None:
        runs = status is not None and not status.final
        if runs:
            return ("run", "runs")
        return ("bad", "killed without a record of its end, or its node failed")
    if exit_.again:
        kind = "again"
    elif exit_.status == 0:
        kind = "ok"
    else:
        kind = "bad"
    if exit_.status == 0 and not exit_.reason:
        return kind, "completed"
    again = ", requeued" if exit_.again and exit_.how != RESTART else ""
    return kind, f"{ended_text(span.attempt)}{again}" + (
        f": {exit_.message}" if exit_.message else ""
    )


def command_text(command: Sequence[Sequence[str]]) -> str:
    """Return the text of a command.

    A long command is on several lines, where an option and its value stay together.
    """
    return "\n".join(
        folded_command((" ".join(map(quote_bash, words)) for words in command), _LONGEST_LINE)
    )


def program_text(shared: SharedRun) -> str:
    """Return the command of every rank; empty if the record has none."""
    words = shared.item.run.plan.get("command")
    if not isinstance(words, list) or shared.item.run.plan.get("preflight") == "only":
        return ""
    more = ["..."] if shared.item.run.plan.get("sweep") else []
    return " ".join([*map(quote_bash, map(str, words)), *more])


def code_rows(shared: SharedRun) -> Iterator[Row]:
    """Yield the code that ran."""
    if shared.code is None:
        yield (
            "snapshot",
            "none: the job ran the files themselves, which may have changed since (hpcrun submit "
            "--snapshot)",
        )
        return
    yield "snapshot", code_text(dict(shared.code))
    if shared.code.get("commit"):
        yield "commit", str(shared.code["commit"])
    if shared.item.run.code_of:
        yield "of run", shared.item.run.code_of


def element_label(index: int, shared: SharedRun) -> str:
    """Return the name of an element on the time line."""
    parameters = next((one.parameters for one in shared.item.elements if one.index == index), ())
    if parameters:
        return f"{index}: {parameters_text(parameters)}"
    return str(index)
