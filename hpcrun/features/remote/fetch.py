"""hpcrun fetch: copies files of a run from a host to this machine."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hpcrun.actions.runs.find import find_element
from hpcrun.cli.complete import run_name
from hpcrun.cli.confirm import confirm
from hpcrun.cli.context import make_context
from hpcrun.cli.options import argument, flag, option
from hpcrun.cli.output import JsonOption, Outcome, Outcomes, can_ask, printed, tell
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    NotFoundError,
    PlanError,
    SchedulerError,
    UsageError,
)
from hpcrun.features.remote import FROM_HOST, TypedHost
from hpcrun.features.remote.connection import Connection
from hpcrun.features.remote.copy_home import Copied, Copy, check_rsync
from hpcrun.features.remote.front import LOCAL
from hpcrun.features.remote.run_on_host import error_in, opened, parse_document, script_of
from hpcrun.files.writing import make_folder
from hpcrun.job.run_paths import WITHIN, read_by_people
from hpcrun.job.text.quoting import quote_bash
from hpcrun.views.text import bytes_text, count, one_line, written_line

_ASKED_BYTES = 1 << 30
"""More than this is copied after a question."""
_ANSWER_S = 60.0
_NOWHERE = Path("/nonexistent")
# the name of a folder to make here
_RUN_ID = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,200}", re.ASCII)
_ELEMENT = re.compile(r".+/(\d{1,7})", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Source:
    """A run on a host."""

    run_id: str
    folder: str  # an absolute path on the host
    element: int | None  # of a sweep, if only this element is named


def fetch(
    run: str = argument(
        "RUN",
        "Job id, run id, name, or 'last'. RUN/3 is element 3 of a sweep.",
        default=...,
        complete=run_name,
    ),
    patterns: list[str] | None = argument(
        "PATTERN", "More files to copy: names or paths in the run's folder, with *, ** and ?."
    ),
    on: str | None = option("--on HOST", "Host of the run. Default: that of the configuration."),
    out: Path | None = option("--out -o FOLDER", "Folder to write. Default: the run's id."),
    force: bool = flag("--force", "Replace files that exist here."),
    yes: bool = flag("--yes -y", "Copy more than 1 GB without a question."),
    _json: JsonOption = False,
) -> Outcomes:
    """Copy files of a run from a cluster to this machine, with --on HOST.

    Copies logs and metrics of the ranks, run.json, code.diff and script.sh;
    each PATTERN adds files or folders. Files that exist here are kept.
    """
    host = on or TypedHost.source
    if host in ("", LOCAL):
        _refuse_here(run)
    check_rsync()
    more = _pattern_rules(patterns or [])
    connection, remote = opened(host)
    script = script_of(remote, ["status", "--json", "--", run])
    done = connection.run(script, timeout_s=_ANSWER_S)
    source = _source_of(host, parse_document(host, done.stdout, done.stderr), run)
    folder = Path(os.path.abspath(out or source.run_id))
    # no file of another run is in it, also after Ctrl-C
    part = folder.parent / f"{source.run_id}.part"
    is_new = _is_new(folder, source.run_id)
    for pattern in patterns or []:
        _check_pattern(pattern, connection, source)
    copy = Copy(
        connection,
        source.folder,
        part if is_new else folder,
        [*_element_rules(source.element), *_usual_rules(), *more, "- *"],
        keeps_existing=not (is_new or force),
    )
    copied = copy.measure()
    if copied.files:
        _check_size(copied, host, yes=yes)
        tell([f"hpcrun: copying {_size_text(copied)} from {host}"])
        copied = _carry_out(copy, copied)
    if is_new and part.is_dir():
        part.rename(folder)
    yield _outcome(copied, host, source.run_id, folder)


def _refuse_here(run: str) -> NoReturn:
    """Name the folder of a run, which is on this machine.

    Raises:
        PlanError: always.
    """
    context = make_context()
    named = find_element(run, context.store)
    folder = context.store.folder(named.run.run_id)
    raise PlanError(
        f"the run is on this machine: {folder}", hint="from a cluster: hpcrun --on HOST fetch RUN"
    )


def _source_of(host: str, document: dict[str, Any], run: str) -> _Source:
    """Return the run that a host names in its answer, which may contain anything.

    Raises:
        HpcrunError: there is no such run on the host.
        SchedulerError: the answer names no run, or one without a possible id and folder.
    """
    runs = document.get("runs")
    if not isinstance(runs, list) or not runs or not isinstance(runs[0], dict):
        raise error_in(host, document) or SchedulerError(f"{host}: hpcrun named no run")
    run_id = runs[0].get("run_id")
    folder = runs[0].get("folder")
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise SchedulerError(f"{host}: hpcrun named a run without a valid run id")
    if not isinstance(folder, str) or not folder.startswith("/") or not folder.isprintable():
        raise SchedulerError(f"{host}: hpcrun named no absolute path for the run's folder")
    match = _ELEMENT.fullmatch(run)
    return _Source(run_id, folder, int(match[1]) if match else None)


def _is_new(folder: Path, run_id: str) -> bool:
    """Return whether a folder is still without files; else it must have files of this run.

    Raises:
        PlanError: the path is not a folder, or the folder has other files.
    """
    hint = "choose another folder with --out FOLDER"
    if not os.path.lexists(folder):
        return True
    if not folder.is_dir():
        raise PlanError(f"{folder} is not a folder", hint=hint)
    if not os.listdir(folder):
        return True
    try:
        record = (folder / WITHIN.record).read_text(errors="replace")
    except OSError:
        record = ""
    if f'"{run_id}"' not in record:
        raise PlanError(f"{folder} contains files that are not of {run_id}", hint=hint)
    return False


def _element_rules(element: int | None) -> list[str]:
    """Return the rules of rsync that leave out all elements but one; none for all elements."""
    if element is None:
        return []
    return [f"+ /{WITHIN.elements}/{element}/", f"- /{WITHIN.elements}/*"]


def _usual_rules() -> list[str]:
    """Return the rules of rsync for the files that people read."""
    rules = []
    for path in read_by_people():
        rules.append(f"+ /{path}")
        rules += [f"+ /{parent}/" for parent in list(path.parents)[:-1]]
    return list(dict.fromkeys(rules))


def _pattern_rules(patterns: Sequence[str]) -> list[str]:
    """Return the rules of rsync that add files or folders.

    Raises:
        UsageError: a pattern is empty.
    """
    rules = []
    for pattern in patterns:
        plain = pattern.rstrip("/")
        if not plain:
            raise UsageError(f"PATTERN {pattern!r} is empty", hint="all files: '*'")
        rules += [f"+ {plain}", f"+ {plain}/***"]
    if rules:
        rules.append("+ */")
    return rules


def _check_pattern(pattern: str, connection: Connection, source: _Source) -> None:
    """Check that a pattern is the name of a file.

    Raises:
        NotFoundError: the run has no such file.
    """
    rules = [*_element_rules(source.element), *_pattern_rules([pattern]), "- *"]
    if Copy(connection, source.folder, _NOWHERE, rules).measure().files == 0:
        where = f"{connection.host}:{source.folder}"
        raise NotFoundError(f"no file matches {pattern!r} in {where}", hint="all files: '*'")


def _check_size(measured: Copied, host: str, *, yes: bool) -> None:
    """Ask before much is copied.

    Raises:
        InterruptedByUser: the answer is no.
        UsageError: nobody can be asked.
    """
    if yes or measured.size <= _ASKED_BYTES:
        return
    size = _size_text(measured)
    if not can_ask():
        place = sys.argv.index(FROM_HOST) + 1
        words = [FROM_HOST, "--yes", *sys.argv[place:]]
        raise UsageError(
            f"{size} on {host}: without a terminal, more than 1 GB needs --yes",
            hint=f"hpcrun {' '.join(map(quote_bash, words))}",
        )
    if not confirm(f"Copy {size} from {host}?", interrupted="interrupted; nothing was copied"):
        raise InterruptedByUser("nothing was copied")


def _carry_out(copy: Copy, measured: Copied) -> Copied:
    """Copy the files; after an error those that have arrived stay, each of them complete.

    Raises:
        PlanError: the folder cannot be made.
        HpcrunError: not all files could be copied.
    """
    if copy.target.is_symlink():
        raise PlanError(f"{copy.target} is a link")
    try:
        make_folder(copy.target.parent)
        make_folder(copy.target, 0o700)
    except OSError as error:
        raise PlanError(f"{copy.target} cannot be made: {error.strerror}") from None
    try:
        return copy.carry_out(measured.size, progress=True)
    except HpcrunError as error:
        error.message += f"; the files that have arrived are in {copy.target}"
        error.hint = error.hint or "the same command continues"
        raise


def _outcome(copied: Copied, host: str, run_id: str, folder: Path) -> Outcome:
    line = f"nothing to copy: {one_line(str(folder))} has these files"
    if copied.files:
        line = written_line(folder, f" ({_size_text(copied)})")
    return printed(
        [line],
        lambda: {
            "kind": "fetch",
            "host": host,
            "run_id": run_id,
            "folder": str(folder),
            "files": copied.files,
            "bytes": copied.size,
        },
    )


def _size_text(copied: Copied) -> str:
    return f"{count(copied.files, 'file')}, {bytes_text(copied.size)}"
