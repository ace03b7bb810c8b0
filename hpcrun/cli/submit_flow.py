"""What submit and resubmit do: prepare a job, submit it, and show the result.

A job may be a chain of jobs, or the arrays of a sweep; each of them is shown.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hpcrun.actions.jobs.check_limits import has_limits, over_limits
from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import SUBMITTED, terminated_too
from hpcrun.cli.options import check_note, check_one_of
from hpcrun.cli.output import (
    Document,
    Outcome,
    Outcomes,
    TextPart,
    begin_document,
    note,
    printed,
    stderr,
    verbatim,
    wants_json,
)
from hpcrun.errors import UsageError
from hpcrun.job.plan.cost import cost_text
from hpcrun.job.request.after import After, Chain, after_text, chain_text, parse_after, parse_chain
from hpcrun.job.request.job_request import JobRequest
from hpcrun.job.request.read_request import read_request
from hpcrun.views import plan_text
from hpcrun.views.plan_text import prepared_lines

if TYPE_CHECKING:  # a dry run imports nothing that submits
    from hpcrun.actions.jobs.new_run import Lineage
    from hpcrun.actions.jobs.submission import SubmitResult


_NO_ROWS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options of submit that are not the job's: its order, a dry run, waiting, the output."""

    after: tuple[After, ...]
    chain: Chain | None
    dry_run: bool
    follow: bool
    wait: bool
    parsable: bool = False
    note: str | None = None  # of each run

    @property
    def links(self) -> int:
        """How many jobs follow one another; 1 without a chain."""
        return self.chain.links if self.chain else 1


def read_submit_options(options: dict[str, Any]) -> SubmitOptions:
    """Take these options of submit and resubmit from the others, and return them, read.

    Raises:
        UsageError: if --chain-anyway is given without --chain, or options cannot be combined.
    """
    after = options.pop("after")
    chain = options.pop("chain")
    anyway = options.pop("chain_anyway")
    dry_run = options.pop("dry_run")
    follow = options.pop("follow")
    wait = options.pop("wait")
    parsable = options.pop("parsable")
    run_note = options.pop("note")
    if run_note is not None:
        run_note = check_note("--note", run_note)
    if anyway and not chain:
        raise UsageError("--chain-anyway has no effect without --chain")
    check_one_of(follow=follow, json=wants_json())
    check_one_of(chain=chain, follow=follow)
    check_one_of(chain=chain, wait=wait)
    check_one_of(parsable=parsable, json=wants_json())
    check_one_of(parsable=parsable, follow=follow)
    check_one_of(parsable=parsable, **{"dry-run": dry_run})
    runs = tuple(map(parse_after, after or ()))
    links = None
    if chain is not None:
        links = replace(parse_chain(chain), anyway=anyway)
    return SubmitOptions(runs, links, dry_run, follow, wait, parsable, run_note)


def prepare_job(options: dict[str, Any], context: Context) -> Prepared:
    """Prepare a job that was requested on the command line."""
    request, profile = read_job(options, context)
    return prepare_request(request, profile, context)


def read_job(options: dict[str, Any], context: Context) -> tuple[JobRequest, str]:
    """Return the request that was typed, and the name of its profile.

    Raises:
        UsageError: if there is no folder with the name of --workdir.
    """
    profile = options.pop("profile", None)
    # a list that was not given is None from typer, and empty in the request
    given = {name: value for name, value in options.items() if value is not None}
    if "workdir" in given:
        given["workdir"] = str(context.cwd / os.path.expanduser(given["workdir"]))
        if not os.path.isdir(given["workdir"]):
            raise UsageError(f"--workdir: there is no folder {given['workdir']}")
    name = context.profile_name(profile)
    return read_request(given), name


def prepare_request(request: JobRequest, profile: str, context: Context) -> Prepared:
    """Decide everything about a job, as ``prepare_job`` does."""
    return prepare(request, profile, context.surroundings, context.machine)


def dry_run_outcome(
    prepared: Prepared,
    parts: Sequence[Prepared] = (),
    more: Sequence[tuple[str, str]] = (),
    instead: Mapping[str, str] = _NO_ROWS,
    *,
    links: int = 1,
) -> Outcome:
    """Return what would be submitted: the plan and the script, or one document.

    The plan goes to stderr, and the script to stdout.

    Args:
        prepared: the job.
        parts: the arrays of a sweep that needs several arrays.
        more: further rows of the plan; see ``plan_lines``.
        instead: other rows of the plan.
        links: the links of a chain of such jobs.
    """
    parts = parts or [prepared]

    def text() -> Iterator[TextPart]:
        yield stderr(prepared_lines(prepared, more, instead))
        yield verbatim("".join(part.script for part in parts))

    def document() -> dict[str, Any]:
        return plan_text.joined_json([plan_text.prepared_json(part, links) for part in parts])

    return Outcome(text, document)


def submit_job(
    prepared: Prepared,
    context: Context,
    start: SubmitOptions,
    lineage: Lineage | None = None,
    output_dir: Path | None = None,
    instead: Mapping[str, str] = _NO_ROWS,
    *,
    notes_same: bool = False,
) -> Generator[Outcome, None, list[SubmitResult]]:
    """Submit a job, a chain of jobs, or the arrays of a sweep.

    Each submission is shown at once, since the next may be refused.

    Args:
        prepared: the job, which is the whole sweep or the model of the chain.
        context: the folder, the environment and the schedulers of the submission.
        start: which jobs it waits for, the chain, and whether the job is only shown.
        lineage: the relations of a resubmitted run to earlier ones.
        output_dir: the folder for the run instead of the runs folder; None for the runs folder.
        instead: label → text of rows in place of those of the plan.
        notes_same: add a remark if the same command is pending already.

    Raises:
        UsageError: if --follow or --chain is used with a sweep.
    """
    parts = yield from _arrays(prepared, context, start)
    more = []
    if lineage:
        more.append(("again", _again_text(lineage, prepared, context)))
        instead = {**_earlier_code(lineage), **instead}
    more += _waits(prepared, start)
    instead = {"cost": cost_text(replace(prepared.cost(), links=start.links)), **instead}
    if start.dry_run:
        yield note(_limit_notes([*parts] * start.links, context))
        yield dry_run_outcome(prepared, parts, more, instead, links=start.links)
        return []
    from hpcrun.actions.jobs.submission import NO_LINEAGE, submit_all

    lineage = lineage or NO_LINEAGE
    if start.after or start.chain:
        from hpcrun.actions.jobs.after_and_chain import chain_links, note_link, resolve_after

    if start.after:
        resolved, notes = resolve_after(start.after, context.ports)
        yield note(notes)
        lineage = replace(lineage, after=resolved)
    report = _to_stderr if start.parsable else printed
    yield report(prepared_lines(prepared, more, instead))
    noun = "array"

    def same(_: Sequence[SubmitResult]) -> Lineage:
        return lineage

    of_next: Callable[[Sequence[SubmitResult]], Lineage] = same

    lines = plan_text.submitted_lines
    document = plan_text.submissions_json
    if start.chain:
        noun = "link"
        lines = plan_text.link_line
        document = plan_text.chain_json
        parts, of_next = chain_links(prepared, start.chain, lineage, context.surroundings)
    done: list[SubmitResult] = []
    for result in submit_all(
        parts,
        of_next,
        context.ports,
        context.surroundings,
        noun=noun,
        output_dir=output_dir,
        notes_same=notes_same,
    ):
        done.append(result)
        SUBMITTED.append(str(result.run.job_id))
        if start.chain and not start.chain.anyway:
            note_link(result)
        yield report(lines(result), lambda: document(done))
        if start.parsable:
            yield printed([str(result.run.job_id)])
    if start.chain:
        yield report(plan_text.look_line(done))
    return done


def _limit_notes(jobs: Sequence[Prepared], context: Context) -> Iterator[str]:
    """Yield which limits the jobs of a dry run would be over."""
    if not has_limits(context.surroundings):
        return
    for problem in over_limits(jobs, context.ports, context.surroundings):
        yield f"note: over a limit, so that a submission is refused or a person asked: {problem}"


def _again_text(lineage: Lineage, prepared: Prepared, context: Context) -> str:
    """Return the row about the runs that a job repeats."""
    sweep = prepared.plan.sweep
    elements = sweep.chosen if sweep else (0,)
    folder = prepared.plan.workdir or context.cwd
    return plan_text.again_text(lineage, folder, elements)


def _earlier_code(lineage: Lineage) -> dict[str, str]:
    """Return the row about the code of an earlier run; none if the run has code of its own."""
    if not lineage.code_run:
        return {}
    return {"code": plan_text.earlier_code(lineage.code_run)}


def _to_stderr(lines: Iterable[str], _: Document | None = None) -> Outcome:
    """Return lines of the plan and of submitted jobs for --parsable."""
    return Outcome(lambda: [stderr(lines)])


def _arrays(
    prepared: Prepared, context: Context, start: SubmitOptions
) -> Generator[Outcome, None, Sequence[Prepared]]:
    """Return the arrays in which the cluster accepts a sweep.

    The result is one job without such a cluster here, or without a sweep.

    Raises:
        UsageError: if --follow or --chain is used with a sweep.
    """
    if not prepared.plan.sweep:
        return [prepared]
    if start.follow:
        raise UsageError(
            "--follow shows one log, but a sweep has one per element",
            hint="use --wait, or follow one element after the submission: hpcrun logs -f NAME/0",
        )
    if start.chain:
        raise UsageError(
            "--chain does not support sweeps", hint="requeue its elements with --requeue N"
        )
    scheduler = context.scheduler(prepared.plan.scheduler)
    if scheduler.unavailable():
        return [prepared]
    from hpcrun.actions.jobs.submission import sweep_parts

    parts = sweep_parts(prepared, scheduler, context.surroundings)
    if len(parts) > 1:
        names = f"{parts[0].plan.name} to {parts[-1].plan.name}"
        yield note([f"note: the cluster's MaxArraySize requires {len(parts)} runs, {names}"])
    return parts


def _waits(prepared: Prepared, start: SubmitOptions) -> list[tuple[str, str]]:
    """Return the rows of the plan for runs before and after the job.

    These are the runs on which the job waits, and the jobs that follow.
    """
    rows = []
    if start.after:
        rows.append(("after", after_text(start.after)))
    if start.chain:
        rows.append(("chain", chain_text(start.chain)))
    if rows:
        from hpcrun.actions.jobs.after_and_chain import check_can_wait

        for name, _ in rows:
            check_can_wait(prepared.plan, f"--{name}")
    return rows


def wait_for_end(done: Sequence[SubmitResult], context: Context, start: SubmitOptions) -> Outcomes:
    """Wait for the end of the submitted job with --wait or --follow."""
    if not done or not (start.follow or start.wait):
        return
    from hpcrun.cli.submit_end import run_end, sweep_end

    with terminated_too():
        begin_document(plan_text.ids_json(done))
        if done[0].run.plan.get("sweep"):
            yield sweep_end(done, context)
        else:
            yield run_end(done[0], context, follow=start.follow)
