"""hpcrun notify."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.actions.jobs.job_messages import check_locked_destinations
from hpcrun.actions.runs.run_metrics import metric_patterns
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status_query import get_status, last_known
from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import argument, flag
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, stdout
from hpcrun.errors import HpcrunError, PlanError, UsageError
from hpcrun.explain.first_line import explained_status
from hpcrun.features.notify.deliveries import SENT, Delivery, delivery_lines, unclaimed
from hpcrun.features.notify.due import due_events, notify_of, status_in_job
from hpcrun.features.notify.message_text import clean_line, message_of
from hpcrun.features.notify.send import Message, send_message
from hpcrun.job.request.notify_options import (
    NONE,
    check_destination,
    is_slurms_mail,
)
from hpcrun.job.run_paths import RunFolder
from hpcrun.job.text.patterns import compile_pattern
from hpcrun.runs.record import RecordError, load_run
from hpcrun.views.text import one_line

if TYPE_CHECKING:
    from hpcrun.runs.record import Run

# a job may start before submit has recorded its id
_AGAIN_S = 0.3
_RECORDED_WITHIN_S = 5.0


def notify(
    words: list[str] | None = argument(
        "RUN|URL",
        "Runs, or with --test the destinations. Default: the last run; the configured "
        "destinations.",
        complete=run_name,
    ),
    test: bool = flag("--test", "Send a test message from this machine."),
    of: Annotated[
        Path | None, typer.Option("--of", hidden=True, help="Folder of the run: for its own job.")
    ] = None,
    event: Annotated[
        str | None, typer.Option("--event", hidden=True, help="Event that has just come.")
    ] = None,
    known: Annotated[bool, typer.Option("--known", hidden=True, help="Ask no scheduler.")] = False,
    as_json: JsonOption = False,  # noqa: ARG001 - cli/output.py reads it
) -> Outcomes:
    """Send a test message, or the messages about a run that were not sent.

    Destinations are URLs of apprise: mail, Slack, Discord, Teams, ntfy, webhooks.
    Configure them with `notify:` in config.yaml or a profile, or submit --notify.
    """
    context = make_context(announce=None) if of or known else make_context()
    if test:
        yield _test(words or [], context)
        return
    if of is not None:
        item = _in_job(of, context)
        yield _sent_outcome(_send_due(item, context, event), item, quiet=True)
        return
    named = yield from context.named(words or ["last"])
    ids = [element.run.run_id for element in named]
    if known:
        result = last_known(ids, store=context.store, now_s=context.now_s())
    else:
        result = get_status(ids, context.ports)
    sent: list[Delivery] = []
    for item in result.runs:
        results = _send_due(item, context, None)
        sent += results
        yield _sent_outcome(results, item, quiet=known)
    if result.away:
        raise result.away
    failure = None if known else _failure(sent)
    if failure:
        raise failure


def _in_job(folder: Path, context: Context) -> RunStatus:
    """Return the status of the run whose job this is: see ``per_job/message_events.py``.

    Raises:
        PlanError: the record of the run cannot be read.
    """
    try:
        record = RunFolder(folder).record
        run = load_run(record)
        while run.job_id is None and time.time() - run.created_s < _RECORDED_WITHIN_S:
            time.sleep(_AGAIN_S)
            run = load_run(record)
    except (OSError, RecordError) as error:
        raise PlanError(f"{folder}: {error}") from None
    return status_in_job(run, folder, context.now_s())


def _send_due(item: RunStatus, context: Context, reported: str | None) -> list[Delivery]:
    """Send the due messages about a run that nobody has sent, and return their results."""
    notify = notify_of(item.run)
    results: list[Delivery] = []
    if notify is None:
        return results
    for event in due_events(item, notify, context.now_s(), reported):
        to = unclaimed(item.folder, event, notify.to)
        if to:
            message = message_of(
                event,
                item,
                context.now_s(),
                partial(_explain, context),
                lambda: _patterns(item.run, context),
            )
            results += send_message(message, to, context.env, run_folder=item.folder, event=event)
    return results


def _explain(context: Context, item: RunStatus) -> str:
    """Return the first line of ``hpcrun explain``, as far as a message may have it."""
    if not all(context.env.get(name) for name in item.run.secrets):
        return ""  # here, a secret in a log cannot be recognised by its value
    try:
        rules = context.rules()
    except HpcrunError:  # a broken file of rules: the run has failed all the same
        rules = ()
    return explained_status(item, rules).cause or ""


def _patterns(run: Run, context: Context) -> Mapping[str, Any]:
    """Return the patterns of the metrics in the logs.

    The patterns come from the configuration and the profile. Slurm is not asked.
    """
    folders = list(context.configuration.profiles().values())
    try:
        texts, _ = metric_patterns(run.profile_file or run.profile, folders, context.config.metrics)
        return {name: compile_pattern(text) for name, text in texts.items()}
    except HpcrunError:
        return {}


def _sent_outcome(results: list[Delivery], item: RunStatus, *, quiet: bool) -> Outcome:
    """Return the results of messages; in the background only failures, for the log."""
    if quiet:
        failed = [each for each in results if each.state != SENT]
        return Outcome(lambda: [stdout(_lines(failed))])
    none = "was submitted without messages (notify:, --notify)"
    if notify_of(item.run):
        none = "no message is due"
    lines = [stdout(_lines(results) or [f"{one_line(item.run.name)}: {none}"])]
    return Outcome(lambda: lines, lambda: _document(results, item.run.run_id))


def _test(urls: list[str], context: Context) -> Outcome:
    for url in urls:
        try:
            check_destination(url)
        except ValueError as error:
            raise UsageError(f"--test: {error}") from None
        if is_slurms_mail(url) or url == NONE:
            raise UsageError(
                f"{url}: Slurm itself sends this mail, when a job starts and ends; it cannot be "
                "tested"
            )
    check_locked_destinations(urls, context.config, "--test")
    to = urls or _configured(context)
    if not to:
        file = context.user_folder / "config.yaml"
        raise UsageError(
            "there is no destination to test",
            hint=f"hpcrun notify --test URL, or notify: [URL] in {file}",
        )
    title = clean_line(f"Test message from hpcrun on {context.host}")
    message = Message(title, "Messages about your runs will arrive here.")
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        RunFolder(Path(folder)).messages().mkdir()
        sent = send_message(message, to, context.env, run_folder=Path(folder), event="test")
    return Outcome(
        lambda: [stdout(_lines(sent))], lambda: _document(sent, None), failure=_failure(sent)
    )


def _lines(sent: Iterable[Delivery]) -> list[str]:
    return [clean_line(line) for line in delivery_lines(sent)]


def _failure(sent: Sequence[Delivery]) -> PlanError | None:
    """Return the failure of messages that did not arrive, None if all did."""
    to = {each.to for each in sent}
    failed = {each.to for each in sent if each.state != SENT}
    if failed:
        return PlanError(f"{len(failed)} of {len(to)} destinations did not accept the message")
    return None


def _configured(context: Context) -> list[str]:
    """Return the destinations of the configuration and of the default profile."""
    from hpcrun.profiles.load import load_profile  # pydantic

    named = list(context.config.notify)
    with suppress(HpcrunError):  # Slurm may be away, of which a test of messages need not know
        name = context.profile_name(None)
        loaded = load_profile(name, context.surroundings.profile_folders)
        named += loaded.profile.notify
    return [to for to in dict.fromkeys(named) if not is_slurms_mail(to)]


def _document(results: list[Delivery], run_id: str | None) -> dict[str, Any]:
    return {"kind": "messages", "run_id": run_id, "messages": [each.as_json() for each in results]}
