"""The code of a project on its way to a cluster.

Each submission has a copy of its own, which rsync makes. Files that the last copy has too become
hard links to it, so only changes travel. A copy gets its name when it is complete: neither a cut
connection nor a second submission can leave a job a mixture. The job itself runs a snapshot.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

from hpcrun.actions.jobs.snapshot import LIMIT_MB, find_tree, list_code
from hpcrun.cli.output import tell
from hpcrun.errors import PlanError, SchedulerError, UsageError
from hpcrun.features.remote import FOLDER
from hpcrun.features.remote.connection import MOST_BYTES, Connection, rsh_option
from hpcrun.features.remote.line_options import split_options, value_of
from hpcrun.job.request.option_values import parse_copy_size
from hpcrun.job.text.secret_files import MOST_NAMED
from hpcrun.job.text.units import listed
from hpcrun.machine.process import run_command
from hpcrun.runs.job_code import check_count, measure_code
from hpcrun.views.text import one_line

_KEPT = 3
_KEPT_MIN = 60
"""Copies that stay: so many, and all that are younger than so many minutes."""
_LIMIT = "--snapshot-limit"
_SILENT_S = 600
"""How long rsync may move nothing."""


def send_code(connection: Connection, verb: str, words: Sequence[str]) -> str:
    """Copy the project around this folder to the host; return the same folder there.

    The result is an absolute path. The copy is for a command.

    People work in the copy of ``dev``: it shares no file with others, and is not removed. Without a
    new job or a project, ``dev`` takes no code: then the path is empty.

    Raises:
        UsageError: the folder is no project, or the limit of its size is no size.
        PlanError: the code is too large, or rsync is missing here.
        SchedulerError: rsync failed; the host has no incomplete copy under the name of a complete
            one.
    """
    is_dev = verb == "dev"
    if is_dev and split_options(verb, words)[1]:
        return ""  # RUN
    tree = find_tree(Path.cwd(), os.environ)
    if tree.root in (Path.home().resolve(), Path("/")):
        if is_dev:
            tell(
                [
                    f"hpcrun: {tree.root} is no project to copy: the job starts in your home on "
                    f"{connection.host}"
                ]
            )
            return ""
        raise UsageError(
            f"{tree.root} is no project to copy",
            hint="cd to the project's folder; or make it one: git init",
        )
    listing = list_code(tree, (), None)
    left_out = frozenset(listing.left_out)
    paths = [path for path in listing.paths if path not in left_out]
    check_count(paths, tree.root)
    files = measure_code(tree.root, paths, _limit_mb(verb, words))
    if left_out:
        tell(
            [
                "hpcrun: not copied, since they look like secrets: "
                f"{listed(sorted(map(one_line, left_out)), MOST_NAMED)}"
            ]
        )
    project = _project_name(tree.root)
    name = f"{'dev-' if is_dev else ''}{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"
    folder = f"{project}/{name}.part"
    home = connection.make_folder(FOLDER, folder)
    copied = [file.path for file in files]
    _rsync(connection, tree.root, copied, home, folder, shares_files=not is_dev)
    _end(connection, f"{home}/{project}", name, tree.folder)
    there = os.path.normpath(f"{home}/{project}/{name}/{tree.folder}")
    if is_dev:
        tell(
            [
                f"code       {connection.host}:{there}",
                f"hpcrun: changes in this copy stay on {connection.host}",
            ]
        )
    return there


def _rsync(
    connection: Connection,
    root: Path,
    paths: Iterable[str],
    home: str,
    folder: str,
    *,
    shares_files: bool,
) -> None:
    """Copy files of a project to a folder of the host.

    Args:
        connection: the host's.
        root: the project's folder.
        paths: the files, below it.
        home: the folder of all copies on the host.
        folder: the folder of this copy, below it.
        shares_files: whether files that the last copy has become links to them.

    Raises:
        PlanError: rsync is missing here.
        SchedulerError: rsync failed.
    """
    with NamedTemporaryFile(prefix="hpcrun-files-") as names:
        names.write(os.fsencode("\0".join(f"./{path}" for path in paths)))
        names.flush()
        argv = [
            "rsync",
            "--archive",
            "--no-owner",
            "--no-group",
            "--omit-dir-times",
            "--from0",
            f"--files-from={names.name}",
            "--delete-missing-args",
            f"--{'link' if shares_files else 'copy'}-dest=../latest/",
            rsh_option(connection),
            f"--timeout={_SILENT_S}",
            "--",
            f"{root}/",
            f"{connection.host}:{home}/{folder}/",
        ]
        done = run_command(argv, timeout_s=None, cwd=Path("/"), most=MOST_BYTES)
    if done.status is None and "No such file" in done.stderr:
        raise PlanError("rsync is not installed on this machine", hint="install rsync 3")
    if done.ok:
        return
    if not connection.is_alive():
        raise connection.lost()
    raise SchedulerError(
        f"the code cannot be copied to {connection.host}: {_reason(done.stderr)}",
        hint=f"look at the free space there: ssh {shlex.quote(connection.host)} 'df -h ~'",
    )


def _limit_mb(verb: str, words: Sequence[str]) -> int:
    """Return the largest size of the copy, which ``--snapshot-limit`` may set.

    Raises:
        UsageError: the option's value is no size.
    """
    size = value_of(verb, words, _LIMIT)
    if size is None:
        return LIMIT_MB
    try:
        return parse_copy_size(size)
    except ValueError as error:
        raise UsageError(f"{_LIMIT}: {error}") from None


def _project_name(root: Path) -> str:
    digest = hashlib.sha256(os.fsencode(f"{os.uname().nodename}:{root}")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', root.name).lstrip('.')[:40] or 'project'}-{digest}"


def _end(connection: Connection, folder: str, name: str, inner: str) -> None:
    """Give a complete copy its name, and remove old copies and the rest of incomplete ones.

    Raises:
        SchedulerError: the copy cannot get its name.
    """
    if name.startswith("2"):
        latest = f"ln -sfn {name} .latest-{name} && mv -T .latest-{name} latest"
    else:
        latest = ":"
    done = connection.run(
        f"cd -- {shlex.quote(folder)} && mkdir -p -- {shlex.quote(f'{name}.part/{inner}')} && mv "
        f"{name}.part {name} && "
        f"{latest} || exit 1\n"
        f"ls -d 2*-*-*[0-9a-f] 2>/dev/null | sort -r | tail -n +{_KEPT + 1} >.old\n"
        f"find . -maxdepth 1 -name '*2*-*-*' -mmin +{_KEPT_MIN} | while read -r old; do\n"
        '  if test "${old%.part}" != "$old" || grep -qx "${old#./}" .old; then find "$old" '
        "-delete; fi\n"
        "done; exit 0"
    )
    if not done.ok:
        raise SchedulerError(
            f"the copy of the code on {connection.host} has no name: {_last_line(done.stderr)}"
        )


def _reason(stderr: str) -> str:
    """Return the line of rsync that tells of the other side.

    The lines about this side only follow from the other side's error.
    """
    return next(
        (line[:300] for line in stderr.splitlines() if "[receiver]" in line), _last_line(stderr)
    )


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no message"
