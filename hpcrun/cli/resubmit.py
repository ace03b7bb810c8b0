"""hpcrun resubmit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer
from typer.main import get_command

from hpcrun.cli.command_line import new_args
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.job_options import AFTER, CHAIN, DRY_RUN, FOLLOW, SUBMISSION, WAIT, takes_job_options
from hpcrun.cli.options import argument
from hpcrun.cli.outcome import Outcomes, note
from hpcrun.cli.output import JsonOption
from hpcrun.cli.submit_flow import (
    check_follow,
    check_start,
    submit_job,
)
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.runs.record import Run


@takes_job_options(without=("module",))
def resubmit(
    options: dict[str, Any],
    run: str = argument("RUN", "Job id, run id, name, or 'last'.", default=..., complete=run_name),
    args: list[str] | None = argument("-- ARGS", "New arguments of the script. Default: the same as before."),
    fresh: bool = SUBMISSION.flag("--fresh", "Start without the checkpoints of the run."),
    force: bool = SUBMISSION.flag("--force", "Submit even while the run is pending or running."),
    edit: bool = SUBMISSION.flag("--edit", "Edit the command in $VISUAL or $EDITOR first."),
    failed: bool = SUBMISSION.flag("--failed", "Submit only the failed elements of a sweep."),
    after: list[str] | None = AFTER,
    chain: str | None = CHAIN,
    dry_run: bool = DRY_RUN,
    follow: bool = FOLLOW,
    wait: bool = WAIT,
    as_json: JsonOption = False,
) -> Outcomes:
    """Submit a run again; it continues from its checkpoints.

    Script, folder, profile and options stay the same.
    An option given here replaces that option of the run.
    """
    from hpcrun.actions.jobs.resubmit import check_over, failed_of, lineage_of
    from hpcrun.actions.runs.find import find_run
    from hpcrun.cli.submit import prepare_job, wait_for_end
    from hpcrun.views.plan import again_text

    if args and "--" not in sys.argv:
        raise UsageError(f"resubmit takes one run; unexpected: {args[0]!r}",
                         hint="write the script's arguments after --")  # fmt: skip
    if "--" in sys.argv:
        options["args"] = new_args(args or [], run, submits=not dry_run)
    check_start(after, chain, follow=follow, wait=wait, as_json=as_json)
    context = make_context()
    named = find_run(run, context.store)
    yield note([named.note])
    new_snapshot = bool(options["snapshot"])
    if failed:
        options["elements"] = failed_of(named.run, context.ports)
    request, there = _request(named.run, options, context)
    if not dry_run:
        check_over(named.run, context.ports, force=force or failed)
    with (
        _edited(named.run, request, there, fresh=fresh)
        if edit
        else nullcontext(prepare_job(request, there)) as prepared
    ):
        lineage = lineage_of(named.run, prepared.plan, store=context.store, fresh=fresh, new_snapshot=new_snapshot)
        again = again_text(lineage, prepared.plan.workdir or there.cwd)
        check_follow(prepared, follow=follow)
        done = yield from submit_job(prepared, there, lineage, after=after, chain=chain, again=again, dry_run=dry_run)
    yield from wait_for_end(done, there, follow=follow, wait=wait)


def _request(run: Run, options: dict[str, Any], context: Context) -> tuple[dict[str, Any], Context]:
    """Return the request of a run again, and the context as it would be in the run's folder."""
    from hpcrun.actions.jobs.resubmit import folder_of, repeated, same_python

    given = {name: value for name, value in options.items() if value is not None and value is not False}
    if "workdir" in given:
        given["workdir"] = str(context.cwd / Path(given["workdir"]).expanduser())
    profile = given.pop("profile", None) or run.profile_file or run.profile
    # the runs folder stays the one that the run was found in
    env = {**same_python(run.plan.get("python") or {}, context.env), "HPCRUN_RUNS": str(context.store.root)}
    there = Context(env, folder_of(run.cwd, run.run_id))
    return {**repeated(run, given, context.env), "profile": profile}, there


def _edited(run: Run, request: dict[str, Any], there: Context, *, fresh: bool) -> AbstractContextManager[Prepared]:
    """Let the user edit a request as a command line, until the job can be prepared.

    Raises:
        HpcrunError: see ``edited``.
    """
    from hpcrun.actions.jobs.new_run import request_record
    from hpcrun.cli.editor import EditAbortedError, edited, find_editor, run_editor
    from hpcrun.cli.submit import prepare_job
    from hpcrun.job.request import read_request
    from hpcrun.job.secrets import MASK
    from hpcrun.job.submit_line import editable_line, read_edited_line, sweep_options, with_remark

    profile = request.pop("profile")
    typed = read_request(request)
    record = request_record(typed)
    kept = {"sweep": typed.sweep} if typed.sweep and sweep_options(typed.sweep) is None else {}
    checkpoints = "without checkpoints" if fresh else f"from the checkpoints of {run.run_id}"
    head = [
        "Edit the command, save and leave the editor: it is submitted. Lines that begin with # are left out.",
        "Without a change, or without a command, nothing is submitted.",
        f"It runs in {there.cwd}, {checkpoints}.",
        *(["The values of secrets are not shown: leave *** as it is."] if MASK in str(record.get("env")) else []),
        *([f"The parameters of its {len(typed.sweep)} elements stay as they are."] if kept else []),
    ]
    before = editable_line(record, profile, head)
    argv = find_editor(there.env, f"hpcrun resubmit {run.run_id} --time 4h")

    def read(text: str) -> Prepared:
        words = read_edited_line(text)
        if words in ((), read_edited_line(before)):
            what = "nothing was changed" if words else "the command is empty"
            raise EditAbortedError(f"{what}, and nothing was submitted", hint=f"hpcrun resubmit {run.run_id}")
        options = {**kept, **{name: value for name, value in parse_submit(words).items() if value is not None}}
        secrets = {f"{name}={MASK}": f"{name}={value}" for name, value in typed.env}
        return prepare_job({**options, "env": [secrets.get(item, item) for item in options.get("env", ())]}, there)

    return edited(before, read, with_remark, lambda path: run_editor([*argv, str(path)], there.env))


def parse_submit(words: Sequence[str]) -> dict[str, Any]:
    """Return the request of the words behind ``hpcrun submit``, as typed.

    Raises:
        UsageError: an option is unknown, or has no effect here.
    """
    from hpcrun.cli.job_options import job_fields
    from hpcrun.cli.main import build_app

    fields = job_fields()
    command = cast(Any, get_command(build_app(["submit"]))).commands["submit"]
    try:
        params = command.make_context("submit", list(words)).params
    except typer.TyperException as error:
        raise UsageError(error.format_message(), hint="hpcrun submit --help") from None
    except typer.Exit:
        raise UsageError("--help has no effect here") from None
    for name, value in params.items():
        if name not in fields and value:
            option = next(param.opts[0] for param in command.params if param.name == name)
            raise UsageError(f"{option} is no part of the job", hint=f"try hpcrun resubmit --edit {option}")
    return {name: params[name] for name in fields}
