"""Editing a job's command line in the user's editor, for resubmit --edit.

The user edits until the job can be prepared.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import typer
from typer.main import get_command

from hpcrun.actions.jobs.new_run import Lineage, request_record
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.cli.confirm import confirm, find_editor, run_editor
from hpcrun.cli.context import Context
from hpcrun.cli.job_options import JOB_OPTIONS, JOB_SCRIPT
from hpcrun.cli.main import build_app
from hpcrun.cli.output import can_ask, tell
from hpcrun.cli.submit_flow import prepare_job
from hpcrun.errors import HpcrunError, UsageError
from hpcrun.job.request.read_request import read_request
from hpcrun.job.request.request_line import (
    editable_line,
    read_edited_line,
    sweep_options,
    with_remark,
)
from hpcrun.job.text.recognise_secrets import MASK
from hpcrun.runs.elements import all_elements
from hpcrun.runs.record import Run


class EditAbortedError(UsageError):
    """The user changed nothing, or left nothing."""


@contextmanager
def edited_job(
    run: Run, request: dict[str, Any], there: Context, *, fresh: bool
) -> Iterator[Prepared]:
    """Let the user edit a request, and yield the prepared job.

    The user's text is kept if the edit fails, or if what is then done with the job fails.

    Raises:
        EditAbortedError: if nothing was changed, the command is empty, or the editor failed.
        HpcrunError: if the job cannot be prepared or submitted; the hint names the file with the
            text.
    """
    profile = request.pop("profile")
    typed = read_request(request)
    record = request_record(typed)
    kept: dict[str, Any] = {}
    if typed.sweep and sweep_options(typed.sweep) is None:
        kept["sweep"] = typed.sweep
    checkpoints = f"from the checkpoints of {run.run_id}"
    lineage = Lineage(checkpoints=there.store.folder(run.run_id))
    if fresh or lineage.without_checkpoints(list(all_elements(run).parameters)):
        checkpoints = "without checkpoints"
    head = [
        "Edit the command, save and leave the editor: it is submitted. Lines that begin with # are "
        "left out.",
        "Without a change, or without a command, nothing is submitted.",
        f"It runs in {there.cwd}, {checkpoints}.",
    ]
    if MASK in str(record.get("env")):
        head.append("The values of secrets are not shown: leave *** as it is.")
    if kept:
        head.append(f"The parameters of its {len(typed.sweep)} elements stay as they are.")
    before = editable_line(record, profile, head)
    secrets = {f"{name}={MASK}": f"{name}={value}" for name, value in typed.env}
    argv = find_editor(there.env, f"hpcrun resubmit {run.run_id} --time 4h")

    def read(text: str) -> Prepared:
        words = read_edited_line(text)
        if words in ((), read_edited_line(before)):
            what = "nothing was changed" if words else "the command is empty"
            raise EditAbortedError(
                f"{what}, and nothing was submitted", hint=f"hpcrun resubmit {run.run_id}"
            )
        options = kept | _parse_submit(words)
        typed_env = options.get("env", ())
        options["env"] = [secrets.get(assignment, assignment) for assignment in typed_env]
        return prepare_job(options, there)

    # writable by its owner alone
    descriptor, name = tempfile.mkstemp(prefix="hpcrun-edit-", suffix=".sh")
    os.close(descriptor)
    path = Path(name)
    try:
        yield _edit(path, before, read, lambda: run_editor([*argv, name], there.env))
    except EditAbortedError:
        path.unlink(missing_ok=True)
        raise
    except HpcrunError as error:
        if not path.exists():
            raise
        hint = f"your text is kept in {path}"
        if error.hint:
            hint = f"{error.hint}; {hint}"
        raise type(error)(error.message, hint=hint) from None
    path.unlink(missing_ok=True)


def _edit(
    path: Path, text: str, read: Callable[[str], Prepared], run: Callable[[], int]
) -> Prepared:
    """Run the editor until the text can be read; a mistake is shown in the text as well.

    Raises:
        EditAbortedError: if the editor fails, or the user submits nothing.
        HpcrunError: if the text has a mistake, and the user cannot or does not edit it again.
        UsageError: if the file cannot be written or read, or the editor cannot be started.
    """
    while True:
        try:
            path.write_bytes(os.fsencode(text))
            status = run()
            if status:
                raise EditAbortedError(
                    f"the editor ended with exit status {status}; nothing was done"
                )
            text = os.fsdecode(path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot edit {path}: {error.strerror}") from None
        try:
            return read(text)
        except EditAbortedError:
            raise
        except HpcrunError as error:
            if not can_ask():
                raise
            tell(f"hpcrun: {error.message}".splitlines())
            if not confirm(
                "Edit it again?", default=True, interrupted="interrupted; nothing was submitted"
            ):
                raise
            text = with_remark(text, error.message)


def _parse_submit(words: Sequence[str]) -> dict[str, Any]:
    """Return the options that are given in the words behind ``hpcrun submit``.

    Raises:
        UsageError: if the words are not valid for submit, or an option is no part of the job.
    """
    fields = (*JOB_SCRIPT, *JOB_OPTIONS)
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
            raise UsageError(
                f"{option} is no part of the job", hint=f"try hpcrun resubmit --edit {option}"
            )
    given = {name: params[name] for name in fields}
    return {name: value for name, value in given.items() if value is not None}
