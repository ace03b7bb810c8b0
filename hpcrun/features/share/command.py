"""hpcrun share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcrun.actions.hooks import hooks_of
from hpcrun.cli.complete import RUN
from hpcrun.cli.options import check_new_file, flag, option
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, note, stderr, stdout, verbatim
from hpcrun.cli.runs_option import RUNS, context_of
from hpcrun.errors import PlanError, UsageError
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.quoting import quote_bash
from hpcrun.views.text import bytes_text, count, written_line


def share(
    run: str = RUN,
    out: str | None = option("--out -o FILE", "File to write; - is stdout. Default: RUN.html."),
    no_logs: bool = flag("--no-logs", "Leave out the ends of the logs."),
    no_code: bool = flag("--no-code", "Leave out the script and the changes of the code."),
    force: bool = flag("--force", "Replace an existing FILE."),
    publish_unhidden: bool = flag(
        "--publish-unhidden",
        "Write the page even if a declared secret is not set here and cannot be hidden.",
    ),
    runs: str | None = RUNS,
    as_json: JsonOption = False,
) -> Outcomes:
    """Write one HTML page about a run, to send to others.

    The page has what ran, when and where, the command, the code, metrics,
    the use of the hardware, the cause of a failure and the ends of logs.
    Passwords, tokens and keys are hidden. It needs no network.
    """
    if out == "-" and as_json:
        raise UsageError("--out - and --json cannot be combined", hint="--out FILE --json")
    from hpcrun.features.share.gather_page import gather, save_page
    from hpcrun.features.share.page import share_page  # jinja2 and pydantic

    context = context_of(runs)
    [named] = yield from context.named([run])
    stem = named.run.run_id
    if named.element is not None:
        stem += f"-{named.element}"
    file = context.cwd / (out or f"{stem}.html")
    if out != "-":
        check_new_file("--out", file, force=force)
    unset = [name for name in named.run.secrets if not context.env.get(name)]
    if unset and not publish_unhidden:
        raise _unknown_secrets(unset, run)
    patterns, remark = context.metric_patterns(named.run.profile)
    yield note([remark])
    shared = gather(
        named.run,
        context.ports,
        element=named.element,
        logs=not no_logs,
        code=not no_code,
        rules=context.rules(),
        patterns=patterns,
    )
    yield note(f"hpcrun: {missing}" for missing in shared.missing)
    content = share_page(shared, HIDER, str(Path.home()))
    if out == "-":
        yield Outcome(lambda: [verbatim(content.decode())])
        return
    save_page(file, content)
    size = bytes_text(len(content))
    written = written_line(out or file.name, f" ({size}; {_hidden_text(unset)})")
    yield Outcome(
        lambda: [
            stdout([written]),
            stderr(["hint: read it before you send it: hpcrun knows the usual forms of secrets"]),
        ],
        lambda: {
            "kind": "share",
            "run_id": named.run.run_id,
            "element": named.element,
            "file": hooks_of("remote").file_place(file),
            "bytes": len(content),
            "secrets_hidden": HIDER.count,
        },
    )


def _unknown_secrets(names: Sequence[str], run: str) -> PlanError:
    """Return the error that secrets of a run are not set here: their values cannot be hidden."""
    first = names[0]
    page = f"the page may show the value of {', '.join(names)}"
    command = f"hpcrun share {quote_bash(run)} --publish-unhidden"
    return PlanError(
        f"{page}, not set here, which hpcrun cannot hide",
        hint=f"read -rs {first} && export {first}; or write the page all the same: {command}",
    )


def _hidden_text(unset: Sequence[str]) -> str:
    """Return how many secrets are hidden, and which are not: those that are ``unset`` here."""
    text = "no secret was found in it"
    if HIDER.count:
        text = f"{count(HIDER.count, 'secret')} hidden"
    if unset:
        text += f"; not hidden, since not set here: {', '.join(unset)}"
    return text
