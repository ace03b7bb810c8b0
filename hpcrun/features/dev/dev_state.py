"""What a run of ``hpcrun dev`` is, and the state of the run.

status, top and explain use this module, and import nothing more of ``dev``.
"""

from __future__ import annotations

import time

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.job.text.units import format_span
from hpcrun.runs.attempt import last_attempt
from hpcrun.runs.use_samples import idle_warning


class DevRunHooks(Hooks):
    """The hook of a run whose program is the listener."""

    def about_run(self, item: RunStatus) -> tuple[str, str]:
        """Return what it is, for a table, and how it stands or why it has ended, as a sentence."""
        attempt = last_attempt(item.folder, item.element or 0)
        now = item.status.state
        warning = idle_warning(attempt.folder) if attempt else None
        if warning and now == "COMPLETED":
            unused = f"unused for {format_span(warning.ends - warning.since)}"
            return unused, f"the job ended because it was {unused} (--idle)"
        if now == "RUNNING":
            if warning is None:
                return "dev", "a job of hpcrun dev"
            end = f"unused, ends at {time.strftime('%H:%M', time.localtime(warning.ends))}"
            return f"dev, {end}", f"a job of hpcrun dev: {end} unless it is used"
        return "dev" if item.status.final else "", ""
