"""Submitting one job or a chain of them: for submit and resubmit alike."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cli.context import Context
from hpcrun.cli.outcome import Outcome, note, printed, stderr, verbatim
from hpcrun.errors import UsageError
from hpcrun.job.after import after_text, chain_text, parse_after, parse_chain

if TYPE_CHECKING:
    from hpcrun.actions.jobs.new_run import Lineage
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.actions.jobs.submit import SubmitResult


def check_start(
    after: list[str] | None, chain: str | None, *, follow: bool = False, wait: bool = False, as_json: bool = False
) -> None:
    """Refuse what cannot be read, before anything is shown.

    Raises:
        UsageError: an option means nothing, or a chain was also to be waited for.
    """
    if follow and as_json:
        raise UsageError("--follow and --json cannot be combined", hint="use --wait --json")
    if not after and chain is None:
        return

    for text in after or ():
        parse_after(text)
    if chain is not None:
        parse_chain(chain)
    if chain is not None and (follow or wait):
        raise UsageError(
            "--chain cannot be combined with --follow or --wait", hint="follow one of its runs: hpcrun logs -f RUN"
        )


def check_follow(prepared: Prepared, *, follow: bool) -> None:
    """Refuse to follow a sweep.

    Raises:
        UsageError: it has a log per element.
    """
    if follow and prepared.plan.sweep:
        raise UsageError(
            "--follow shows one log, but a sweep has one per element",
            hint="use --wait, or follow one element after the submission: hpcrun logs -f NAME/0",
        )


def with_after(lineage: Lineage, after: list[str] | None, context: Context) -> Generator[Outcome, None, Lineage]:
    """Return the lineage with the runs that were named to be waited for."""
    if not after:
        return lineage
    from hpcrun.actions.jobs.after_and_chain import resolve_after

    conditions = [parse_after(text) for text in after]
    resolved, notes = resolve_after(conditions, context.ports)
    yield note(notes)
    return replace(lineage, after=resolved)


def dry_run_outcome(
    prepared: Prepared, parts: Sequence[Prepared] = (), more: Sequence[tuple[str, str]] = ()
) -> Outcome:
    """Return what would be submitted: the plan on stderr and the script on stdout, or one document.

    Args:
        parts: the arrays of a sweep that is more than one.
        more: rows of the plan; see ``plan_lines``.
    """
    from hpcrun.views.plan import joined_json, plan_lines, prepared_json

    parts = parts or [prepared]
    return Outcome(
        lambda: [stderr(plan_lines(prepared.plan, more)), verbatim("".join(part.script.text for part in parts))],
        lambda: joined_json([prepared_json(part) for part in parts]),
    )


def _arrays(prepared: Prepared, context: Context, chain: str | None) -> Generator[Outcome, None, Sequence[Prepared]]:
    """Return the arrays in which the cluster takes a sweep; a job that is no sweep stays as it is."""
    if not prepared.plan.sweep:
        return [prepared]
    if chain is not None:
        raise UsageError("--chain does not support sweeps", hint="requeue its elements with --requeue N")

    from hpcrun.cli.submit_sweep import parts_of  # few jobs are sweeps

    parts = parts_of(prepared, context)
    if len(parts) > 1:
        names = f"{parts[0].plan.name} to {parts[-1].plan.name}"
        yield note([f"note: the cluster's MaxArraySize requires {len(parts)} runs, {names}"])
    return parts


def _waiting(prepared: Prepared, after: list[str] | None, chain: str | None) -> list[tuple[str, str]]:
    """Return the rows of the plan that say on what the job waits, and which jobs follow.

    Raises:
        PlanError, UsageError: it cannot wait.
    """
    if not after and chain is None:
        return []
    from hpcrun.actions.jobs.after_and_chain import check_can_wait

    rows = []
    if after:
        check_can_wait(prepared.plan, "--after")
        rows.append(("after", after_text([parse_after(text) for text in after])))
    if chain is not None:
        check_can_wait(prepared.plan, "--chain")
        rows.append(("chain", chain_text(parse_chain(chain))))
    return rows


def submit_job(
    prepared: Prepared,
    context: Context,
    lineage: Lineage | None = None,
    *,
    after: list[str] | None,
    chain: str | None,
    again: str | None = None,
    output_dir: Path | None = None,
    dry_run: bool = False,
) -> Generator[Outcome, None, list[SubmitResult]]:
    """Submit a job, a chain of jobs, or the arrays of a sweep, and show each when it is: the next may be refused.

    Args:
        lineage: what it has to do with earlier runs; None for nothing.
        again: of a run that is submitted again: see ``again_text``.

    Raises:
        HpcrunError: one was refused; the message says what stays submitted.
    """
    parts = yield from _arrays(prepared, context, chain)
    more = [("again", again)] if again else []
    more += _waiting(prepared, after, chain)
    if dry_run:
        yield dry_run_outcome(prepared, parts, more)
        return []
    from hpcrun.actions.jobs.new_run import Lineage
    from hpcrun.actions.jobs.submit import JobSeries, submit_all
    from hpcrun.views.plan import plan_lines, submissions_json, submitted_lines

    lineage = yield from with_after(lineage or Lineage(), after, context)
    yield printed(plan_lines(prepared.plan, more))
    if chain is None:
        series, lines, document = JobSeries("array", parts, lambda _: lineage), submitted_lines, submissions_json
    else:
        from hpcrun.actions.jobs.after_and_chain import chain_links
        from hpcrun.views.lineage import chain_json, link_line, look_line

        links = chain_links(prepared, parse_chain(chain), lineage, context.surroundings)
        series, lines, document = links, link_line, chain_json
    done: list[SubmitResult] = []
    for result in submit_all(series, context.ports, context.surroundings, output_dir):
        done.append(result)
        yield printed(lines(result), lambda: document(done))
    if chain is not None:
        yield printed(look_line(done))
    return done
