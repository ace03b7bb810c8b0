"""``actions.jsonl`` in the runs folder: a line for each submit, cancel, hold, release, clean.

It says who did what, and it survives ``clean``: the past jobs of removed runs are in it. Only hints
are read from it, so that a damaged line is left out.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcrun.files.reading import parse_object, read_end
from hpcrun.files.writing import append_line
from hpcrun.job.text.hide_secrets import HIDER
from hpcrun.job.text.recognise_secrets import MASK
from hpcrun.runs.record import Run

SCHEMA = 1
MOST_BYTES = 64 << 20
"""Of a longer file, only the end is read."""


@dataclass(frozen=True, slots=True)
class ActionLog:
    """Notes what a command does to runs; a note that cannot be written is only a warning.

    Attributes:
        path: the file.
        by: whether there was a terminal, and the name of the coding agent.
        arguments: the command line.
        warn: prints a warning.
    """

    path: Path
    by: Mapping[str, Any]
    arguments: Sequence[str]
    warn: Callable[[str], None]

    def note(
        self,
        action: str,
        runs: Sequence[Run],
        now_s: float,
        secrets: Collection[str] = (),
        **more: Any,
    ) -> None:
        """Append one line.

        Args:
            action: the name of the command.
            runs: the runs that it changes.
            now_s: the time in seconds since the epoch.
            secrets: the names of variables whose values are masked in the command line.
            **more: further fields.
        """
        fields = {
            "schema": SCHEMA,
            "time_s": now_s,
            "action": action,
            "by": self.by,
            "arguments": shlex.join(_masked(text, secrets) for text in self.arguments),
            "run_ids": [run.run_id for run in runs],
            "job_ids": [run.job_id for run in runs],
            **more,
        }
        try:
            append_line(self.path, json.dumps(HIDER.hide_all(fields)))
        except OSError as error:
            self.warn(f"{self.path} has no line for this {action}: {error.strerror or error}")


def _masked(text: str, secrets: Collection[str]) -> str:
    """Return an argument of a command line without the value of a secret variable in it."""
    for name in secrets:
        text = re.sub(rf"(^|=){re.escape(name)}=.*", rf"\g<1>{name}={MASK}", text, flags=re.DOTALL)
    return text


def read_actions(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the file that can be read, oldest first; none without the file."""
    try:
        content = read_end(path, MOST_BYTES)
    except OSError:
        return
    for line in content.split(b"\n"):
        try:
            yield parse_object(line)
        except ValueError:
            continue
