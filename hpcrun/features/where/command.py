"""hpcrun where."""

from __future__ import annotations

from typing import Any

from hpcrun.cli.complete import profile_name
from hpcrun.cli.context import make_context
from hpcrun.cli.job_options import takes_job_options
from hpcrun.cli.options import option
from hpcrun.cli.output import JsonOption, Outcome, stdout, table, width
from hpcrun.errors import PlanError

# neither the job's place nor its start depends on these; --profile is an option of this command's own
_NO_MATTER = (
    "profile name mail_user mail_type notify notify_on python uv load setup srun torchrun env secrets workdir module "
    "preflight requeue warn_s cancel_idle_s retry_on_failure exclude_bad_nodes snapshot snapshot_limit_mb "
    "snapshot_include"
).split()


@takes_job_options(without=_NO_MATTER)
def where(
    options: dict[str, Any],
    profiles: list[str] | None = option(
        "--profile -P NAME",
        "Profile to compare. Repeatable. Default: yours, and the detected cluster.",
        complete=profile_name,
    ),
    _json: JsonOption = False,
) -> Outcome:
    """Show on which profile a job could start first.

    The start times are Slurm's estimates (sbatch --test-only).
    They change as other jobs come and go. Nothing is submitted.
    """
    from hpcrun.features.where.where import compare_profiles, misfit_lines, offers_table, submit_line, where_json

    context = make_context()
    result = compare_profiles(options, profiles or [], context.surroundings, context.now_s())
    offers = result.offers
    hint = "request less, or correct the profile of this cluster: hpcrun init"
    return Outcome(
        lambda: [
            *([table(offers_table(result, width()))] if offers else ()),
            stdout(misfit_lines(result)),
            *([stdout(["", submit_line(offers[0])])] if offers else ()),
        ],
        lambda: where_json(result),
        failure=None if offers else PlanError("the job fits no profile", hint=hint),
    )
