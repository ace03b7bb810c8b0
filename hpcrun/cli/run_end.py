"""What is said at the end of a run that was waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpcrun.cli.outcome import TextPart, stderr
from hpcrun.views.text import harmless, one_line, time_text

if TYPE_CHECKING:
    from hpcrun.actions.status.first_line import Rules
    from hpcrun.actions.status.status import RunStatus


def why_it_failed(item: RunStatus, rules: Rules) -> Iterator[TextPart]:
    """Say of a run that failed what explain says first, and the last words of the rank it names."""
    from hpcrun.actions.status.first_line import ending

    if item.status.state == "COMPLETED":
        return
    end = ending(item, rules)
    yield stderr([one_line(f"hpcrun: {end.line}")] if end.line else [])
    if end.rank is not None and end.last_lines:
        yield stderr([f"hpcrun: rank {end.rank} ended with exit status {end.exit_status}; the end of its stderr:"])
        yield stderr(f"  {line}" for line in harmless(end.last_lines).splitlines())


def how_it_ended(item: RunStatus) -> TextPart:
    """Say how a run ended."""
    status = item.status
    reason = f" ({status.reason})" if status.reason else ""
    return stderr([f"hpcrun: job {item.run.job_id} {status.state}{reason} after {time_text(status.elapsed_s)}"])
