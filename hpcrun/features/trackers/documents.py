"""The shapes of the JSON documents of ``hpcrun open``."""

from __future__ import annotations

from hpcrun.features.trackers.command import Tracked
from hpcrun.features.trackers.tracker_files import SyncResult, TrackerRun
from hpcrun.views.shapes import Documents, Shape, all_of, of

_TRACKERS: Shape = {
    "kind": "trackers",
    "run_id": str,
    "element": int | None,
    **of(Tracked, "page"),
    "runs": [all_of(TrackerRun)],
    **of(Tracked, "event_files"),
}
_SYNC: Shape = {
    "kind": "sync",
    "runs": [
        {
            "run_id": str,
            **of(SyncResult, "uploaded"),
            "uploaded_before": [str],
            "running_elements": [int],
            **of(SyncResult, "pages failure"),
        }
    ],
}
DOCUMENTS: Documents = {"open": (_TRACKERS, _SYNC)}
