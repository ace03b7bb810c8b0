"""The shape of the JSON document of ``hpcrun share``."""

from __future__ import annotations

from hpcrun.views.shapes import Documents

DOCUMENTS: Documents = {
    "share": (
        {
            "kind": "share",
            "run_id": str,
            "element": int | None,
            "file": str,
            "bytes": int,
            "secrets_hidden": int,
        },
    )
}
