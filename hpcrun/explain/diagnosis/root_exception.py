"""The exception or the message that ended a program, whatever reported it afterwards. Pure.

What leaves no traceback are usage errors, aborts in C++, a shell's complaints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpcrun.explain.diagnosis.traceback import (
    REMOTE_HEADER,
    Frame,
    Traceback,
    is_exception_line,
    tracebacks,
)

AFTER_MOST = 60
"""Lines that may follow an uncaught exception: its own message, and what libraries say while they
are torn down.
"""
_DIRECT = "The above exception was the direct cause of the following exception:"
_DURING = "During handling of the above exception, another exception occurred:"
_INSIDE = re.compile(
    r"Original Traceback|^-- Process \d+ terminated with the following error:|^[ |]*\+-\+-+ 1 "
    r"-+$|^\"\"\"$"
    r"|^\[Rank \d+ Error Snippet\]:"  # Ray Train
    rf"|^ *{re.escape(REMOTE_HEADER)}"
)
"""Lines between a traceback of a process that received a failure from another one, and the
traceback of the failure.
"""
_FURTHER = re.compile(r"^[ |]*\+-+ (?:[2-9]|\d\d+) -+$")
"""Lines before the second and further exceptions of a group."""
_REPORTERS = re.compile(
    r"torch\.distributed\.elastic\.multiprocessing\.(?:errors\.ChildFailedError"
    r"|api\.SignalException)|ChildFailedError"
    r"|torch\.multiprocessing\.spawn\.Process(?:Raised|Exited)Exception|"
    r"(?:subprocess\.)?CalledProcessError"
    r"|(?:\w*Error|Exception): .*(?:[Ss]ee (?:the )?(?:stack trace|root cause|inner exception)"
    r"|(?:[Ss]ee|[Cc]heck) .*\babove\b)"
    r"|submitit\.core\.utils\.\w+|ray\.exceptions\.\w+|RuntimeError: Training "
    r"failed|joblib\.externals"
    r"|(?:\w+\.)*_?RemoteTraceback|(?:\w+\.)*CheckpointException|(?:\w+\.)*WorkerGroupError"
)
"""Exceptions by which a launcher says that what it started has failed."""
_SAYS_NOTHING = re.compile(r"ChildFailedError:?(?: [=-]*)?$|SignalException")
"""Exceptions whose line says nothing of the failure: the launcher reports it in other lines."""
_TEARDOWN = re.compile(
    r"Exception ignored (?:in|on|while)|--- Logging error ---|Error in "
    r"atexit\._run_exitfuncs|Error in sys\.excepthook"
    r"|Exception in thread "
)
"""Lines with which Python begins the traceback of an error that does not end the program."""
_THREAD = re.compile("Exception in thread ")
_WAITED = re.compile(r"(?:_?queue\.)?(?:Empty|Full)\b|(?:\w+\.)*TimeoutError\b")
"""Exceptions of a program that waited in vain: a thread of its own that had failed before is the
reason.
"""
_LOST = re.compile(
    r"(?:RuntimeError|(?:[\w.]+\.)?Dist\w*Error): .*(?:[Cc]onnection (?:was "
    r")?(?:closed|reset)|[Bb]roken pipe"
    r"|Horovod has been shut down|remote process exited|NCCL communicator was "
    r"aborted|connectFullMesh"
    r"|[Tt]imed out waiting|Caught collective operation timeout|[Ff]ailed to recv|but "
    r"store->get|[Ss]ocket [Tt]imeout)"
)
"""Exceptions of a rank that has lost another one, or has waited for it in vain."""
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_REPORT = re.compile(r"[A-Za-z_.]*(?:raise|reraise|Error\()")
_LOOKED_AT = 60
"""Lines at the end of a log of which one may say why the program ended."""
_LONGEST = 1000

# The first that matches a line counts. {message} is what is said; file and line are where, in the
# user's own script.
_STATEMENTS = tuple(
    re.compile(text)
    for text in (
        # argparse exits with 2; absl with 1; click and typer with 2
        r"^[\w./-]+\.py: error: (?P<message>.+)",
        r"^[\w./-]+: error: (?P<message>(?:argument|unrecognized arguments|the following "
        r"arg|ambiguous option).*)",
        r"^FATAL Flags parsing error: (?P<message>.+)",
        r"^(?:Error: |│ )(?P<message>(?:Missing|No such|Invalid value|Got unexpected|Option|Could "
        r"not).*?)[ │]*$",
        # hydra
        r"^(?P<message>(?:Could not override|Error merging override) '.+)",
        r"^(?P<message>(?:In '.+': )?(?:Could not find|Primary config).+)",
        # C++ and the C library
        r"^(?P<message>terminate called (?:after throwing an instance of .+|without an active "
        r"exception|recursively))",
        r"^(?P<message>F\d{4} [\d:.]+ +\d+ [\w./-]+:\d+\] .+)",
        r"^(?P<message>\S+: \S+:\d+: .+: Assertion .+ failed\.?)$",
        r"^(?P<message>(?:free|malloc|munmap_chunk|realloc)\(\): .+|double free or "
        r"corruption.*|corrupted .+ vs\. .+"
        r"|\*\*\* stack smashing detected.*)",
        # shells, and what starts a program
        r"^(?P<file>/?[\w./-]+): line (?P<line>\d{1,7}): +(?:\d+ )?(?P<message>.+)",
        r"^\[\d+\] +[-+]? *\d+ (?P<message>(?:segmentation fault|bus error|abort|killed).*)",  # zsh
        r"^(?P<file>/?[\w./-]+): (?P<line>\d{1,7}): (?P<message>\S+: (?:not found|Permission "
        r"denied).*)",
        r"^(?:/\S{0,80}/)?(?:ba|da|z|k|c|tc)?sh: (?P<message>\S+: (?:No such file or directory"
        r"|Permission denied|[Cc]annot execute.*)).*",
        r"^(?P<message>\S*python[\d.]*: (?:can\'t open file|No module named|Error while finding "
        r"module).+)",
        r"^(?P<message>/usr/bin/env: .+)",
        r"^(?:slurmstepd|srun): error: (?P<message>(?:\S+: )?(?:execve|couldn\'t chdir).+)",
        r"^(?P<message>(?:Lmod has detected the following error|ModuleCmd_\w+\.c\(\d+\):ERROR).*)",
        r"^(?P<message>(?:CommandNotFoundError|EnvironmentNameNotFound"
        r"|EnvironmentLocationNotFound): .+)",
        r"^\s*(?P<message>FATAL: +.+)",  # apptainer
        # MPICH's, Cray's and Intel's: the last line of its stack says why
        r"^(?:MPICH ERROR .* - |.*\b)?(?P<message>Abort\(\d+\) .*\(rank \d+ in comm .*[Ff]atal "
        r"error in .+)",
        r"^(?P<message>(?:nvcc|ptxas) fatal +: .+)",
        r"^(?P<message>make(?:\[\d+\])?: \*\*\* .+)",
    )
)


_BARE = re.compile(r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception):?$")
_COMPLAINT = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL|[Ee]rror|[Ff]atal error) ?[:\]]|\bERROR\b|\bWARN (?!\w+ is )"
    r"|[Cc]annot |[Cc]ould not "
    r"|[Uu]nable to |\brefused\b|\bdenied\b|No such file|not found\b|[Oo]ut of memory|core "
    r"dumped|Segmentation fault"
    r"|\b[Ff]ailed (?:to|in|on|at|for|with|while|when|during|because|due|bind) "
    r"|\] Assertion `|\bfailure to |temporarily unavailable|^(?:[\w.-]+: )?Error [a-z]"
    r"|failed \(exitcode: |\bFATAL\b|\bCRITICAL\b|\bfailed: |\bAbort\(|EXCEEDED: |does not exist"
)
"""Words of error messages of all kinds of programs."""
_NO_COMPLAINT = re.compile(
    r"\bINFO\b|\bDEBUG\b|W(?:ARNING|arning)\b|\bwarning:|^W\d{4} |srun: error: \S+: tasks? "
    r"|[Bb]acktrace for this error"
    r"|^\[W\d{4} |slurmstepd: error: \*\*\*|Exited with exit code"
    r"|[Kk]illing subprocess|: ignored\.?$|terminated normally|exiting improperly|non-zero "
    r"exit|returned non-zero"
    r"|\w+_?error\w*[\'\"]?[=:] ?[\w\'\"]|\b0 errors?\b|errors?: 0\b|--\w*error"
)
"""Lines that are no error messages in spite of such words: notices, keys of a config, launchers'
reports on others.
"""
_OF_OTHERS = re.compile(
    r"(?:srun|slurmstepd|sbatch): |.*failed \(exitcode: |wandb: |make(?:\[\d+\])?: \*\*\*|pdsh@"
    r"|bash: warning: |\S+: line \d+: +\d+ [A-Z]"
)
"""Prefixes of launchers and of tools beside the program: the program's own messages have priority.
"""
_STACK_LINE = re.compile(r"^ ?\w+\(\d+\)\.*: +(?P<said>.+)")
_MOST_STACK = 40


def root_exception(lines: Sequence[str], *, mixed: bool = False) -> Traceback | None:
    """Return the exception that ended a program, None where its log shows none.

    A chain counts as one exception: an exception that was raised from another one names this one as
    its origin. Of a chain whose last link is a mistake made while the first was handled, the first
    counts.

    Args:
        lines: the lines of the log.
        mixed: several processes write into the log: of the exceptions at its end the first counts,
            not the last, and one of a rank that has lost its peer only if there is no other.
    """
    chains, torn = _chains(lines)
    real = [raised for raised in chains if not _REPORTERS.match(raised.exception)]
    ends = [*(raised.begins for raised in chains if _REPORTERS.match(raised.exception)), len(lines)]
    chosen = _chosen([_behind(raised, lines, ends) for raised in real], lines, mixed=mixed)
    if chosen is not None and _WAITED.match(chosen.exception):
        threads = [
            one
            for one in torn
            if one.ends < chosen.begins and _THREAD.match(lines[max(0, one.begins - 1)])
        ]
        if threads:
            chosen = replace(threads[-1], followed_by=chosen.followed_by)
    if chosen is not None and chosen.followed_by <= AFTER_MOST:
        return chosen
    statement = last_statement(lines, mixed=mixed)
    if statement is not None:
        return _behind(statement, lines, ends)
    if chosen is not None:
        return chosen
    reports = [raised for raised in chains if not _SAYS_NOTHING.search(raised.exception)]
    rest = reports or (torn if first_complaint(lines) is None else [])
    return _behind(rest[-1], lines, ends) if rest else None


def _chosen(raised: Sequence[Traceback], lines: Sequence[str], *, mixed: bool) -> Traceback | None:
    if not raised:
        return None
    if not mixed:
        return _first_of_its_kind(raised)
    burst = [raised[-1]]
    for earlier in reversed(raised[:-1]):
        if burst[0].begins - earlier.last > AFTER_MOST:
            break
        burst.insert(0, earlier)
    first = next((one for one in burst if not _LOST.match(one.exception)), burst[0])
    return replace(first, followed_by=burst[-1].followed_by, raised=_times_raised(first, lines))


def _times_raised(raised: Traceback, lines: Sequence[str]) -> int:
    """Return how many processes raised an exception, by its line.

    The tracebacks of the processes may be mixed with one another.
    """
    name = raised.exception.partition(":")[0]
    text = without_values(raised.exception)
    near = lines[max(0, raised.begins - AFTER_MOST) : raised.last + AFTER_MOST]
    return sum(line.startswith(name) and without_values(line.strip()) == text for line in near)


def _first_of_its_kind(raised: Sequence[Traceback]) -> Traceback:
    """Return the last exception, or the first of several programs that say the same.

    They say the same of other files and numbers. A shell script goes on after a program has failed:
    what its next program says is the same again.
    """
    chosen = raised[-1]
    for earlier in reversed(raised[:-1]):
        near = chosen.begins - earlier.last <= AFTER_MOST and _program(earlier) != _program(chosen)
        if not near or without_values(earlier.exception) != without_values(chosen.exception):
            break
        chosen = replace(earlier, followed_by=chosen.followed_by)
    return replace(chosen, followed_by=raised[-1].followed_by)


def without_values(exception: str) -> str:
    """Return an exception without its numbers and quoted texts.

    These differ between processes that fail alike.
    """
    return _VALUES.sub("", exception)


def _program(raised: Traceback) -> str:
    return raised.frames[0].file if raised.frames else ""


def _behind(raised: Traceback, lines: Sequence[str], ends: Sequence[int]) -> Traceback:
    """Count the lines behind an exception, up to the first report of it."""
    end = min(place for place in ends if place > raised.ends)
    return replace(
        raised, followed_by=sum(bool(line.strip()) for line in lines[raised.last + 1 : end])
    )


def _chains(lines: Sequence[str]) -> tuple[list[Traceback], list[Traceback]]:
    """Return the chains of tracebacks, and the tracebacks of a teardown.

    Each chain is the traceback that counts in it.
    """
    chains: list[Traceback] = []
    torn: list[Traceback] = []
    for raised in tracebacks(lines):
        before = chains[-1] if chains else None
        between = lines[before.last + 1 : raised.begins + 1] if before else ()
        if before is not None and (joined := _joined(before, raised, between)):
            chains[-1] = joined
        elif any(map(_TEARDOWN.match, lines[max(0, raised.begins - 3) : raised.begins])):
            torn.append(raised)
        else:
            chains.append(raised)
    return chains, torn


def _joined(before: Traceback, raised: Traceback, between: Sequence[str]) -> Traceback | None:
    """Return two tracebacks as one where the second belongs to the first, else None."""
    if raised.begins <= before.last:  # its message is the traceback of another process
        return replace(raised, begins=before.begins)
    words = [line.strip() for line in between]
    if any(_FURTHER.match(line) for line in between):
        return replace(before, last=raised.last)
    if any(_INSIDE.search(line) for line in between) and _DIRECT not in words:
        return replace(raised, begins=before.begins)
    if _DIRECT in words:
        return _raised_from(before, raised)
    if _DURING in words:
        last = raised.frames[-1].code if raised.frames else "raise"
        if _REPORT.match(last) or _REPORTERS.match(before.exception):
            return _raised_from(before, raised)
        return replace(before, last=raised.last, aftermath=raised)
    return None


def _raised_from(origin: Traceback, raised: Traceback) -> Traceback:
    """Return an exception with its origin.

    The result is only the origin if another process passed the exception on unchanged.
    """
    if origin.exception == raised.exception or _REPORTERS.match(raised.exception):
        return replace(origin, last=raised.last)
    return replace(raised, begins=origin.begins, origin=origin.origin or origin)


def last_statement(lines: Sequence[str], *, mixed: bool = False) -> Traceback | None:
    """Return the last line by which a program says why the program ends.

    The result is None if there is no such line near the end. What C++ adds to an exception on its
    next line, and Lmod to its heading, belongs to the line.

    Args:
        lines: the lines of the log.
        mixed: several processes write into the log: of those that say the same the first counts.
    """
    places = [place for place, line in enumerate(lines) if line.strip()][-_LOOKED_AT:]
    statements = [
        (place, number) for place in places if (number := _kind(lines[place])) is not None
    ]
    if not statements:
        return _bare_exception(lines, places)
    of_program = [
        (place, number) for place, number in statements if not _OF_OTHERS.match(lines[place])
    ]
    place, kind = (of_program or statements)[-1]
    if mixed:
        place = next(place for place, number in statements if number == kind)
    match = _STATEMENTS[kind].match(lines[place][:_LONGEST])
    assert match is not None
    parts = match.groupdict()
    if parts.get("line"):
        frames: tuple[Frame, ...] = (Frame(parts["file"], int(parts["line"]), ""),)
    else:
        frames = ()
    message = parts["message"].strip()
    if message.startswith("Abort(") and (why := _why(lines, place)) is not None:
        call = message[message.lower().index("fatal error in") :].partition(":")[0]
        return Traceback(place, why[0], frames, f"{call}: {why[1]}", why[0], stated=True)
    return Traceback(place, place, frames, _with_next(message, lines, place), place, stated=True)


def _bare_exception(lines: Sequence[str], places: Sequence[int]) -> Traceback | None:
    """Return an exception without a traceback, if it is the last line and the only complaint.

    Several processes may say the same: the first counts.

    Args:
        lines: the lines of the log.
        places: the positions of its last lines.
    """
    of_program = [place for place in places if not _OF_OTHERS.match(lines[place])]
    if not of_program or not _is_bare(lines, of_program[-1]):
        return None
    first = first_complaint(lines)
    if first is None:
        first = of_program[-1]
    name = lines[of_program[-1]].partition(":")[0]
    if not _is_bare(lines, first) or lines[first].partition(":")[0] != name:
        return None
    # without a traceback it is no more than a message
    text = lines[first].strip()[:_LONGEST]
    return Traceback(first, first, (), text, first, stated=True)


def _is_bare(lines: Sequence[str], place: int) -> bool:
    text = lines[place].strip()[:_LONGEST]
    if _REPORTERS.match(text) or _LOST.match(text):
        return False
    return _BARE.match(text) is not None or _is_lone_exception(lines, place)


def _kind(line: str) -> int | None:
    return next(
        (number for number, one in enumerate(_STATEMENTS) if one.match(line[:_LONGEST])), None
    )


def is_statement(line: str) -> bool:
    """Whether a line says by itself why its program ends."""
    return _kind(line) is not None


def first_complaint(lines: Sequence[str]) -> int | None:
    """Return the position of the first complaint near the end of a log.

    The result is None if no line complains of anything. A launcher or a tool beside the program
    counts only where the program does not complain.
    """
    places = [place for place, line in enumerate(lines) if line.strip()][-_LOOKED_AT:]
    complaining = [
        place for place in places if complains(lines[place]) or _is_lone_exception(lines, place)
    ]
    of_program = (place for place in complaining if not _OF_OTHERS.match(lines[place]))
    return next(of_program, complaining[0] if complaining else None)


def _is_lone_exception(lines: Sequence[str], place: int) -> bool:
    """Whether a line is an exception with a message, but without the frames of a traceback."""
    alone = place == 0 or not lines[place - 1][:1].isspace()
    return alone and is_exception_line(lines[place]) and not lines[place].rstrip().endswith(":")


def complains(line: str) -> bool:
    """Whether a line complains of anything, as far as can be told without knowing the program."""
    text = line[:_LONGEST]
    return _COMPLAINT.search(text) is not None and _NO_COMPLAINT.search(text) is None


def _with_next(message: str, lines: Sequence[str], position: int) -> str:
    if position + 1 < len(lines):
        following = lines[position + 1].strip()
    else:
        following = ""
    if message.startswith("terminate called") and following.startswith("what():"):
        return f"{message} {following}"
    if message.startswith("Lmod") and message.endswith(":"):
        return f"{message} {following}"
    return message


def _why(lines: Sequence[str], abort: int) -> tuple[int, str] | None:
    """Return what the innermost call of MPICH's error stack says, and its position.

    The innermost call is in the last of the stack's lines.
    """
    why = None
    for place in range(abort + 1, min(len(lines), abort + _MOST_STACK)):
        match = _STACK_LINE.match(lines[place])
        if match is None and not lines[place].rstrip().endswith(":"):
            break
        why = (place, match["said"]) if match else why
    return why
