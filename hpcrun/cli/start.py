"""--after and --chain, and submitting one job or a chain of them: for submit and resubmit alike."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hpcrun.cli.complete import run_name
from hpcrun.cli.context import Context
from hpcrun.cli.job_options import SUBMISSION
from hpcrun.cli.lean_imports import import_submitit
from hpcrun.cli.outcome import Outcome, Outcomes, note, printed, stderr, verbatim
from hpcrun.errors import UsageError

if TYPE_CHECKING:
    from hpcrun.actions.jobs.lineage import Lineage
    from hpcrun.actions.jobs.prepare import Prepared
    from hpcrun.actions.jobs.submit import SubmitResult

AfterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--after",
        metavar="RUN[:ok|any|fail]",
        help="Start after RUN (sbatch --dependency): ok, the default, if it completed; fail, if it failed; any. "
        "Repeatable.",
        rich_help_panel=SUBMISSION,
        show_default=False,
        autocompletion=run_name,
    ),
]
ChainOption = Annotated[
    str | None,
    typer.Option(
        "--chain",
        metavar="N[:any]",
        help="Submit N jobs in a row, each continuing from the checkpoints of the one before, until one completes. "
        "With :any, continue after any end.",
        rich_help_panel=SUBMISSION,
        show_default=False,
    ),
]


def check_start(after: list[str] | None, chain: str | None, *, stays: bool = False) -> None:
    """Refuse what cannot be read, before anything is shown.

    Args:
        stays: the end is to be waited for.

    Raises:
        UsageError: an option means nothing, or a chain was also to be waited for.
    """
    if not after and chain is None:
        return
    from hpcrun.job.after import parse_after, parse_chain

    for text in after or ():
        parse_after(text)
    if chain is not None:
        parse_chain(chain)
    if chain is not None and stays:
        raise UsageError(
            "--chain cannot be combined with --follow or --wait", hint="follow one of its runs: hpcrun logs -f RUN"
        )


def with_after(
    lineage: Lineage, after: list[str] | None, prepared: Prepared, context: Context
) -> Generator[Outcome, None, Lineage]:
    """Return the lineage with the runs that were named to be waited for."""
    if not after:
        return lineage
    from hpcrun.actions.jobs.lineage import check_can_wait, resolve_after
    from hpcrun.job.after import parse_after

    asked = [parse_after(text) for text in after]
    check_can_wait(prepared.plan, "--after")
    found, notes = resolve_after(
        asked, store=context.store, schedulers=context.scheduler, host=context.host, now_s=context.now_s()
    )
    yield note(notes)
    return replace(lineage, after=found)


def dry_run_outcome(prepared: Prepared) -> Outcome:
    """Return what would be submitted: the plan on stderr and the script on stdout, or one document."""
    from hpcrun.views.plan import plan_lines, prepared_json

    return Outcome(
        lambda: [stderr(plan_lines(prepared.plan)), verbatim(prepared.script.text)],
        lambda: prepared_json(prepared),
    )


def submit_one(
    prepared: Prepared, context: Context, lineage: Lineage, output_dir: Path | None, run_id: str | None = None
) -> SubmitResult:
    """Submit one job, under a new id where it has none."""
    from hpcrun.actions.jobs.new_run import new_run_id
    from hpcrun.actions.jobs.submit import submit

    if prepared.plan.scheduler == "slurm":
        import_submitit()
    return submit(
        prepared,
        store=context.store,
        scheduler=context.scheduler(prepared.plan.scheduler),
        surroundings=context.surroundings,
        run_id=run_id or new_run_id(prepared.plan.name),
        now_s=context.now_s(),
        output_dir=None if output_dir is None else context.cwd / output_dir.expanduser(),
        lineage=lineage,
    )


def submit_links(
    prepared: Prepared, text: str, context: Context, lineage: Lineage, output_dir: Path | None
) -> Outcomes:
    """Submit a chain, and show each link when it is submitted: the next one may be refused."""
    from hpcrun.actions.jobs.chain import chain_links, submit_chain
    from hpcrun.job.after import parse_chain
    from hpcrun.views.lineage import chain_json, link_line, look_line

    chain = parse_chain(text)
    links = chain_links(prepared, chain, context.surroundings)
    done: list[SubmitResult] = []
    for result in submit_chain(links, chain, lineage, lambda link, its: submit_one(link, context, its, output_dir)):
        done.append(result)
        yield printed(link_line(result), lambda: chain_json(done))
    yield printed(look_line(done))
