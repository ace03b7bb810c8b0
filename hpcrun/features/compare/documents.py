"""The shape of the JSON document of ``hpcrun compare``."""

from __future__ import annotations

from typing import Any

from hpcrun.actions.status.run_status import RunStatus
from hpcrun.features.compare.compare_runs import ComparedFact
from hpcrun.runs.record import LastStatus, Run
from hpcrun.views.shapes import Documents, Shape, of

_RUN: Shape = {
    **of(Run, "run_id job_id name"),
    **of(RunStatus, "element"),
    "label": str,
    **of(LastStatus, "state"),
}
_COMPARISON: Shape = {
    "kind": "compare",
    "runs": [_RUN],
    "sections": {str: [{**of(ComparedFact, "name differs"), "values": [Any]}]},
    "remarks": [str],
}
DOCUMENTS: Documents = {"compare": (_COMPARISON,)}
