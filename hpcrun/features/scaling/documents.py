"""The shapes of the JSON documents of ``hpcrun scale plan``, ``scale run`` and ``scale report``."""

from __future__ import annotations

from hpcrun.cli.documents import COST, PREPARED
from hpcrun.features.scaling.bottlenecks import Bottleneck
from hpcrun.features.scaling.forecast import Case, Forecast, MeasuredTraining
from hpcrun.features.scaling.forecast_display import FIELDS
from hpcrun.features.scaling.plan import ForecastResult
from hpcrun.features.scaling.points import Point
from hpcrun.features.scaling.report_files import Summary
from hpcrun.features.scaling.series import Row, Series
from hpcrun.features.scaling.step_model import Outlook
from hpcrun.features.scaling.studies import Study, StudyPoint
from hpcrun.features.scaling.study_report import Part, ReportOptions
from hpcrun.features.scaling.table_claims import Contradiction
from hpcrun.views.shapes import Documents, OrNull, Shape, all_of, of

# --- scale run -----------------------------------------------------------------------------------

_STUDY: Shape = of(
    Study, "study_id name created_s profile unit scaling batch_size lr dataset warmup one_by_one"
)
_STUDIES: Shape = {"kind": "studies", "studies": [{**_STUDY, "runs": int}]}
_STUDY_RUN: Shape = {
    **all_of(StudyPoint),
    "job_id": str | None,
    "state": str,
    "final": bool,
}
_STUDY_STATUS: Shape = {"kind": "study", **_STUDY, "points": [_STUDY_RUN]}
_STUDY_PLAN: Shape = {
    "kind": "study_plan",
    **_STUDY,
    **COST,
    "points": [{**all_of(StudyPoint), **PREPARED}],
}

# --- scale plan ----------------------------------------------------------------------------------

_SIZE: Shape = {
    **{name: OrNull(float) for name in FIELDS},
    **of(Forecast, "case batch_size steps concerns"),
    "gpus": int,
    "nodes": int,
}
_FORECAST: Shape = {
    "kind": "forecast",
    "profile": str,
    "measured": MeasuredTraining,
    "price_per_gpu_hour": float | None,
    "answer": [{"case": Case, "gpus": int | None, "text": str}],
    **of(ForecastResult, "fills_gpu"),
    "rows": [_SIZE],
    "remedies": [{**_SIZE, "command": str}],
    "warnings": [str],
    "measure": str | None,
    **of(ForecastResult, "notes"),
}

# --- scale report --------------------------------------------------------------------------------

_ADVICE: Shape = {
    "fastest": of(Row, "gpus nodes"),
    "fewest_gpu_hours": of(Row, "gpus nodes"),
    "best_value": of(Row, "gpus nodes"),
    "min_efficiency": float,
    "added_gpus_efficiency": float | None,
    "next_added_gpus_efficiency": float | None,
}
_SERIES: Shape = {
    **of(Series, "name dataset basis sources"),
    "rows": [Summary],
    "outlook": Outlook | None,
    "advice": OrNull(_ADVICE),
    **of(Part, "doubts"),
    "measure_again": str | None,
    "causes": [Bottleneck],
    "causes_of_gpus": int | None,
    "not_measured": [str],
    "left_out": [{**of(Point, "gpus nodes repeat run"), "problem": str}],
    **of(Series, "remarks"),
}
_BATCH: Shape = {**of(Row, "batch_size steps"), "time_s": float | None}
_REPORT: Shape = {
    "kind": "scaling-report",
    **of(ReportOptions, "name weak warmup"),
    "finished": bool,
    "answers": [str],
    "series": [_SERIES],
    "batches": [
        {"dataset": str, **of(Row, "gpus nodes"), "before": _BATCH, "after": _BATCH},
    ],
    "contradictions": [Contradiction],
    "remarks": [str],
    "folder": str | None,
    "files": [str],
}

DOCUMENTS: Documents = {
    "scale plan": (_FORECAST,),
    "scale run": (_STUDY_STATUS, _STUDIES, _STUDY_PLAN),
    "scale report": (_REPORT,),
}
