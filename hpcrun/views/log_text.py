"""Lines of logs for a terminal: they cannot control the terminal, and a colour ends with its line."""

from __future__ import annotations

from hpcrun.runs.logs import LogFile, fold
from hpcrun.views.text import harmless, without_colours

_RESET = "\x1b[0m"


def terminal_text(line: str, *, colours: bool) -> str:
    """Return a line, or a part of one, in a form that is safe on a terminal.

    Only the last state of a progress bar remains. Colours (SGR) stay: they change only the look of the text after
    them, and are reset at the end of the line. Bytes that are not text are shown as U+FFFD.
    """
    text = harmless(fold(line).encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
    if "\x1b" not in text:
        return text
    if not colours:
        return without_colours(text)
    body = text.removesuffix("\n")
    coloured = not body.endswith((_RESET, "\x1b[m"))
    return body + (_RESET if coloured else "") + text[len(body) :]


def label(log: LogFile) -> str:
    """Return the source of a line: ``rank 3``, ``rank 3 err``, ``batch``."""
    return f"{log.source} err" if log.path.suffix == ".err" else log.source


def heading(log: LogFile) -> str:
    """Return the heading of a log among several: ``rank 3 stdout``."""
    stream = {".err": " stderr", ".out": " stdout"}.get(log.path.suffix, "")
    return f"==> {log.source}{stream} <=="
