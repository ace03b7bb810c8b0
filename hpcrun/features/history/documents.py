"""The shape of the JSON document of ``hpcrun history``."""

from __future__ import annotations

from hpcrun.features.history.history import Budget, CauseCount, History, HistoryRow
from hpcrun.views.shapes import Documents, Shape, of

_ROW: Shape = {
    "group": str,
    "week_start": str | None,  # ISO 8601
    **of(HistoryRow, "ended"),
    "completed": int,
    "failed": int,
    "cancelled": int,
    **of(HistoryRow, "success gpu_hours lost_gpu_hours cpu_hours wait_median_s wait_90_percent_s"),
}
_HISTORY: Shape = {
    "kind": "history",
    **of(History, "by since_s until_s runs jobs others running unknown local removed"),
    "rows": [_ROW],
    "total": _ROW,
    "causes": [CauseCount],
    "budgets": [Budget],
}
DOCUMENTS: Documents = {"history": (_HISTORY,)}
