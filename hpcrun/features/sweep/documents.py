"""The shapes of the JSON documents of ``hpcrun sweep``."""

from __future__ import annotations

from typing import Literal

from hpcrun.features.sweep.compare_elements import SweepRow
from hpcrun.runs.metric_files import Value
from hpcrun.runs.record import LastStatus
from hpcrun.views.shapes import Documents, OrNull, Shape, of

_ELEMENT: Shape = {
    "run_id": str,
    "element": int,
    **of(SweepRow, "job_id"),
    **of(LastStatus, "state exit_status"),
    "parameters": {str: str},
    **of(SweepRow, "step"),
    "values": {str: Value},
}
_SWEEP: Shape = {
    "kind": "sweep",
    "order": OrNull({"metric": str, "direction": Literal["min", "max"]}),
    "parameters": [str],
    "metrics": [str],
    "elements": [_ELEMENT],
}
_BEST: Shape = {"kind": "sweep-best", **_ELEMENT, "command": str}
DOCUMENTS: Documents = {"sweep": (_SWEEP, _BEST)}
