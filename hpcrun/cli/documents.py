"""The shapes of the JSON documents that the commands of the core print."""

from __future__ import annotations

from typing import Any, Literal

from hpcrun.actions.jobs.submission import SubmitResult
from hpcrun.actions.jobs.trust import TrustRow
from hpcrun.actions.profiles.detect import Detected
from hpcrun.actions.profiles.edit import FileChange
from hpcrun.actions.profiles.init_choices import Setup
from hpcrun.actions.profiles.list_profiles import ProfileRow, Verdict
from hpcrun.actions.profiles.variables import SetVariable
from hpcrun.actions.runs.clean_runs import Candidate
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.explain.ended import Explanation
from hpcrun.explain.evidence import Evidence
from hpcrun.job.batch.launcher_script import SbatchCall
from hpcrun.job.job_states import OverLimit
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.profile_model import Profile
from hpcrun.job.resources.shape import Shape as JobShape
from hpcrun.job.run_paths import RoleRanks
from hpcrun.profiles.variable_catalogue import Variable
from hpcrun.runs.compiled_files import CompiledFiles
from hpcrun.runs.metric_files import MetricsRow, Value
from hpcrun.runs.record import LastStatus, Run
from hpcrun.runs.role_states import RoleState
from hpcrun.runs.store import Leftover
from hpcrun.runs.use_samples import UseSummary
from hpcrun.schedulers.job_steps import GpuReading, PortReading
from hpcrun.schedulers.pending_and_usage import Limit, Usage, Waiting
from hpcrun.views.shapes import (
    Documents,
    OrNull,
    SetFieldsOnly,
    Shape,
    SometimesThere,
    all_of,
    of,
)

# --- a job before it runs ------------------------------------------------------------------------

PLAN: Shape = {
    **all_of(Plan, without="shape"),
    # a batch script alone decides its size
    "shape": {
        **{name: OrNull(shape) for name, shape in all_of(JobShape).items()},
        "world_size": SometimesThere(int | None),  # of a job with roles
        "tasks_per_node": SometimesThere(int | None),
    },
    "command_line": str,
    "world_size": int | None,
    "cpus_per_rank": int | None,
}
"""The plan of a job."""

COST: Shape = {"gpu_hours_at_most": float | None, "gpu_hours_with_requeues": float | None}
"""What jobs can use at most."""
PREPARED: Shape = {"kind": "plan", **COST, "plan": PLAN, "script": str}

_WAITING: Shape = {
    "never_starts": bool,
    "advice": str | None,
    "limit": OrNull(of(OverLimit, "holder what requested allowed whose")),
}
"""Whether a pending run ever starts."""
_END: Shape = {
    **of(LastStatus, "state final reason exit_status"),
    "cause": str | None,
    "rank": int | None,
    "role": str | None,
    "rank_exit_status": int | None,
    "elapsed_s": int | None,
    "silent_s": int | None,
    **_WAITING,
}
"""How a run ended, or why it has not."""
SUBMITTED: Shape = {
    "kind": "submitted",
    **of(Run, "run_id job_id scheduler cluster"),
    **of(SubmitResult, "folder remarks"),
    **COST,
    "plan": PLAN,
    # with --wait
    "job_ids": SometimesThere([str]),
    **{name: SometimesThere(shape) for name, shape in _END.items()},
}
_CHAIN: Shape = {
    "kind": "chain",
    "links": [{**of(Run, "run_id job_id name after"), **of(SubmitResult, "folder remarks")}],
    **COST,
}
SUBMISSION = (
    {**PREPARED, "parts": SometimesThere([PREPARED])},
    {**SUBMITTED, "parts": SometimesThere([SUBMITTED])},
    _CHAIN,
)
"""The documents of submit and resubmit; ``parts`` has the arrays of a sweep of several."""

_IMPORTED: Shape = {
    "script": str,
    "complete": bool,
    "command_line": str | None,
    "launcher": str,
    "changed": [{"line": int, "text": str}],
    "problems": [str],
    "not_taken_over": [str],
    "remarks": [str],
    "notes": [str],
}
_IMPORTED_CALLS: Shape = {"script": str, "complete": bool, "sbatch_calls": [SbatchCall]}

# --- runs ----------------------------------------------------------------------------------------

_STATUS: Shape = all_of(LastStatus)
_GPU: Shape = {"node": str, "rank": int | None, **all_of(GpuReading)}
_MESSAGE: Shape = {"event": str, "to": str, "state": str, "reason": str}
_DETAILS: Shape = {
    "waiting": Waiting | None,
    "usage": OrNull(
        {**all_of(Usage, without="gpus gpu_s"), "gpus": int | None, "gpu_s": int | None}
        | {"cpu_efficiency": float | None}
    ),
    "last_line": str | None,
    "metrics": {str: Value},
    "gpus": [_GPU],
    "use": UseSummary | None,
    "limits": [Limit],
    "messages": [_MESSAGE],
    "versions": {str: str},
    "compiled": CompiledFiles | None,
}
"""What ``status -v`` adds to a run."""
_RUN: Shape = {
    **of(Run, "run_id name scheduler cluster host created_s job_id profile nodes"),
    "gpus_per_node": int | None,
    "world_size": int | None,
    **of(Run, "walltime_s note gpu_hours_at_most"),
    "folder": str,
    "command": str,
    "by": str | None,
    **of(RunStatus, "stale lost"),
    "silent_s": int | None,
    **_STATUS,
    **_WAITING,
    "after": [{str: Any}],
    **of(Run, "chain resubmitted_from checkpoints_of code_of code"),
    "elements": SometimesThere(
        [{"element": int, "job_id": str | None, "parameters": {str: str}, **_STATUS}]
    ),
    "roles": SometimesThere(
        [
            {
                **of(RoleRanks, "name first_rank ranks"),
                **of(RoleState, "state since_s exit_status nodes"),
            }
        ]
    ),
    **{name: SometimesThere(shape) for name, shape in _DETAILS.items()},
    "on": SometimesThere(str),  # the cluster, with several --on
}
_RUNS: Shape = {
    "kind": "status",
    "runs": [_RUN],
    "away": SometimesThere(str | None),
    "damaged": SometimesThere([str]),
    "failed": SometimesThere({str: str}),  # cluster → its error, with several --on
}
_GPUS: Shape = {
    "kind": "gpu",
    "run_id": str,
    "gpus": [_GPU],
    "without": {str: str},
    "ports": [{"node": str, **all_of(PortReading)}],
}
_RECORDED_GPUS: Shape = {
    "kind": "gpu",
    "run_id": str,
    "recorded": Literal[True],
    "gpus": [
        {
            "element": int | None,
            "node": str,
            "index": int,
            "busy": float | None,
            "idle": float | None,
            "memory": float | None,
            "power_w": float | None,
        }
    ],
    "nodes": [{"element": int | None, "node": str, **all_of(UseSummary)}],
    "without": SometimesThere({str: str}),
    "ports": SometimesThere([{"node": str, **all_of(PortReading)}]),
}

_STAND: Shape = {
    "ranks": [int],
    "collective": str | None,
    "number": int | None,
    "group": str | None,
    "tensors": str | None,
    "at": str | None,
}
_MEETING: Shape = {
    "finding": str,
    "collective": str,
    "number": int,
    "group": str,
    "came": [_STAND],
    "absent": [_STAND],
    "no_dump": [int],
}
_EXPLANATION: Shape = {
    "kind": "explain",
    "run_id": str | None,
    "job_id": str | None,
    "folder": str | None,
    **of(LastStatus, "state exit_status"),
    **_WAITING,
    **of(Explanation, "summary rule level source rank node"),
    "role": str | None,
    "evidence": [Evidence],
    **of(Explanation, "fix next unread"),
    "flight": OrNull(
        {"dumps": [int], "no_dump": [int], "in_circle": bool, "collectives": [_MEETING]}
    ),
}

_ROWS: Shape = {
    "rows": [{**of(MetricsRow, "rank attempt time_s step"), "values": {str: Value}}],
    "unreadable_lines": int,
}
_METRICS: Shape = {
    "kind": "metrics",
    "run_id": str,
    "metrics": [str],
    **_ROWS,
    "element": int | None,
}
_METRICS_OF_ELEMENTS: Shape = {
    "kind": "metrics",
    "run_id": str,
    "metrics": [str],
    "elements": [{"element": int, "parameters": {str: str}, **_ROWS}],
}

_NAMED_RUN: Shape = {
    **of(Run, "run_id name job_id"),
    **of(RunStatus, "element"),
    **of(LastStatus, "state final reason"),
}
_CHANGED: Shape = {**_NAMED_RUN, "result": str}
_CANCEL: Shape = {
    "kind": "cancel",
    "changed": [_CHANGED],
    "others": [_NAMED_RUN],
    "may_start": [of(Run, "run_id name job_id")],
}
_REFUSED: Shape = {"changed": [_CHANGED], "matches": [_NAMED_RUN]}
_HELD: Shape = {"changed": [_CHANGED], "others": [_NAMED_RUN]}
_WAIT: Shape = {
    "kind": "wait",
    "runs": [{**of(Run, "run_id name job_id"), **of(RunStatus, "element"), **_END}],
}

_REMOVABLE: Shape = {
    "run_id": str,
    "state": str,
    "folder": str,
    **of(Candidate, "ended_s"),
    "bytes": int,
    "checkpoint_bytes": int,
    "why": str | None,
    "removed": bool,
}
_LEFTOVER: Shape = {
    **of(Leftover, "run_id changed_s"),
    "folder": str,
    "bytes": int,
    "why": str | None,
}
_CLEAN: Shape = {
    "kind": "clean",
    "removed": bool,
    "bytes": int,
    "checkpoint_bytes": int,
    "runs": [_REMOVABLE],
    "kept": [_REMOVABLE],
    "leftovers": [_LEFTOVER],
    "kept_leftovers": [_LEFTOVER],
}

# --- profiles ------------------------------------------------------------------------------------

_INIT: Shape = {
    "kind": "init",
    "profile": str,
    "scheduler": Literal["slurm", "local"],
    **of(Setup, "runs instead_of outdated"),
    "chosen": [{"what": str, "value": str, "others": [str]}],
    "written": bool,
    "files": [{**of(FileChange, "path changed before"), "text": str}],
    # once it is written: what hpcrun doctor found, and the test job
    "doctor": SometimesThere(OrNull({str: Any})),
    "test": SometimesThere(OrNull(SUBMITTED)),
}
_MISTAKE: Shape = {"file": str, "line": int, "key": str, "message": str}
_PROFILE: Shape = {
    "kind": "profile",
    "path": str,
    "profile": SetFieldsOnly(Profile),
    "origins": SometimesThere({str: {"value": Any, "file": str, "line": int}}),
}
_PROFILES: Shape = {
    "kind": "profiles",
    "profiles": [of(ProfileRow, "name path default problem profile")],
}
_VALIDATION: Shape = {
    "kind": "profile-validation",
    "profiles": [{**of(Verdict, "name path"), "mistakes": [_MISTAKE], "remarks": [_MISTAKE]}],
}
_DIFFERENCES: Shape = {
    "kind": "profile-diff",
    "profiles": [str],
    "differences": [{"key": str, "values": [Any]}],
}
_DETECTED: Shape = {
    "kind": "detected",
    **of(Detected, "path text warnings"),
    "profile": SetFieldsOnly(Profile),
}
_VARIABLES: Shape = {"kind": "variables", "variables": [Variable]}
_SET_VARIABLES: Shape = {
    "kind": "profile-variables",
    "profile": str,
    "set": [{**of(SetVariable, "name value problem variable"), "origin": str | None}],
    "set_by_script": [Variable],
}
_TRUST: Shape = {"kind": "trust", "folders": [of(TrustRow, "path state files")]}

DOCUMENTS: Documents = {
    "init": (_INIT,),
    "submit": SUBMISSION,
    "resubmit": SUBMISSION,
    "import": (_IMPORTED, _IMPORTED_CALLS),
    "status": (_RUNS, _GPUS, _RECORDED_GPUS),
    "explain": (_EXPLANATION,),
    "metrics": (_METRICS, _METRICS_OF_ELEMENTS),
    "wait": (_WAIT,),
    "cancel": (_CANCEL, {"kind": "cancel", **_REFUSED}),
    "hold": ({"kind": "hold", **_HELD}, {"kind": "hold", **_REFUSED}),
    "release": ({"kind": "release", **_HELD}, {"kind": "release", **_REFUSED}),
    "clean": (_CLEAN,),
    "profile list": (_PROFILES,),
    "profile show": (_PROFILE,),
    "profile validate": (_VALIDATION,),
    "profile diff": (_DIFFERENCES,),
    "profile detect": (_DETECTED,),
    "profile env": (_VARIABLES, _SET_VARIABLES),
    "profile trust": (_TRUST,),
}
