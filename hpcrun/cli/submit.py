"""hpcrun submit."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcrun.cli.command_line import option_names, with_typed
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.job_options import AFTER, CHAIN, DRY_RUN, FOLLOW, SUBMISSION, WAIT, takes_job
from hpcrun.cli.outcome import Outcome, Outcomes, TextPart, stderr
from hpcrun.cli.output import JsonOption
from hpcrun.cli.submit_flow import (
    check_follow,
    check_start,
    submit_job,
)
from hpcrun.errors import InterruptedByUser, JobFailedError, UsageError
from hpcrun.job.state import COMPLETED
from hpcrun.views.text import harmless, one_line, time_text

if TYPE_CHECKING:
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.actions.jobs.submit import SubmitResult
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.explain.first_line import Rules
    from hpcrun.job.request import JobRequest


@takes_job
def submit(
    options: dict[str, Any],
    output_dir: Path | None = SUBMISSION.option(
        "--output-dir DIR", "Folder for the run. Default: one per run in the runs folder."
    ),
    after: list[str] | None = AFTER,
    chain: str | None = CHAIN,
    dry_run: bool = DRY_RUN,
    follow: bool = FOLLOW,
    wait: bool = WAIT,
    as_json: JsonOption = False,
) -> Outcomes:
    """Submit a training script as a job.

    Write hpcrun's options before SCRIPT; all words after it go to the script.
    """
    check_start(after, chain, follow=follow, wait=wait, as_json=as_json)
    context = with_typed(make_context(), options, option_names(submit))
    prepared = prepare_job(options, context)
    check_follow(prepared, follow=follow)
    folder = None if output_dir is None else context.cwd / output_dir.expanduser()
    done = yield from submit_job(prepared, context, after=after, chain=chain, output_dir=folder, dry_run=dry_run)
    yield from wait_for_end(done, context, follow=follow, wait=wait)


def prepare_job(options: dict[str, Any], context: Context) -> Prepared:
    """Decide everything about a job that was asked for on the command line.

    Raises:
        UsageError, ProfileError, PlanError: the job is not possible; the hint says what to change.
    """
    request, profile = read_job(options, context)
    return prepare_request(request, profile, context)


def read_job(options: dict[str, Any], context: Context) -> tuple[JobRequest, str]:
    """Return the request that was typed, and the name of its profile.

    Raises:
        UsageError: a value cannot be read, or nothing says which profile.
    """
    from hpcrun.job.request import read_request

    profile = options.pop("profile", None)
    # a list that was not given is None from typer, and empty in the request
    given = {name: value for name, value in options.items() if value is not None}
    if "workdir" in given:
        given["workdir"] = str(context.cwd / Path(given["workdir"]).expanduser())
        if not os.path.isdir(given["workdir"]):
            raise UsageError(f"--workdir: there is no folder {given['workdir']}")
    name = context.profile_name(profile)
    return read_request(given), name


def prepare_request(request: JobRequest, profile: str, context: Context) -> Prepared:
    """Decide everything about a job.

    Raises:
        UsageError, ProfileError, PlanError: the job is not possible; the hint says what to change.
    """
    from hpcrun.actions.jobs.prepare import prepare

    return prepare(request, profile, context.surroundings, context.machine)


def wait_for_end(done: Sequence[SubmitResult], context: Context, *, follow: bool, wait: bool) -> Outcomes:
    """Wait for the end of what was submitted, if a person asked for it.

    Raises:
        InterruptedByUser: Ctrl-C; the job goes on.
    """
    if not (done and (follow or wait)):
        return
    if done[0].run.plan.get("sweep"):
        from hpcrun.cli.submit_sweep import sweep_end

        yield sweep_end(done, context)
    else:
        yield wait_for_run(done[0], context, follow=follow)


def wait_for_run(result: SubmitResult, context: Context, *, follow: bool) -> Outcome:
    """Wait for the end of a run, streaming its log where that was asked for.

    Raises:
        InterruptedByUser: Ctrl-C; the job goes on.
    """
    from hpcrun.actions.runs.logs import LogChoice
    from hpcrun.cli.log_output import print_followed
    from hpcrun.views.plan import submitted_json

    run = result.run
    interrupted = InterruptedByUser(
        f"stopped waiting; job {run.job_id} is not affected",
        hint=f"hpcrun logs -f {run.job_id} follows it again, hpcrun cancel {run.job_id} cancels it",
    )
    waiter = context.waiter(run.run_id)
    with interrupted_as(interrupted):
        if follow:
            print_followed(result.folder, LogChoice(), waiter)
        item = waiter.wait()
    ended = {"state": item.status.state, "exit_status": item.status.exit_status}
    failure = None
    if item.never_starts:
        failure = JobFailedError(
            f"job {run.job_id} never starts, and is still pending", hint=f"hpcrun cancel {run.job_id}"
        )
    elif item.status.state != COMPLETED:
        failure = JobFailedError(f"job {run.job_id} ended as {item.status.state}", hint=f"hpcrun explain {run.job_id}")
    return Outcome(
        lambda: [] if item.never_starts else [_how_it_ended(item), *_what_to_ask_for(item)],
        lambda: {**submitted_json(result), **ended},
        notes=_why_it_failed(item, context.rules),
        failure=failure,
    )


def _why_it_failed(item: RunStatus, rules: Rules) -> Iterator[TextPart]:
    """Say of a run that failed what explain says first, and the last words of the rank it names."""
    from hpcrun.explain.first_line import ending

    if item.status.state == COMPLETED or item.never_starts:
        return
    end = ending(item, rules)
    yield stderr([one_line(f"hpcrun: {end.line}")] if end.line else [])
    if end.rank is not None and end.last_lines.strip():
        yield stderr([f"hpcrun: rank {end.rank} ended with exit status {end.exit_status}; the end of its stderr:"])
        yield stderr(f"  {line}" for line in harmless(end.last_lines).splitlines())


def _what_to_ask_for(item: RunStatus) -> Iterator[TextPart]:
    """Yield what the next run should ask for, by what this one used."""
    from hpcrun.actions.runs.use import run_use, use_advice

    use = None if item.elements else run_use(item.folder, item.element or 0)
    yield stderr(f"hint: {text}" for text in (use_advice(use, completed=item.status.state == COMPLETED) if use else ()))


def _how_it_ended(item: RunStatus) -> TextPart:
    status = item.status
    reason = f" ({status.reason})" if status.reason else ""
    return stderr([f"hpcrun: job {item.run.job_id} {status.state}{reason} after {time_text(status.ran_s)}"])
