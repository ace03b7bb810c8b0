"""hpcrun where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli import complete
from hpcrun.cli.context import make_context
from hpcrun.cli.job_options import takes_job_options
from hpcrun.cli.lean_imports import import_pydantic
from hpcrun.cli.outcome import Outcome, TextPart, stdout, table
from hpcrun.cli.output import JsonOption, width
from hpcrun.errors import PlanError

if TYPE_CHECKING:
    from hpcrun.features.where.where import WhereResult

# what neither the job's place nor its start depends on; a profile is asked for by an option of this command's own
_NO_MATTER = (
    "profile",
    "name",
    "mail_user",
    "mail_type",
    "notify",
    "notify_on",
    "python",
    "uv",
    "load",
    "setup",
    "srun",
    "torchrun",
    "env",
    "secrets",
    "workdir",
    "module",
    "preflight",
    "requeue",
    "warn_s",
    "cancel_idle_s",
    "retry_on_failure",
    "exclude_bad_nodes",
    "snapshot",
    "snapshot_limit_mb",
    "snapshot_include",
)


@takes_job_options(without=_NO_MATTER)
def where(
    asked: dict[str, Any],
    profiles: Annotated[
        list[str] | None,
        typer.Option(
            "--profile",
            "-P",
            metavar="NAME",
            help="Profile to compare. Repeatable. Default: yours, and the detected cluster.",
            show_default=False,
            autocompletion=complete.profile_name,
        ),
    ] = None,
    _json: JsonOption = False,
) -> Outcome:
    """Show on which profile a job could start first.

    The start times are Slurm's estimates (sbatch --test-only).
    They change as other jobs come and go. Nothing is submitted.
    """
    import_pydantic()
    from hpcrun.features.where.display import where_json
    from hpcrun.features.where.where import where as find_where
    from hpcrun.job.request import read_request
    from hpcrun.schedulers.estimate import SlurmForecast

    context = make_context()
    # nothing runs; a request has a script
    said = {name: value for name, value in asked.items() if value is not None} | {"script": "true"}
    forecast = SlurmForecast(context.env)
    result = find_where(read_request(said), profiles or [], forecast, context.surroundings, context.now_s())
    failure = None
    if not result.offers:
        hint = "request less, or correct the profile of this cluster: hpcrun init"
        failure = PlanError("the job fits no profile", hint=hint)
    return Outcome(lambda: _text(result), lambda: where_json(result), failure=failure)


def _text(result: WhereResult) -> Iterator[TextPart]:
    from hpcrun.features.where.display import misfit_lines, offers_table, submit_line

    if result.offers:
        yield table(offers_table(result, width()))
    yield stdout(misfit_lines(result))
    if result.offers:
        yield stdout(["", submit_line(result.offers[0])])
