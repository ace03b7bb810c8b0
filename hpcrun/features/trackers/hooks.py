"""What trackers hear of the core: the end of a run, whose offline runs are uploaded, and rows for its details."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpcrun.actions.hooks import Hooks
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.features.trackers.display import tracker_rows
from hpcrun.features.trackers.tracker_files import tracker_runs
from hpcrun.runs.record import Run


class TrackerHooks(Hooks):
    """The hooks of trackers."""

    def on_end(self, run: Run, folder: Path, env: Mapping[str, str]) -> None:
        """Upload the offline wandb runs of a run, in the background."""
        from hpcrun.features.trackers.open_and_sync import start_sync

        start_sync(run, folder, env, [sys.executable, "-m", "hpcrun"])

    def run_rows(self, item: RunStatus) -> Sequence[tuple[str, str]]:
        """Return the trackers' runs of a run."""
        return tracker_rows(tracker_runs(item.run, item.folder, item.element or 0, most_attempts=1))
