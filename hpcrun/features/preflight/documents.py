"""The shapes of the JSON documents of ``hpcrun preflight`` and ``hpcrun nodes``."""

from __future__ import annotations

from typing import Any

from hpcrun.cli.documents import PREPARED, SUBMITTED
from hpcrun.runs.failed_nodes import FailedNode
from hpcrun.runs.record import Run
from hpcrun.views.shapes import Documents, OrNull, Shape, of

_REASON: Shape = {"node": str, "why": str}
_KEPT: Shape = {
    "folder": str,
    "source": str | None,
    "bytes": int | None,
    "used": float | None,  # seconds of the epoch
}
_VERDICT: Shape = {
    "kind": "preflight",
    **of(Run, "run_id job_id"),
    "folder": str,
    "ok": bool,
    "nodes": [
        {"node": str, "answered": bool, "checks": {str: {str: Any}}, "kept": OrNull([_KEPT])}
    ],
    "bad": [_REASON],
    "problems": [str],
    "slow": [_REASON],
    "exclude": str,
}
DOCUMENTS: Documents = {
    "preflight": (_VERDICT, PREPARED, SUBMITTED),  # the last until there is a verdict
    "nodes": ({"kind": "nodes", "nodes": [FailedNode]},),
}
