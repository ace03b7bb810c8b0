"""What a program that leaves no traceback says last: usage errors, aborts in C++, a shell's complaints. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcrun.diagnosis.traceback import Frame, Traceback

_LOOKED_AT = 60
"""Lines at the end of a log of which one may say why the program ended."""
_LONGEST = 1000

# The first that matches a line counts. {message} is what is said; file and line are where, in the user's own script.
_STATEMENTS = tuple(
    re.compile(text)
    for text in (
        # argparse exits with 2; absl with 1; click and typer with 2
        r"^[\w./-]+\.py: error: (?P<message>.+)",
        r"^[\w./-]+: error: (?P<message>(?:argument|unrecognized arguments|the following arg|ambiguous option).*)",
        r"^FATAL Flags parsing error: (?P<message>.+)",
        r"^(?:Error: |│ )(?P<message>(?:Missing|No such|Invalid value|Got unexpected|Option|Could not).*?)[ │]*$",
        # hydra
        r"^(?P<message>(?:Could not override|Error merging override) '.+)",
        r"^(?P<message>(?:In '.+': )?(?:Could not find|Primary config).+)",
        # C++ and the C library
        r"^(?P<message>terminate called after throwing an instance of .+)",
        r"^(?P<message>F\d{4} [\d:.]+ +\d+ [\w./-]+:\d+\] .+)",
        r"^(?P<message>\S+: \S+:\d+: .+: Assertion .+ failed\.?)$",
        r"^(?P<message>(?:free|malloc|munmap_chunk|realloc)\(\): .+|double free or corruption.*|corrupted .+ vs\. .+"
        r"|\*\*\* stack smashing detected.*)",
        # shells, and what starts a program
        r"^(?P<file>/?[\w./-]+): line (?P<line>\d{1,7}): +(?:\d+ )?(?P<message>.+)",
        r"^(?P<file>/?[\w./-]+): (?P<line>\d{1,7}): (?P<message>\S+: (?:not found|Permission denied).*)",
        r"^(?P<message>\S*python[\d.]*: (?:can\'t open file|No module named|Error while finding module).+)",
        r"^(?P<message>/usr/bin/env: .+)",
        r"^(?:slurmstepd|srun): error: (?P<message>(?:\S+: )?(?:execve|couldn\'t chdir).+)",
        r"^(?P<message>(?:Lmod has detected the following error|ModuleCmd_\w+\.c\(\d+\):ERROR).*)",
        r"^(?P<message>(?:CommandNotFoundError|EnvironmentNameNotFound|EnvironmentLocationNotFound): .+)",
        r"^(?P<message>FATAL: +.+)",  # apptainer
        r"^(?P<message>make(?:\[\d+\])?: \*\*\* .+)",
    )
)


def last_statement(lines: Sequence[str]) -> Traceback | None:
    """Return the last line by which a program says why it ends, None where there is none near the end.

    What C++ adds to an exception on its next line, and Lmod to its heading, belongs to it.
    """
    seen = 0
    for position in range(len(lines) - 1, -1, -1):
        line = lines[position][:_LONGEST]
        seen += bool(line.strip())
        if seen > _LOOKED_AT:
            return None
        match = next((found for pattern in _STATEMENTS if (found := pattern.match(line))), None)
        if match is None:
            continue
        said = match.groupdict()
        message = _with_next(said["message"].strip(), lines, position)
        frames = (Frame(said["file"], int(said["line"]), ""),) if said.get("line") else ()
        return Traceback(position, position, frames, message, position, stated=True)
    return None


def _with_next(message: str, lines: Sequence[str], position: int) -> str:
    following = lines[position + 1].strip() if position + 1 < len(lines) else ""
    if message.startswith("terminate called") and following.startswith("what():"):
        return f"{message} {following}"
    return f"{message} {following}" if message.startswith("Lmod") and message.endswith(":") else message
