"""Files that a command writes on a host, on their way to this machine.

The command runs in an empty folder of the host, below that of the code. What it writes there comes
to the path that was typed here; the folder is removed when all files have arrived.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hpcrun.cli.commands import COMMANDS
from hpcrun.cli.options import check_new_file
from hpcrun.cli.output import tell
from hpcrun.errors import HpcrunError, PlanError, UsageError
from hpcrun.features.remote import FOLDER, WRITTEN
from hpcrun.features.remote.connection import Connection
from hpcrun.features.remote.copy_home import Copy, rsync_problem
from hpcrun.features.remote.line_options import values_of

_MOST_BYTES = 1 << 30
_PREFIX = ".files-"
_KEPT_MIN = 24 * 60
"""How long files stay on the host that could not be copied."""
_DEFAULT_NAMES = {
    "share": re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,200}\.html", re.ASCII),
    "scale report": re.compile(r"report-[A-Za-z0-9._-]{1,200}", re.ASCII),
}
"""The names that a command may choose itself."""
_NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_REMOVE = """cd -- {parent} || exit 0
find {name} -delete
find . -maxdepth 1 -name '{prefix}*' -mmin +{minutes} | while read -r old; do
  find "$old" -delete
done
"""


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """The files that a command writes on a host, and where they come to on this machine."""

    connection: Connection
    words: list[str]  # the command line for the host
    source: str  # the folder on the host, an absolute path
    target: Path  # the folder here
    name: str  # of the file or folder that the command writes; empty if it chooses the name
    verb: str
    replaces: bool

    def bring(self) -> None:
        """Copy the files to this machine, and remove them from the host.

        Raises:
            PlanError: a file of this name exists here, or the folder cannot be written.
            HpcrunError: the files cannot be copied.
        """
        try:
            with TemporaryDirectory(prefix=".hpcrun-", dir=self.target) as folder:
                stage = Path(folder)
                Copy(self.connection, self.source, stage, ()).carry_out(_MOST_BYTES)
                for name in os.listdir(stage):
                    if self._is_expected(name):
                        self._place(stage / name, self.target / name)
        except OSError as error:
            raise PlanError(f"{error.filename}: {error.strerror}; {self._remains()}") from None
        except HpcrunError as error:
            error.message += f"; {self._remains()}"
            raise
        parent, name = os.path.split(self.source)
        script = _REMOVE.format(
            parent=shlex.quote(parent), name=name, prefix=_PREFIX, minutes=_KEPT_MIN
        )
        self.connection.run(script)

    def _is_expected(self, name: str) -> bool:
        """Return whether the command may write a file of this name; the host may send any."""
        if self.name:
            return name == self.name
        return _DEFAULT_NAMES[self.verb].fullmatch(name) is not None

    def _place(self, arrived: Path, place: Path) -> None:
        """Give a file or folder that has arrived its name.

        Raises:
            PlanError: there is another of this name, and it is not to be replaced.
        """
        if arrived.is_file():
            if not self.replaces:
                check_new_file("--out", place, force=False)
            os.replace(arrived, place)
            return
        place.mkdir(exist_ok=True)
        names = os.listdir(arrived)
        others = sorted(set(os.listdir(place)) - set(names))
        if others and not self.replaces:
            raise PlanError(
                f"{place} contains other files: {', '.join(others[:3])}",
                hint="choose another folder with --out DIR, or write to it with --force",
            )
        for name in names:
            os.replace(arrived / name, place / name)

    def _remains(self) -> str:
        return f"the files are on {self.connection.host} for a day: {self.source}"


def _brings_files(verb: str, typed: str, values: Mapping[str, Any]) -> bool:
    """Return whether a command line writes files that come to this machine."""
    if typed == "-" or values.get("from_csv"):
        return False
    return bool(typed) or verb in _DEFAULT_NAMES


def written_files(connection: Connection, verb: str, words: Sequence[str]) -> WrittenFiles | None:
    """Return the files that a command line will write; None if they do not come to this machine.

    Raises:
        UsageError: the path that was typed names no file.
        PlanError: a file of this name exists here, and must not be replaced.
        SchedulerError: no folder can be made on the host.
    """
    if verb not in COMMANDS:
        return None
    names = verb.split()
    place = words.index(names[-1]) + 1
    option = WRITTEN[verb]
    values = values_of(verb, words[place:])
    typed = str(values.get(option.lstrip("-")) or "")
    if not _brings_files(verb, typed, values):
        return None
    problem = rsync_problem()
    if problem:
        tell([f"hpcrun: {problem}: files stay on {connection.host}"])
        return None
    path = Path(os.path.abspath(typed))
    target = path.parent if typed else path
    if typed and not _NAME.fullmatch(path.name):
        raise UsageError(f"{option} {typed!r} is not the name of a file")
    if not target.is_dir():
        raise PlanError(f"{target} is not a folder", hint=f"choose another path with {option}")
    replaces = bool(values.get("force", True))
    if typed and not replaces and verb != "scale report":
        check_new_file(option, path, force=False)
    line = list(words)
    if typed:
        end = line.index("--") if "--" in line else len(line)
        line.insert(end, f"{option}={path.name}")
    name = f"{_PREFIX}{os.urandom(6).hex()}"
    home = connection.make_folder(FOLDER, name)
    return WrittenFiles(
        connection,
        line,
        f"{home}/{name}",
        target,
        path.name if typed else "",
        verb,
        replaces,
    )
