"""hpcrun submit and resubmit."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from typer import TyperException

from hpcrun.actions.ports import Typed
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.job_options import (
    AFTER,
    CHAIN_AND_WAIT,
    DRY_RUN,
    JOB_OPTIONS,
    JOB_SCRIPT,
    START_OPTIONS,
    SUBMISSION,
)
from hpcrun.cli.options import argument, check_one_of, takes_options
from hpcrun.cli.output import JsonOption, Outcomes, note
from hpcrun.cli.stdin_script import is_piped, read_stdin
from hpcrun.errors import UsageError
from hpcrun.job.request.job_request import STDIN
from hpcrun.job.request.option_panels import (
    CONTAINER,
    ENVIRONMENT,
    IDLE_LIMIT,
    LAUNCH,
    LAUNCHER,
    NAME_AND_MAIL,
    PLACEMENT,
    PROFILE,
    RANKS,
    REQUEUE,
    RESOURCES,
    RESTARTS,
    SIZE,
    SNAPSHOT,
    SWEEPS,
)

if TYPE_CHECKING:
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.runs.record import Run


@takes_options(JOB_SCRIPT, JOB_OPTIONS, START_OPTIONS)
def submit(options: dict[str, Any], _json: JsonOption = False) -> Outcomes:
    """Submit a training script as a job.

    Write hpcrun's options before SCRIPT; all words after it go to the script.
    Without SCRIPT, stdin has a batch script, as with sbatch.
    """
    from hpcrun.cli.misplaced_options import option_names, with_typed
    from hpcrun.cli.submit_flow import prepare_job, read_submit_options, submit_job, wait_for_end

    start = read_submit_options(options)
    output_dir = options.pop("output_dir")
    roles = options.pop("roles_file")
    check_one_of(roles=roles, role=options["roles"])
    script = options["script"]
    if script and roles:
        raise UsageError(
            f"--roles names all programs, and {script} is one more", hint="leave it out"
        )
    has_program = bool(script or roles or options["wrap"] is not None)
    context = _with_stdin(options, make_context(), has_program=has_program)
    if roles:
        from hpcrun.profiles.roles_file import load_roles_file  # few jobs have several programs

        options |= load_roles_file(context.cwd / os.path.expanduser(roles))
    context = with_typed(context, options, option_names(submit))
    context = replace(context, typed=replace(context.typed, note=start.note))
    prepared = prepare_job(options, context)
    folder = None
    if output_dir is not None:
        folder = context.cwd / os.path.expanduser(output_dir)
    done = yield from submit_job(prepared, context, start, output_dir=folder, notes_same=True)
    yield from wait_for_end(done, context, start)


def _with_stdin(options: dict[str, Any], context: Context, *, has_program: bool) -> Context:
    """Return the context with the text of stdin, if that is the program of the job.

    Raises:
        TyperException: there is no program at all.
    """
    is_named = options["script"] == STDIN and not options["roles"]
    if has_program and not is_named:
        return context
    text = ""
    if is_named or is_piped():
        text = read_stdin()
    if not (is_named or text.strip()):
        raise TyperException("Missing argument 'SCRIPT'.")
    options["script"] = STDIN
    return replace(context, typed=Typed(stdin=text))


_OF_RESUBMIT = (
    SIZE,
    RANKS,
    RESOURCES,
    IDLE_LIMIT,
    PROFILE,
    PLACEMENT,
    LAUNCHER,
    LAUNCH,
    ENVIRONMENT,
    CONTAINER,
    SWEEPS,
    REQUEUE,
    RESTARTS,
    SNAPSHOT,
    NAME_AND_MAIL,
    AFTER,
    CHAIN_AND_WAIT,
    DRY_RUN,
)


@takes_options(JOB_OPTIONS, START_OPTIONS, panels=_OF_RESUBMIT)
def resubmit(
    options: dict[str, Any],
    run: str = argument("RUN", "Job id, run id, name, or 'last'.", default=..., complete=run_name),
    args: list[str] | None = argument(
        "-- ARGS", "New arguments of the script. Default: the same as before."
    ),
    fresh: bool = SUBMISSION.flag("--fresh", "Start without the checkpoints of the run."),
    force: bool = SUBMISSION.flag("--force", "Submit even while the run is pending or running."),
    edit: bool = SUBMISSION.flag("--edit", "Edit the command in $VISUAL or $EDITOR first."),
    failed: bool = SUBMISSION.flag("--failed", "Submit only the failed elements of a sweep."),
    _json: JsonOption = False,
) -> Outcomes:
    """Submit a run again; it continues from its checkpoints.

    Script, folder, profile and options stay the same.
    An option given here replaces that option of the run.
    """
    from hpcrun.actions.jobs.resubmit import (
        alone_on,
        check_no_calls,
        check_over,
        failed_of,
        folder_of,
        lineage_of,
        repeated,
        same_python,
        stdin_of,
    )
    from hpcrun.actions.runs.find import find_run
    from hpcrun.cli.submit_flow import prepare_job, read_submit_options, submit_job, wait_for_end

    has_args = sys.argv[-1 - len(args or [])] == "--"  # not a -- before RUN
    if args and not has_args:
        raise UsageError(
            f"resubmit takes one run; unexpected: {args[0]!r}",
            hint="write the script's arguments after --",
        )
    if has_args:
        options["args"] = args or []
    start = read_submit_options(options)
    context = make_context()
    named = find_run(run, context.store)
    yield note([named.note])
    check_no_calls(named.run, context.store)
    new_snapshot = bool(options["snapshot"])
    if failed:
        options["elements"] = failed_of(named.run, context.ports)
    given = _given(options, context)
    profile = given.pop("profile", None) or named.run.profile_file or named.run.profile
    request = repeated(named.run, given, context.env)
    request["profile"] = profile
    # in the run's own folder; the runs folder stays that of the run
    env = dict(same_python(named.run.plan.get("python") or {}, context.env))
    env["HPCRUN_RUNS"] = str(context.store.root)
    typed = Typed(stdin=stdin_of(named.run, context.store), note=start.note)
    there = Context(env, folder_of(named.run.cwd, named.run.run_id), typed=typed)
    job: AbstractContextManager[Prepared]
    if edit:
        job = _edited(named.run, request, there, fresh)
    else:
        job = nullcontext(prepare_job(request, there))
    with ExitStack() as held:
        prepared = held.enter_context(job)
        if not (start.dry_run or force):
            held.enter_context(alone_on(named.run, context.store))
            sweep = prepared.plan.sweep
            elements = sweep.chosen if sweep else (0,)
            check_over(named.run, start.after, context.ports, elements, fresh=fresh)
        lineage = lineage_of(
            named.run, prepared.plan, store=context.store, fresh=fresh, new_snapshot=new_snapshot
        )
        done = yield from submit_job(prepared, there, start, lineage)
    yield from wait_for_end(done, there, start)


def _given(options: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the options that were typed; --workdir as a full path."""
    given = {}
    for name, value in options.items():
        if value is not None and value is not False:
            given[name] = value
    if "workdir" in given:
        given["workdir"] = str(context.cwd / os.path.expanduser(given["workdir"]))
    return given


def _edited(
    run: Run, request: dict[str, Any], there: Context, fresh: bool
) -> AbstractContextManager[Prepared]:
    from hpcrun.cli.edit_job import edited_job  # few are edited

    return edited_job(run, request, there, fresh=fresh)
