"""hpcrun scale run."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from hpcrun.cli.command_line import option_names, with_typed
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.job_options import SUBMISSION, takes_job_options
from hpcrun.cli.options import HelpPanel, argument
from hpcrun.cli.outcome import Outcome, Outcomes, note
from hpcrun.cli.output import JsonOption
from hpcrun.errors import UsageError
from hpcrun.features.scaling.study_flow import list_studies, resume_study, show_study, study_plan, submit_study
from hpcrun.features.scaling.study_names import study_name

if TYPE_CHECKING:
    from hpcrun.features.scaling.scale import StudyJob
    from hpcrun.features.scaling.sizes import Design
    from hpcrun.features.scaling.studies import Study

_STUDY = HelpPanel("Study")
_SET_BY_SIZE = ("nodes", "gpus", "gpus_per_node", "nproc_per_node")
_OF_SWEEPS = ("sweep", "sweep_file", "max_parallel", "elements")


@takes_job_options(without=(*_SET_BY_SIZE, *_OF_SWEEPS), own_first=True)
def scale(
    asked: dict[str, Any],
    script: str | None = argument("SCRIPT", "A .py file, a module with -m, or any program."),
    args: list[str] | None = argument(
        "ARGS", "Arguments of the script; {batch_size}, {lr}, {gpus} become the values of each run."
    ),
    gpus: str | None = _STUDY.option(
        "--gpus", "-G", metavar="[TYPE:]1,2,4", help="GPUs of each run, over all its nodes."
    ),
    ranks: str | None = _STUDY.option("--ranks", metavar="1,2,4", help="Ranks of each run on CPUs, instead of --gpus."),
    nodes: str | None = _STUDY.option(
        "--nodes",
        "-N",
        metavar="1,1,2",
        help="Nodes of each run, or one number for all. Default: the fewest that hold the GPUs.",
    ),
    weak: bool = _STUDY.flag(
        "--weak/--strong", help="Keep the per-GPU batch (weak), or the global batch (strong, the default)."
    ),
    batch_size: int | None = _STUDY.option(
        "--batch-size", metavar="N", help="Value of {batch_size}: the global batch, or with --weak the per-GPU batch."
    ),
    lr: str | None = _STUDY.option(
        "--lr", metavar="RATE", help="Value of {lr} for that batch; it is scaled with the global batch."
    ),
    repeat: int = _STUDY.option("--repeat", metavar="N", help="Runs of each size.", default=1),
    warmup: int = _STUDY.option(
        "--warmup", metavar="N", help="First epochs to leave out of the measurement.", default=1
    ),
    dataset: str = _STUDY.option(
        "--dataset", metavar="NAME", help="Value of {dataset}, shown in the report.", default=""
    ),
    chain: bool | None = _STUDY.option(
        "--chain/--parallel",
        help="Run one after the other, or all at once. Default: --parallel with Slurm, --chain without.",
    ),
    resume: str | None = SUBMISSION.option(
        "--resume", metavar="STUDY", help="Submit the missing runs of a study.", complete=study_name
    ),
    shown: str | None = SUBMISSION.option(
        "--show",
        metavar="STUDY",
        help="Show the runs of a study; with --wait, after the last has ended.",
        complete=study_name,
    ),
    listing: bool = SUBMISSION.flag("--list", help="List the studies."),
    dry_run: bool = SUBMISSION.flag("--dry-run", help="Show all runs and one script; submit nothing."),
    wait: bool = SUBMISSION.flag("--wait", help="Wait until all runs end. Exit status 0 if all completed, else 7."),
    as_json: JsonOption = False,
) -> Outcomes:
    """Measure how a training scales: run it on several numbers of GPUs.

    hpcrun scale report shows the result.
    Write hpcrun's options before SCRIPT; all words after it go to the script.
    """
    context = make_context()
    if listing:
        yield from list_studies(context)
        return
    if resume is not None or shown is not None:
        if script is not None or gpus or ranks or (resume and shown):
            raise UsageError(
                "--resume and --show take a study, without SCRIPT and sizes", hint="hpcrun scale run --list"
            )
        if resume is not None:
            yield from resume_study(resume, context, dry_run=dry_run, wait=wait, as_json=as_json)
        else:
            yield from show_study(shown or "", context, wait=wait)
        return
    if script is None:
        raise UsageError("SCRIPT is missing", hint="hpcrun scale run --gpus 1,2,4 train.py, or hpcrun scale run --list")
    from hpcrun.features.scaling.sizes import Workload, read_design

    workload = Workload("weak" if weak else "strong", batch_size, lr, dataset)
    design, remark = read_design(workload, gpus=gpus, ranks=ranks, nodes=nodes, repeat=repeat, warmup=warmup)
    yield note([f"note: {remark}" if remark else None])
    asked |= {"script": script, "args": args or []}
    context = with_typed(context, asked, _names())
    study, jobs = yield from _plan(asked, design, context, chain=chain)
    if dry_run:
        yield study_plan(study, jobs)
    else:
        yield from submit_study(study, jobs, context, wait=wait, as_json=as_json)


def _names() -> dict[str, int]:
    """Return the options that a script of a study would not have: --lr and --batch-size are the script's as well."""
    from hpcrun.cli.submit import submit

    return {**option_names(submit), "--ranks": True}


def _plan(
    asked: dict[str, Any], design: Design, context: Context, *, chain: bool | None
) -> Generator[Outcome, None, tuple[Study, list[StudyJob]]]:
    """Decide everything about a study, before anything is recorded.

    Raises:
        UsageError, ProfileError, PlanError: the job is not possible; the hint says what to change.
    """
    from hpcrun.actions.jobs.new_run import new_run_id, profile_file
    from hpcrun.actions.jobs.program import with_launcher
    from hpcrun.cli.submit import prepare_request, read_job
    from hpcrun.features.scaling.scale import new_study, prepare_points, settle_design
    from hpcrun.profiles.load import load_profile

    request, name = read_job(asked, context)
    loaded = load_profile(name, context.surroundings.profile_folders)
    if design.unit == "ranks":  # started by torchrun, unless the program starts them itself
        request, notes = with_launcher(request, loaded.profile, context.surroundings)
        yield note(f"note: {line}" for line in notes)
    request, design = settle_design(request, design, loaded, context.surroundings)
    study, template = new_study(
        request,
        design,
        loaded.profile,
        new_id=new_run_id,
        created_s=context.now_s(),
        profile=profile_file(loaded, context.surroundings) or name,
        cwd=str(context.cwd),
        one_by_one=loaded.profile.scheduler == "local" if chain is None else chain,
    )
    jobs = prepare_points(study, template, study.points, lambda request: prepare_request(request, name, context))
    return replace(study, python=asdict(jobs[0].prepared.plan.python)), jobs
