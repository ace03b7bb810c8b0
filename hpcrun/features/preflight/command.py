"""hpcrun preflight, and hpcrun nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from hpcrun.cli.context import make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.job_options import JOB_OPTIONS, SUBMISSION
from hpcrun.cli.options import argument, takes_options
from hpcrun.cli.output import (
    JsonOption,
    Outcome,
    Outcomes,
    TextPart,
    note,
    stderr,
    stdout,
    table,
    tell,
    width,
)
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError, NotFoundError, UsageError
from hpcrun.features.preflight.preflight_wait import NAME, WALLTIME_S, PreflightWatch
from hpcrun.in_job.preflight.grade_checks import CHECKS
from hpcrun.job.request.option_panels import (
    CONTAINER,
    ENVIRONMENT,
    LAUNCHER,
    NAME_AND_MAIL,
    PLACEMENT,
    PROFILE,
    RANKS,
    RESOURCES,
    SIZE,
)
from hpcrun.job.text.units import format_age
from hpcrun.views.text import bytes_text, fields_of, one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.runs.failed_nodes import FailedNode, FailedNodes
    from hpcrun.runs.record import Run

FORGET = "forget"
_COLOURS = {"ok": "green", "slow": "yellow", "FAILED": "red"}
_HEADINGS = (
    "NODE",
    "DNS",
    "PORT",
    "CLOCK",
    "SHM",
    "GEMM",
    "INTRA-NODE\nALL-REDUCE",
    "INTER-NODE\nALL-REDUCE",
    "ERRORS",
)
_ROOMY = 120
_SHORT = 10
"""From this width on all texts are shown; on a narrower terminal only texts of up to this many
characters.
"""


_PANELS = (
    SIZE,
    RANKS,
    RESOURCES,
    PROFILE,
    PLACEMENT,
    LAUNCHER,
    ENVIRONMENT,
    CONTAINER,
    NAME_AND_MAIL,
)


@takes_options(JOB_OPTIONS, panels=_PANELS)
def preflight(
    options: dict[str, Any],
    dry_run: bool = SUBMISSION.flag("--dry-run", "Print the script and submit nothing."),
    _json: JsonOption = False,
) -> Outcomes:
    """Check the nodes of a job: run a short job that tests network and GPUs.

    Exit status 7 if a node is bad; the message names it.
    """
    from hpcrun.actions.jobs.submission import submit
    from hpcrun.cli.submit_flow import dry_run_outcome, prepare_job
    from hpcrun.views.plan_text import prepared_lines, submitted_json

    context = make_context()
    given = {name: value for name, value in options.items() if value is not None}
    job = {
        "name": NAME,
        "walltime_s": f"{WALLTIME_S}s",
        **given,
        "script": NAME,
        "preflight": "only",
    }
    prepared = prepare_job(job, context)
    if dry_run:
        yield dry_run_outcome(prepared)
        return
    yield Outcome(lambda: [stderr(prepared_lines(prepared))])
    submitted = submit(prepared, context.ports, context.surroundings)
    yield Outcome(document=lambda: submitted_json(submitted))  # until there is a verdict
    job_id = submitted.run.job_id
    yield note([f"hpcrun: job {job_id}; Ctrl-C cancels it", *submitted.remarks.splitlines()])
    watch = PreflightWatch(
        submitted.run.run_id,
        context.ports,
        lambda state: tell([one_line(f"hpcrun: job {job_id} {state}")]),
    )
    with interrupted_as(partial(_cancel, watch, submitted.run)):
        result = watch.wait()
    yield _verdict(*result, context.now_s())


def _cancel(watch: PreflightWatch, run: Run) -> InterruptedByUser:
    try:
        done = watch.cancel()
    except HpcrunError as error:
        return InterruptedByUser(
            f"interrupted, but job {run.job_id} could not be cancelled: {error.message}",
            hint=f"hpcrun cancel {run.job_id}",
        )
    return InterruptedByUser(f"interrupted; job {run.job_id} {done}")


def _verdict(item: RunStatus, verdict: dict[str, Any], now_s: float) -> Outcome:
    """Return the verdict; it is a failure where a node is bad."""
    failure = None
    if not verdict["ok"]:
        hint = f"hpcrun logs --batch {item.run.job_id}"
        if verdict["exclude"]:
            hint = f"add --exclude={verdict['exclude']}"
        failure = JobFailedError("the preflight found bad nodes", hint=hint)
    return Outcome(
        lambda: [
            table(preflight_table(verdict, width())),
            stdout([*preflight_lines(verdict), *kept_lines(verdict, now_s)]),
        ],
        lambda: preflight_json(item, verdict),
        failure=failure,
    )


def preflight_table(verdict: dict[str, Any], width: int) -> Table:
    """Return the table for a terminal.

    On a narrow terminal, long texts of failed or slow checks are left to the lines below the table.
    """
    from rich.text import Text

    def cell(mark: str, text: str) -> Text:
        if mark in ("slow", "FAILED") and len(text) > _SHORT and width < _ROOMY:
            text = ""
        return Text.assemble((mark, _COLOURS.get(mark, "")), one_line(f" {text}" if text else ""))

    rows = []
    for node in verdict["nodes"]:
        checks = node["checks"]
        rows.append([node["node"], *(cell(**checks[check]) for check in CHECKS)])
    return text_table(_HEADINGS, rows, whole=("NODE",))


def preflight_lines(verdict: dict[str, Any]) -> list[str]:
    """Return the verdict as text, with one line for each bad node."""
    alike: dict[str, list[str]] = {}
    for item in verdict["slow"]:
        alike.setdefault(item["why"], []).append(item["node"])
    slow = [f"slow: {', '.join(nodes)} ({why})" for why, nodes in alike.items()]
    if verdict["ok"]:
        return [*map(one_line, slow), "no bad node" if slow else "all nodes are ok"]
    lines = [f"bad: {item['node']} ({item['why']})" for item in verdict["bad"]]
    lines += [f"bad: {problem}" for problem in verdict["problems"]]
    return [one_line(line) for line in (*slow, *lines)]


def kept_lines(verdict: dict[str, Any], now_s: float) -> list[str]:
    """Return what --keep has left on the nodes for this user, a line for each node.

    Args:
        verdict: the record of the preflight.
        now_s: the time, in seconds of the epoch.

    Returns:
        The lines; none if no node is known to have such data.
    """
    lines = []
    is_known = False
    for node in verdict["nodes"]:
        kept = node.get("kept")
        if kept:
            is_known = True
            copies = ", ".join(_kept_text(copy, now_s) for copy in kept)
            lines.append(one_line(f"kept on {node['node']}: {copies}"))
        elif kept is None:
            lines.append(one_line(f"kept on {node['node']}: not known"))
    return lines if is_known else []


def _kept_text(copy: dict[str, Any], now_s: float) -> str:
    """Return source, size and age of a copy, as far as they are known."""
    facts = []
    if copy["bytes"] is not None:
        facts.append(bytes_text(copy["bytes"]))
    if copy["used"] is not None:
        facts.append(f"last used {format_age(now_s - copy['used'])}")
    return f"{copy['source'] or copy['folder']} ({', '.join(facts) or 'not readable'})"


def preflight_json(item: RunStatus, verdict: dict[str, Any]) -> dict[str, Any]:
    """Return the verdict as a JSON document."""
    kept = {key: value for key, value in verdict.items() if key != "schema"}
    return {
        "kind": "preflight",
        **fields_of(item.run, "run_id job_id"),
        "folder": str(item.folder),
        **kept,
    }


def nodes(
    words: list[str] | None = argument(
        "[forget [NODE]...]", "Remove these nodes from the list. Default: all."
    ),
    _json: JsonOption = False,
) -> Outcome:
    """List the nodes on which your runs failed in the last 24 hours.

    hpcrun submit --exclude-bad-nodes excludes them.
    """
    context = make_context()
    now_s = context.now_s()
    command, *named = words or ["list"]
    if command == FORGET:
        return _forget(named, context.failed_nodes, now_s)
    if words:
        raise UsageError(f"unknown word {command!r}", hint="hpcrun nodes forget NODE")
    known = context.failed_nodes.known(now_s)
    return Outcome(lambda: [_listed(known, now_s)], lambda: _document(known))


def _forget(named: Sequence[str], failed: FailedNodes, now_s: float) -> Outcome:
    forgotten = failed.forget(named, now_s)
    missing = [node for node in named if node not in forgotten]
    failure = None
    if missing:
        failure = NotFoundError(
            f"not in the list of failed nodes: {', '.join(missing)}", hint="hpcrun nodes lists them"
        )
    lines = []
    if forgotten:
        lines.append(f"forgotten  {one_line(', '.join(forgotten))}")
    return Outcome(lambda: [stdout(lines)], lambda: _document(failed.known(now_s)), failure=failure)


def _document(known: Iterable[FailedNode]) -> dict[str, Any]:
    return {"kind": "nodes", "nodes": [asdict(one) for one in known]}


def _listed(known: Sequence[FailedNode], now_s: float) -> TextPart:
    if not known:
        return stdout(["no node failed in the last 24 hours"])
    rows = []
    for one in known:
        rows.append([one.node, format_age(now_s - one.failed_s), one.why, one.run_id])
    return table(text_table(("NODE", "LAST FAILURE", "REASON", "RUN"), rows))
