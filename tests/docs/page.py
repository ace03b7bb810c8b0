"""What a page of the guides tells its reader to do: files to write, commands to run, and what they
show.

Every fenced block of a page is one of these, told by its language and, for a file, its first line:

* a file, whose first line is a comment with its name, as in ``# train.py`` or ``#
  .hpcrun/config.yaml``. It is written into the page's folder; a later block of the same name takes
  its place.
* ``console``: each line that begins with ``$ `` is run by bash in that folder, and what stands
  below it is what it prints, stdout and stderr together as in a terminal. A line ``...`` stands for
  any lines, and in a line ``...`` for any text. Where nothing stands below it, the command need
  only end well. A command that is meant to fail is followed by ``$ echo $?``, as in a shell.
* ``console slurm``: the same on the development cluster; all others run without Slurm.
* ``text``: a picture or words of another program, for people alone.

What differs from run to run is written as an example, and stands for all that look like it: see
`ANY`. All else must be printed as it is shown, but for the width of columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

ANY = (
    (r" ?\.\.\. ?", r".*"),
    (r"\d{8}-\d{6}-(.+?)-[0-9a-f]{4}\b", r"\\d{8}-\\d{6}-\1-[0-9a-f]{4}"),  # the id of a run
    (r"\b(L?)4711\b", r"\1\\d+"),  # of a job
    (r"\bSlurm \d\d(\\?\.\d+)+", r"Slurm \\S+"),
    (r"(?<!\S)/home/me[^\s,:]*", r"(?:/[^\\s,:]+|'/[^':]+')"),  # quoted if it has a space
    (r"\.(err|log):\d+", r"\.\1:\\d+"),  # a line of a log
    (r"\bstep([ =])\d+", r"step\1\\d+"),
    (r"\b\d+ samples/s", r"\\d+ samples/s"),
    (r"\b\d+(?::\d\d)+\b", r"\\d+(?::\\d\\d)+"),  # a time, or a time of day
    # what was measured has a decimal point
    (r"(?<![\w.])\d+\.\d+", r"\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?"),
)
"""Patterns of examples in a shown line, and the pattern of what may be printed in their place."""


@dataclass(frozen=True)
class File:
    """A file of the reader's, such as a training script."""

    name: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command as it is typed, and the lines shown below it."""

    line: str
    shown: tuple[str, ...]
    slurm: bool


BLOCK = re.compile(r"^```(?P<language>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
TYPED = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
NAMED = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")


def steps(page: str) -> Iterator[File | Command]:
    """Yield what a page has its reader do, in order.

    Raises:
        ValueError: a block is none of those that this module knows, so that nobody would run it.
    """
    for block in BLOCK.finditer(page):
        language, body = block["language"], block["body"]
        if language in {"console", "console slurm"}:
            yield from commands(body, slurm=language == "console slurm")
        elif name := NAMED.match(body):
            is_program = body.startswith("#!", name.end())  # its first line must be the first
            yield File(name["name"], body[name.end() :] if is_program else body)
        elif language != "text":
            raise ValueError(
                f"a block of {language or 'no language'} that is neither a file nor "
                f"commands:\n{body}"
            )


def commands(body: str, *, slurm: bool) -> Iterator[Command]:
    """Yield the commands of a console block; a line may go on in the next, after a backslash."""
    for typed, shown in TYPED.findall(body):
        yield Command(re.sub(r"\\\n\s*", "", typed), tuple(shown.splitlines()), slurm)


NEWEST = "the newest of all runs: "
"""The line on stderr that names the run of a command without RUN: the pages leave it out."""


def is_shown(shown: tuple[str, ...], printed: str) -> bool:
    """Return whether a command printed what the page shows."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else line_pattern(line) for line in shown
    )
    lines = ""
    for line in printed.splitlines():
        if line.strip() and not line.startswith(NEWEST):
            lines += f"{_narrow(line)}\n"
    return re.fullmatch(pattern, lines) is not None


def line_pattern(line: str) -> str:
    """Return the pattern of what may be printed for a shown line; of an empty one, which is not
    compared, none.
    """
    rest, pattern = _narrow(line), ""
    if not rest:
        return ""
    example = re.compile("|".join(f"(?:{shape})" for shape, _ in ANY))
    done = 0
    for found in example.finditer(rest):
        pattern += re.escape(rest[done : found.start()]) + _any_like(found[0])
        done = found.end()
    return pattern + re.escape(rest[done:]) + r"\n"


def _any_like(example: str) -> str:
    for shape, any_such in ANY:
        if found := re.fullmatch(shape.removeprefix(r"(?<!\S)"), example):
            return found.expand(any_such)
    raise AssertionError(example)


def _narrow(line: str) -> str:
    return " ".join(line.split())
