"""hpcrun logs."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import make_context
from hpcrun.cli.output import tell, write
from hpcrun.errors import InterruptedByUser, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.logs import LogChoice
    from hpcrun.runs.logs import LogFile
    from hpcrun.runs.record import LastStatus


def logs(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Job id, run id, name, or 'last'.", show_default=False, autocompletion=run_name
        ),
    ] = "last",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as it is written, until the job is over.")
    ] = False,
    rank: Annotated[
        int | None, typer.Option("--rank", help="Whose log; rank 0 by default.", show_default=False)
    ] = None,
    all_ranks: Annotated[bool, typer.Option("--all-ranks", help="Every rank's, each line with its rank.")] = False,
    batch: Annotated[
        bool, typer.Option("--batch", help="The batch script's own log, with srun's and torchrun's words.")
    ] = False,
    err: Annotated[bool, typer.Option("--err", help="Only stderr.")] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", min=0, help="Only the last lines.", show_default=False)
    ] = None,
) -> None:
    """Show what a run's ranks have said, on stdout and stderr."""
    from hpcrun.actions.find import find_run
    from hpcrun.actions.logs import LogChoice, check_rank, follow_logs
    from hpcrun.actions.wait import waiter_for

    if sum((rank is not None, all_ranks, batch)) > 1:
        raise UsageError("--rank, --all-ranks and --batch exclude each other", hint="choose one")
    context = make_context()
    found = find_run(run, context.store)
    tell([found.note] if found.note else [])
    folder, choice = context.store.folder(found.run.run_id), LogChoice(rank or 0, all_ranks, batch, err)
    check_rank(folder, choice, found.run.world_size)
    waiter = waiter_for(found.run.run_id, store=context.store, schedulers=context.scheduler, host=context.host)
    if not follow:
        if not print_finished(folder, choice, lines):
            tell([f"hpcrun: nothing yet: {_state_words(waiter.refresh().status)}"])
        return
    status = waiter.refresh().status
    if status.final:
        print_finished(folder, choice, lines)
        return
    if status.state != "RUNNING":
        tell([f"hpcrun: {_state_words(status)}; its log follows when it runs"])
    try:
        stream = follow_logs(folder, choice, lines=lines, is_over=waiter.over())
        if not print_stream(stream, prefixes=all_ranks):
            print_finished(folder, choice, lines)
    except KeyboardInterrupt:
        raise InterruptedByUser(
            "no longer following; the job goes on", hint=f"hpcrun logs -f {run} comes back to it"
        ) from None


def _state_words(status: LastStatus) -> str:
    return f"the job is {status.state}" + (f" ({status.reason})" if status.reason else "")


def print_finished(folder: Path, choice: LogChoice, lines: int | None) -> bool:
    """Print the logs that are there, with a heading each where there are several, as tail does; False if none is."""
    from hpcrun.actions.logs import finished_logs
    from hpcrun.runs.logs import tail

    found = finished_logs(folder, choice)
    for number, log in enumerate(found):
        text = _safe(tail(log.path, lines))
        if choice.all_ranks:
            _Prefixer().feed(log.source, text, end=True)
            continue
        if len(found) > 1:
            stream = "stderr" if log.path.suffix == ".err" else "stdout"
            write(f"{'' if number == 0 else chr(10)}==> {log.source} {stream} <==\n")
        write(text if text.endswith("\n") or not text else text + "\n")
    return bool(found)


def print_stream(stream: Iterable[tuple[LogFile, str]], *, prefixes: bool) -> bool:
    """Print logs as they come, each line with its rank where several are mixed; False if nothing came."""
    prefixer = _Prefixer()
    printed = False
    for log, text in stream:
        printed = True
        if prefixes:
            prefixer.feed(f"{log.source}{' err' if log.path.suffix == '.err' else ''}", _safe(text))
        else:
            write(_safe(text))
    prefixer.finish()
    return printed


class _Prefixer:
    """Prints whole lines with their source in front; half lines wait for their end."""

    def __init__(self) -> None:
        self._rest: dict[str, str] = {}

    def feed(self, source: str, text: str, *, end: bool = False) -> None:
        lines = (self._rest.pop(source, "") + text).split("\n")
        rest = lines.pop()
        write("".join(f"[{source}] {line}\n" for line in lines))
        if rest:
            self._rest[source] = rest
        if end:
            self.finish()

    def finish(self) -> None:
        for source in list(self._rest):
            write(f"[{source}] {self._rest.pop(source)}\n")


def _safe(text: str) -> str:
    """Make a job's output harmless to a terminal; a pipe or file gets it as it is."""
    if not sys.stdout.isatty():
        return text
    from hpcrun.views.text import harmless

    return harmless(text)
