"""What is said at the end of a run that was waited for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hpcrun.cli.output import tell
from hpcrun.views.text import harmless, one_line, time_text

if TYPE_CHECKING:
    from hpcrun.actions.first_line import Rules
    from hpcrun.actions.status import RunStatus


def report_end(item: RunStatus, folder: Path, *, quiet: bool, rules: Rules) -> None:
    """Say how a run ended, and for a failed one which rank failed first, its last words, and what explain says."""
    from hpcrun.actions.first_line import EXPLAINED, first_line
    from hpcrun.actions.wait import find_failure

    status = item.status
    failure = None if status.state == "COMPLETED" else find_failure(folder)
    if failure:
        rank = failure.rank
        tell([f"hpcrun: rank {rank.rank} on {rank.node} failed first, with exit status {rank.status}; it said:"])
        tell(f"  {line}" for line in harmless(failure.last_lines).splitlines())
    if not quiet:
        reason = f" ({status.reason})" if status.reason else ""
        tell([f"hpcrun: job {item.run.job_id} {status.state}{reason} after {time_text(status.elapsed_s)}"])
    if status.state in EXPLAINED and (line := first_line(item, rules(), known=True)):
        tell([one_line(f"hpcrun: {line}")])
