"""The shape of the JSON document of ``hpcrun notify``."""

from __future__ import annotations

from hpcrun.features.notify.deliveries import Delivery
from hpcrun.views.shapes import Documents, of

DOCUMENTS: Documents = {
    "notify": (
        {
            "kind": "messages",
            "run_id": str | None,
            "messages": [of(Delivery, "event to state reason")],
        },
    )
}
