"""--warm in words: how an attempt started, what its compilers make, and what the next run gets."""

from __future__ import annotations

from hpcrun.job.text.units import count, format_span
from hpcrun.runs.attempt import Attempt
from hpcrun.runs.compiled_files import CompiledFiles

_COMPILING_S = 120.0
"""A compiler writes its next file within this time, also on a busy node."""


def compiled_row(attempt: Attempt, files: CompiledFiles) -> tuple[str, str]:
    """Return how an attempt started, ``warm`` or ``cold``, and what was compiled since."""
    compiled = _new_text(attempt, files)
    if files.run:
        had = f"{count(files.unpacked, 'compiled file')} of run {files.run}"
        return "warm", f"{had}; {compiled}"
    if files.why_cold:
        return "cold", f"{files.why_cold}; {compiled}"
    return "cold", compiled


def compiling_sentence(files: CompiledFiles, now_s: float) -> str:
    """Return that the ranks compile, with the number of new files; empty if they do not now."""
    if not files.new:
        return ""
    age_s = max(0.0, now_s - files.last_s)
    if age_s > _COMPILING_S:
        return ""
    return f"the ranks compile ({_number(files)}, the last {format_span(age_s)} ago)"


def _new_text(attempt: Attempt, files: CompiledFiles) -> str:
    if files.new:
        span = format_span(max(0.0, files.last_s - attempt.started_s))
        text = f"{_number(files)} in the first {span}"
    elif attempt.exit is None:
        text = "nothing compiled so far"
    elif attempt.exit.status:  # a killed node counts no files
        text = "no new file is known"
    else:
        text = "nothing compiled"
    if files.saved is not None:
        text += f"; saved, {files.saved / 1e6:.1f} MB: the next run starts warm"
    if files.chosen:
        text += f"; not counted, since it is set: {', '.join(files.chosen)}"
    return text


def _number(files: CompiledFiles) -> str:
    """Return ``66 new files``, or ``60 to 66 new files on each of 2 nodes``."""
    numbers = sorted(new.files for new in files.new.values())
    least = numbers[0]
    most = numbers[-1]
    text = count(most, "new file")
    if least != most:
        text = f"{least} to {text}"
    return f"{text} on each of {len(numbers)} nodes" if len(numbers) > 1 else text
