"""What is said at the end of a run that was waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpcrun.cli.output import tell
from hpcrun.views.text import harmless, one_line, time_text

if TYPE_CHECKING:
    from hpcrun.actions.first_line import Rules
    from hpcrun.actions.status import RunStatus


def report_end(item: RunStatus, *, quiet: bool, rules: Rules) -> None:
    """Say how a run ended; of a failed one what explain says first, and the last words of the rank it names."""
    from hpcrun.actions.first_line import ending

    status = item.status
    if status.state != "COMPLETED":
        end = ending(item, rules)
        tell([one_line(f"hpcrun: {end.line}")] if end.line else [])
        if end.rank is not None and end.last_lines:
            tell([f"hpcrun: rank {end.rank} ended with exit status {end.exit_status}; the end of its stderr:"])
            tell(f"  {line}" for line in harmless(end.last_lines).splitlines())
    if not quiet:
        reason = f" ({status.reason})" if status.reason else ""
        tell([f"hpcrun: job {item.run.job_id} {status.state}{reason} after {time_text(status.elapsed_s)}"])
