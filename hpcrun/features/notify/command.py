"""hpcrun notify."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, Outcomes, note, stdout
from hpcrun.cli.output import JsonOption
from hpcrun.errors import HpcrunError, PlanError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.status.run_status import RunStatus
    from hpcrun.explain.diagnosis.rules import Rule
    from hpcrun.features.notify.send import Sent
    from hpcrun.runs.record import Run

_AGAIN_S, _RECORDED_WITHIN_S = 0.3, 5.0
"""A job may start before submit has recorded its id."""


def notify(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN|URL",
            help="Runs, or with --test the destinations. Default: the last run; the configured destinations.",
            show_default=False,
            autocompletion=run_name,
        ),
    ] = None,
    test: Annotated[bool, typer.Option("--test", help="Send a test message from this machine.")] = False,
    of: Annotated[Path | None, typer.Option("--of", hidden=True, help="Folder of the run: for its own job.")] = None,
    event: Annotated[str | None, typer.Option("--event", hidden=True, help="Event that has just come.")] = None,
    known: Annotated[bool, typer.Option("--known", hidden=True, help="Ask no scheduler.")] = False,
    as_json: JsonOption = False,  # noqa: ARG001 - cli/output.py reads it
) -> Outcomes:
    """Send a test message, or the messages about a run that were not sent.

    Destinations are URLs of apprise: mail, Slack, Discord, Teams, ntfy, webhooks.
    Configure them with `notify:` in config.yaml or a profile, or submit --notify.
    """
    import_pydantic()
    context = make_context(announce=None) if of or known else make_context()
    if test:
        yield _test(words or [], context)
        return
    if of is not None:
        yield from _of_job(of, event, context)
        return
    from hpcrun.actions.runs.find import find_element
    from hpcrun.actions.status.status import get_status, last_known

    found = [find_element(word, context.store) for word in words or ["last"]]
    yield note(item.note for item in found)
    ids = [item.run.run_id for item in found]
    result = last_known(ids, store=context.store, now_s=context.now_s()) if known else get_status(ids, context.ports)
    sent: list[Sent] = []
    for item in result.runs:
        results = _send_due(item, context, None)
        sent += [each for _, each in results]
        yield _sent_outcome(results, item, quiet=known)
    if result.away:
        raise result.away
    if not known and (failure := _failure(sent)):
        raise failure


def _of_job(folder: Path, event: str | None, context: Context) -> Outcomes:
    """Send what is due of the run whose job this is: see ``launch/messages.py``."""
    from hpcrun.features.notify.due import status_in_job
    from hpcrun.job.layout import RunFolder
    from hpcrun.runs.record import RecordError, load_run

    try:
        run = load_run(record := RunFolder(folder).record)
        while run.job_id is None and time.time() - run.created_s < _RECORDED_WITHIN_S:
            time.sleep(_AGAIN_S)
            run = load_run(record)
    except (OSError, RecordError) as error:
        raise PlanError(f"{folder}: {error}") from None
    item = status_in_job(run, folder, context.now_s())
    yield _sent_outcome(_send_due(item, context, event), item, quiet=True)


def _send_due(item: RunStatus, context: Context, asked: str | None) -> list[tuple[str, Sent]]:
    """Send the messages about a run that are due and that nobody has sent; return what became of them."""
    from hpcrun.features.notify.due import due_events, facts_of, notify_of
    from hpcrun.features.notify.messages import unclaimed

    wanted = notify_of(item.run)
    if wanted is None:
        return []
    events = [event for event in due_events(item, wanted, context.now_s(), asked)
              if unclaimed(item.folder, event, wanted.to)]  # fmt: skip
    results = []
    for event in events:
        from hpcrun.features.notify.display import message_of
        from hpcrun.features.notify.send import send_message

        facts = facts_of(event, item, context.now_s(), lambda: _rules(context), lambda: _patterns(item.run, context))
        if not all(context.env.get(name) for name in item.run.secrets):
            facts = replace(facts, cause="")  # here, a secret in a log cannot be recognised by its value
        open_ = unclaimed(item.folder, event, wanted.to)
        sent = send_message(message_of(facts), open_, context.env, run_folder=item.folder, event=event)
        results += [(event, each) for each in sent]
    return results


def _rules(context: Context) -> Sequence[Rule]:
    try:
        return context.rules()
    except HpcrunError:  # a broken file of rules: the run has failed all the same
        return ()


def _patterns(run: Run, context: Context) -> Mapping[str, Any]:
    """Return the patterns of the metrics in the logs, of the configuration and the profile; Slurm is not asked."""
    from hpcrun.actions.runs.metrics import metric_patterns
    from hpcrun.job.patterns import compile_pattern
    from hpcrun.profiles.folder import shipped

    folders = [*(folder.below("profiles") for folder in context.layers.values()), shipped("cluster_profiles")]
    try:
        texts, _ = metric_patterns(run.profile_file or run.profile, folders, context.config.metrics)
        return {name: compile_pattern(text) for name, text in texts.items()}
    except HpcrunError:
        return {}


def _sent_outcome(results: list[tuple[str, Sent]], item: RunStatus, *, quiet: bool) -> Outcome:
    """Return what became of messages; in the background only what did not arrive, for the log."""
    from hpcrun.features.notify.due import notify_of
    from hpcrun.features.notify.messages import SENT
    from hpcrun.views.text import one_line

    if quiet:
        failed = [(event, each) for event, each in results if each.state != SENT]
        return Outcome(lambda: [stdout(_lines(failed))])
    name = one_line(item.run.name)
    none = "no message is due" if notify_of(item.run) else "was submitted without messages (notify:, --notify)"
    lines = [stdout(_lines(results) or [f"{name}: {none}"])]
    return Outcome(lambda: lines, lambda: _json(results, item.run.run_id))


def _test(words: list[str], context: Context) -> Outcome:
    from hpcrun.features.notify.display import test_message
    from hpcrun.features.notify.send import send_message

    to = _checked(words) or _configured(context)
    if not to:
        raise UsageError(
            "there is no destination to test",
            hint="hpcrun notify --test URL, or notify: [URL] in " + str(context.user_folder / "config.yaml"),
        )
    sent = send_message(test_message(context.host), to, context.env, run_folder=None, event="test")
    results = [("test", each) for each in sent]
    return Outcome(lambda: [stdout(_lines(results))], lambda: _json(results, None), failure=_failure(sent))


def _failure(sent: Sequence[Sent]) -> PlanError | None:
    """Return the failure of messages that did not arrive, None if all did."""
    from hpcrun.features.notify.messages import SENT

    failed, to = {each.to for each in sent if each.state != SENT}, {each.to for each in sent}
    return PlanError(f"{len(failed)} of {len(to)} destinations did not accept the message") if failed else None


def _checked(words: list[str]) -> list[str]:
    """Return the destinations on the command line.

    Raises:
        UsageError: one is none, or holds a secret, or is mail by Slurm.
    """
    from hpcrun.job.notify import NONE, check_destination, is_slurms_mail

    for word in words:
        try:
            check_destination(word)
        except ValueError as error:
            raise UsageError(f"--test: {error}") from None
        if is_slurms_mail(word) or word == NONE:
            raise UsageError(f"{word}: Slurm itself sends this mail, when a job starts and ends; it cannot be tested")
    return words


def _configured(context: Context) -> list[str]:
    """Return the destinations of the configuration and of the default profile."""
    from hpcrun.job.notify import is_slurms_mail
    from hpcrun.profiles.load import load_profile

    named = list(context.config.notify)
    with suppress(HpcrunError):  # Slurm may be away, of which a test of messages need not know
        named += load_profile(context.profile_name(None), context.surroundings.profile_folders).profile.notify
    return [to for to in dict.fromkeys(named) if not is_slurms_mail(to)]


def _lines(results: list[tuple[str, Sent]]) -> list[str]:
    from hpcrun.features.notify.display import sent_lines

    return sent_lines(results)


def _json(results: list[tuple[str, Sent]], run_id: str | None) -> dict[str, Any]:
    from hpcrun.features.notify.display import outcome_json

    messages = [outcome_json(event, each) for event, each in results]
    return {"kind": "messages", "run_id": run_id, "messages": messages}
