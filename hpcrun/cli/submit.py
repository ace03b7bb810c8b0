"""hpcrun submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hpcrun.cli.command_line import option_names, with_typed
from hpcrun.cli.context import make_context
from hpcrun.cli.job_options import AFTER, CHAIN, DRY_RUN, FOLLOW, SUBMISSION, WAIT, takes_job
from hpcrun.cli.output import JsonOption, Outcomes


@takes_job
def submit(
    options: dict[str, Any],
    output_dir: Path | None = SUBMISSION.option(
        "--output-dir DIR", "Folder for the run. Default: one per run in the runs folder."
    ),
    after: list[str] | None = AFTER,
    chain: str | None = CHAIN,
    dry_run: bool = DRY_RUN,
    follow: bool = FOLLOW,
    wait: bool = WAIT,
    as_json: JsonOption = False,
) -> Outcomes:
    """Submit a training script as a job.

    Write hpcrun's options before SCRIPT; all words after it go to the script.
    """
    from hpcrun.cli.submit_flow import prepare_job, read_start, submit_job, wait_for_end

    start = read_start(after, chain, dry_run=dry_run, follow=follow, wait=wait, as_json=as_json)
    context = with_typed(make_context(), options, option_names(submit))
    prepared = prepare_job(options, context)
    folder = None if output_dir is None else context.cwd / output_dir.expanduser()
    done = yield from submit_job(prepared, context, start, output_dir=folder)
    yield from wait_for_end(done, context, start)
