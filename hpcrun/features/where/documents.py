"""The shape of the JSON document of ``hpcrun where``."""

from __future__ import annotations

from hpcrun.features.where.command import Misfit, Offer
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.resources.shape import Shape as JobShape
from hpcrun.schedulers.job_start import JobStart
from hpcrun.views.shapes import Documents, Shape, of

_OFFER: Shape = {
    "profile": str,
    **of(JobShape, "gpu_type nodes gpus_per_node"),
    **of(Plan, "cpus_per_node walltime_s"),
    **of(Offer, "gpu_hours"),
    **of(JobStart, "start_s"),
    "start": str,  # ISO 8601
    "node_list": str,
    **of(JobStart, "partition"),
    "displaces": [str],
    "submit": str,
}
DOCUMENTS: Documents = {
    "where": ({"kind": "where", "asked_s": float, "offers": [_OFFER], "misfits": [Misfit]},)
}
