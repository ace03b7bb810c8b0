"""hpcrun explain."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from hpcrun.actions.runs.allocation import check_running
from hpcrun.actions.status.run_status import RunStatus, element_of
from hpcrun.actions.status.status_query import get_status
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context
from hpcrun.cli.options import argument, check_one_of, flag, option
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, note, table, width
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import NotFoundError, PlanError, UsageError
from hpcrun.job.job_states import RUNNING
from hpcrun.job.text.quoting import quote_bash

if TYPE_CHECKING:
    from hpcrun.explain.diagnosis.rules import Rule
    from hpcrun.explain.ended import Explanation


def explain(
    runs: list[str] | None = argument(
        "RUN",
        "Job id, run id, name, or 'last', the default; RUN/3 is element 3 of a sweep."
        " The job may be one that hpcrun did not submit.",
        complete=run_name,
    ),
    log: list[str] | None = option(
        "--log FILE", "Explain these log files instead of a run; - reads a pipe."
    ),
    stacks: bool = flag(
        "--stacks", "Show where each rank of a running job is, by py-spy, faulthandler or /proc."
    ),
    folder: str | None = RUNS,
    _json: JsonOption = False,
) -> Outcomes:
    """Explain why a run failed: the cause, the evidence, what to do.

    Of a running job it shows how long since each rank wrote, and whether
    something looks stuck.

    For an unknown failure it shows the exception and the last lines of the
    rank that failed first.
    """
    check_one_of(runs=folder, log=log)
    check_one_of(runs=folder, stacks=stacks)
    context = context_of(folder)
    words = runs or []
    if log or words == ["-"]:
        if stacks:
            raise UsageError(
                "--stacks and logs cannot be combined: it needs a running job",
                hint="hpcrun explain --stacks",
            )
        yield _logs(words, log or [], context)
        return
    if len(words) > 1:
        raise UsageError(
            f"explain takes one run; unexpected: {words[1]!r}",
            hint=f"hpcrun explain {quote_bash(words[0])}",
        )
    rules = context.rules()
    name = words[0] if words else "last"
    try:
        yield from _run(name, context, rules, stacks=stacks)
    except NotFoundError:
        is_own = words and context.foreign is None
        explanation = _job(name, context, rules) if is_own else None
        if explanation is None:
            if words and os.path.isfile(name):
                raise NotFoundError(
                    f"there is no run {name!r}, but a file of this name",
                    hint=f"hpcrun explain --log {quote_bash(name)} explains it as a log",
                ) from None
            raise
        if stacks:
            raise PlanError(
                f"--stacks needs a run of hpcrun's, and hpcrun did not submit {name}",
                hint=f"hpcrun explain {name}",
            ) from None
        remark = "is a job that hpcrun did not submit: explained from its state and its output"
        yield note([f"{name} {remark}"])
        yield _shown(explanation)


def _logs(words: list[str], log: list[str], context: Context) -> Outcome:
    from hpcrun.explain.any_job_or_log import explain_logs

    names = [*log, *words]  # --log a.out b.err: the shell's pattern gives several
    if "-" in names and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(
            "- reads a log from a pipe, but there is none", hint="hpcrun explain - < train.log"
        )
    return _shown(explain_logs(names, context.rules()))


def _run(name: str, context: Context, rules: tuple[Rule, ...], *, stacks: bool) -> Outcomes:
    from hpcrun.explain import ended, since_good, unrecorded_end
    from hpcrun.explain.running import most_silent

    [named] = yield from context.named([name])
    result = get_status([named.run.run_id], context.ports)
    if not result.runs:
        raise NotFoundError(
            f"the folder of {named.run.run_id} no longer exists, or cannot be read",
            hint="hpcrun status --all",
        )
    item = result.runs[0]
    if named.element is not None:
        item = element_of(item, named.element)
    if item.elements:
        index = most_silent(item, context.now_s())
        if index is not None:
            item = element_of(item, index)
            which = f"element {index}, which has been silent for the longest time"
            yield note([f"{name} is a sweep; showing {which}"])
    if stacks:
        check_running(item, "hpcrun explain --stacks")
    if item.status.state == RUNNING and not item.elements:
        of_running = _running(item, context, stacks=stacks)
        if of_running is not None:
            yield _shown(of_running)
            return
    if context.foreign is None:
        scheduler = context.scheduler(item.run.scheduler)
        questions = unrecorded_end.Questions(scheduler.node_states, scheduler.end_signal)
        explanation = ended.explain(item, rules, questions=questions)
    else:
        explanation = ended.explain(item, rules)
    new = since_good.since_good_run(item, context.store)
    explanation = replace(explanation, evidence=(*explanation.evidence, *new))
    explained = explanation.item.element
    if explained != named.element:
        yield note([f"{name} is a sweep; showing its first failed element, {explained}"])
    yield _shown(explanation)
    if result.away:
        yield note([f"hpcrun: {result.away.message}; shown is what the run's folder records"])


def _running(item: RunStatus, context: Context, *, stacks: bool) -> Explanation | None:
    """Explain a job that runs; None if its script has not started."""
    from hpcrun.explain.running import explain_running, read_running

    patterns, _ = context.metric_patterns(item.run.profile)
    running = read_running(item, context.now_s(), patterns)
    if running is None:
        return None
    if not stacks:
        return explain_running(running)
    from hpcrun.explain.stacks import take_stacks

    return explain_running(running, take_stacks(running, context.env))


def _job(name: str, context: Context, rules: tuple[Rule, ...]) -> Explanation | None:
    """Explain a job of Slurm's that no run has; None where there is none."""
    from hpcrun.explain.any_job_or_log import explain_job, find_job, is_job_id

    job_id = name.replace("/", "_")
    if not is_job_id(job_id):
        return None
    job = find_job(job_id, context.env)
    if job is None:
        return None
    return explain_job(job, rules, context.now_s())


def _shown(explanation: Explanation) -> Outcome:
    from hpcrun.views.explanation_text import explanation_json, explanation_text

    return Outcome(
        lambda: [table(explanation_text(explanation, width()))],
        lambda: explanation_json(explanation),
    )
