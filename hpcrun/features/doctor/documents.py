"""The shape of the JSON document of ``hpcrun doctor``."""

from __future__ import annotations

from hpcrun.features.doctor.check import Check, Checkup
from hpcrun.views.shapes import Documents, of

DOCUMENTS: Documents = {
    "doctor": ({"kind": "doctor", **of(Checkup, "profile ok"), "checks": [Check]},)
}
