"""hpcrun scale."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hpcrun.cli.complete import study_name
from hpcrun.cli.context import Context, make_context
from hpcrun.cli.options import takes_job_options
from hpcrun.cli.output import JsonOption, show, show_json, show_rich, tell, write
from hpcrun.cli.start import submit_one
from hpcrun.errors import HpcrunError, InterruptedByUser, JobFailedError, UsageError

if TYPE_CHECKING:
    from hpcrun.actions.lineage import Lineage
    from hpcrun.actions.prepare import Prepared
    from hpcrun.actions.scale import Job
    from hpcrun.actions.study import StudyStatus
    from hpcrun.actions.submit import SubmitResult
    from hpcrun.job.after import Dependency
    from hpcrun.runs.studies import Study

_STUDY, _NOW = "The study", "What happens now"
_SET_BY_SIZE = ("nodes", "gpus", "gpus_per_node", "nproc_per_node")
_OF_SWEEPS = ("sweep", "sweep_file", "max_parallel", "elements")


@takes_job_options(without=(*_SET_BY_SIZE, *_OF_SWEEPS))
def scale(
    asked: dict[str, Any],
    script: Annotated[
        str | None,
        typer.Argument(metavar="SCRIPT", help="A .py file, a module with -m, or any program.", show_default=False),
    ] = None,
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="The script's own; {batch_size}, {gpus} and others stand for each run's values.",
            show_default=False,
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(
            "--gpus",
            "-G",
            metavar="[TYPE:]1,2,4",
            help="GPUs of each run, all its nodes together.",
            rich_help_panel=_STUDY,
            show_default=False,
        ),
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(
            "--ranks",
            metavar="1,2,4",
            help="Without GPUs: the ranks of each run, on CPUs.",
            rich_help_panel=_STUDY,
            show_default=False,
        ),
    ] = None,
    nodes: Annotated[
        str | None,
        typer.Option(
            "--nodes",
            "-N",
            metavar="1,1,2",
            help="Nodes of each run, or one number for all; by default as few as hold the GPUs.",
            rich_help_panel=_STUDY,
            show_default=False,
        ),
    ] = None,
    weak: Annotated[
        bool,
        typer.Option(
            "--weak/--strong",
            help="Keep the batch of each GPU, or that of all GPUs together.",
            rich_help_panel=_STUDY,
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            help="What {batch_size} is: of all GPUs, with --weak of each.",
            rich_help_panel=_STUDY,
            show_default=False,
        ),
    ] = None,
    lr: Annotated[
        str | None,
        typer.Option(
            "--lr",
            metavar="RATE",
            help="What {lr} is for that batch; it grows as the batch does.",
            rich_help_panel=_STUDY,
            show_default=False,
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", metavar="N", help="Runs of each size.", rich_help_panel=_STUDY)
    ] = 1,
    warmup: Annotated[
        int,
        typer.Option(
            "--warmup", metavar="N", help="Epochs at the beginning that do not count.", rich_help_panel=_STUDY
        ),
    ] = 1,
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset", metavar="NAME", help="What {dataset} is, and a report shows.", rich_help_panel=_STUDY
        ),
    ] = "",
    chain: Annotated[
        bool | None,
        typer.Option(
            "--chain/--parallel",
            help="Start each run when the one before is over, so that they do not disturb each other; "
            "by default only where there is no Slurm.",
            rich_help_panel=_STUDY,
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="STUDY",
            help="Submit what is missing of a study, and show its runs.",
            rich_help_panel=_NOW,
            show_default=False,
            autocompletion=study_name,
        ),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", help="List the studies.", rich_help_panel=_NOW)] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the runs and the first script, submit nothing.", rich_help_panel=_NOW),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Stay until all are over; exit with 0, or 7 if one failed.", rich_help_panel=_NOW),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Run a training at several sizes, to measure what more GPUs bring; hpcrun report shows it.

    hpcrun's options stand before SCRIPT; all that follows is the script's own.
    """
    context = make_context()
    if listing:
        _list(context, as_json=as_json)
        return
    if resume is not None:
        if script is not None or gpus or ranks:
            raise UsageError("--resume takes no SCRIPT and no sizes: the study has them", hint="hpcrun scale --list")
        _resume(resume, context, dry_run=dry_run, wait=wait, as_json=as_json)
        return
    if script is None:
        raise UsageError("there is no SCRIPT", hint="hpcrun scale --gpus 1,2,4 train.py, or hpcrun scale --list")
    asked |= {"script": script, "args": args or []}
    said = {"scaling": "weak" if weak else "strong", "batch_size": batch_size, "lr": lr, "dataset": dataset}
    study, jobs = _plan(asked, said, context, gpus=gpus, ranks=ranks, nodes=nodes, repeat=repeat, warmup=warmup,
                        chain=chain)  # fmt: skip
    if dry_run:
        _show_plan(study, jobs, as_json=as_json)
    else:
        _submit(study, jobs, context, None, wait=wait, as_json=as_json)


def _plan(
    asked: dict[str, Any],
    said: dict[str, Any],
    context: Context,
    *,
    gpus: str | None,
    ranks: str | None,
    nodes: str | None,
    repeat: int,
    warmup: int,
    chain: bool | None,
) -> tuple[Study, list[Job]]:
    """Decide everything about a study, before anything is recorded.

    Raises:
        UsageError, ProfileError, PlanError: what cannot be, and what to do.
    """
    if (gpus is None) == (ranks is None):
        raise UsageError("say the sizes, one way: --gpus or --ranks", hint="hpcrun scale --gpus 1,2,4 train.py")
    if warmup < 0:
        raise UsageError(f"--warmup {warmup}: epochs cannot be fewer than none")
    from hpcrun.actions.new_run import profile_file
    from hpcrun.actions.scale import new_study, on_ranks, placed, prepare_points
    from hpcrun.cli.submit import prepare_request, read_job
    from hpcrun.profiles.load import load_profile
    from hpcrun.scaling.sizes import Workload, parse_sizes

    gpu_type, sizes = parse_sizes(gpus or ranks or "", nodes, "--gpus" if gpus else "--ranks")
    workload = Workload(**said)
    tell(f"note: {remark}" for remark in filter(None, [workload.check(sizes)]))
    template, name = read_job(asked, context)
    loaded = load_profile(name, context.surroundings.profile_folders)
    unit: Any = "ranks" if ranks else "GPUs"
    template = on_ranks(template, loaded.profile) if ranks else template
    study = new_study(
        template,
        placed(template, sizes, unit, gpu_type, loaded.profile),
        workload,
        unit=unit,
        repeat=repeat,
        new_id=context.new_run_id,
        gpu_type=gpu_type,
        created_s=context.now_s(),
        profile=profile_file(loaded, context.surroundings) or name,
        cwd=str(context.cwd),
        warmup=warmup,
        one_by_one=loaded.profile.scheduler == "local" if chain is None else chain,
    )
    jobs = prepare_points(study, template, study.points, lambda request: prepare_request(request, name, context))
    return replace(study, python=asdict(jobs[0].prepared.plan.python)), jobs


def _show_plan(study: Study, jobs: list[Job], *, as_json: bool) -> None:
    from hpcrun.views.plan import plan_lines, prepared_json
    from hpcrun.views.scale import job_line, planned_json, study_lines

    if as_json:
        show_json(planned_json(study, jobs, prepared_json))
        return
    tell([*study_lines(study), *(job_line(study, job) for job in jobs), ""])
    if jobs:
        tell([*plan_lines(jobs[0].prepared.plan), ""])
        write(jobs[0].prepared.script.text)


def _submit(
    study: Study, jobs: list[Job], context: Context, last: Dependency | None, *, wait: bool, as_json: bool
) -> None:
    """Submit runs of a study, and stay where that was asked for.

    Raises:
        HpcrunError: not all were submitted; the record says which.
        InterruptedByUser: Ctrl-C; what was submitted goes on.
        JobFailedError: with ``wait``: a run did not end well.
    """
    from hpcrun.actions.submit import check_available
    from hpcrun.views.plan import plan_lines
    from hpcrun.views.scale import next_lines, study_lines

    plan = jobs[-1].prepared.plan
    check_available(plan, context.scheduler(plan.scheduler))
    context.studies.save(study)
    if not as_json:
        show([*plan_lines(plan), *study_lines(study)])
    stays = study.one_by_one and plan.scheduler == "local"  # where nothing else would wait for the one before
    try:
        study, submitted, errors = _submit_jobs(study, jobs, context, last, stays=stays, as_json=as_json)
        if wait or stays:
            _wait(study, context)
    except (KeyboardInterrupt, InterruptedByUser):
        raise _interrupted(study, context) from None
    if not (as_json or wait or stays):
        show(next_lines(study, submitted))
    elif as_json or wait or stays:
        _show_status(study, context, as_json=as_json, check=wait or stays)
    if errors:
        raise type(errors[0])(
            f"{len(errors)} of {len(jobs)} runs were not submitted; the first: {errors[0].message}",
            hint=f"hpcrun scale --resume {study.study_id} submits them",
        )


def _submit_jobs(
    study: Study, jobs: list[Job], context: Context, last: Dependency | None, *, stays: bool, as_json: bool
) -> tuple[Study, list[str], list[HpcrunError]]:
    from hpcrun.actions.scale import submit_points
    from hpcrun.views.scale import submitted_lines

    def submit_point(prepared: Prepared, lineage: Lineage, run_id: str) -> SubmitResult:
        return submit_one(prepared, context, lineage, None, run_id)

    submitted, errors = [], []
    for item in submit_points(study, jobs, studies=context.studies, folder=context.store.folder,
                              submit_one=submit_point, last=last):  # fmt: skip
        study = item.study
        if item.error and not item.point.submitted:
            errors.append(item.error)
        if not as_json:
            show(submitted_lines(item))
        if item.result:
            submitted.append(str(item.result.run.job_id))
            if stays:
                context.waiter(item.result.run.run_id).wait()
    return study, submitted, errors


def _wait(study: Study, context: Context) -> None:
    """Wait until every run that was submitted is over."""
    for point in study.points:
        if context.store.folder(point.run_id).exists():
            context.waiter(point.run_id).wait()


def _interrupted(study: Study, context: Context) -> InterruptedByUser:
    study = context.studies.load(study.study_id)
    left = sum(not point.submitted for point in study.points)
    goes_on = f"{left} of {len(study.points)} runs are not submitted yet" if left else "its runs go on"
    return InterruptedByUser(
        f"study {study.study_id}: {goes_on}",
        hint=f"hpcrun scale --resume {study.study_id} --wait comes back to it",
    )


def _resume(word: str, context: Context, *, dry_run: bool, wait: bool, as_json: bool) -> None:
    """Submit what is missing of a study; show its runs where nothing is.

    Raises:
        SchedulerError: the scheduler is away, and does not say what is missing.
    """
    from hpcrun.actions.study import brought_up, find_study, last_open, missing

    found = find_study(word, context.studies)
    tell([found.note] if found.note else [])
    status = _look(found.study, context)
    if not missing(status):
        if wait:
            try:
                _wait(found.study, context)
            except KeyboardInterrupt:
                raise _interrupted(found.study, context) from None
        _show_status(found.study, context, as_json=as_json, check=wait)
        return
    if status.away:
        raise status.away
    study = brought_up(status, context.new_run_id)
    jobs, there = _jobs_again(study, {point.run_id for point in found.study.points}, context)
    if dry_run:
        _show_plan(study, jobs, as_json=as_json)
        return
    if study.one_by_one and jobs[0].prepared.plan.scheduler == "local":
        _wait(found.study, context)
    _submit(study, jobs, there, last_open(status) if study.one_by_one else None, wait=wait, as_json=as_json)


def _jobs_again(study: Study, known: set[str], context: Context) -> tuple[list[Job], Context]:
    """Return the runs of a study with new ids, and the context as it would be in the study's folder."""
    from hpcrun.actions.resubmit import folder_of, same_python, unmasked
    from hpcrun.actions.scale import prepare_points
    from hpcrun.cli.submit import prepare_request, read_job

    env = {**same_python(study.python, context.env), "HPCRUN_RUNS": str(context.store.root)}
    there = Context(env, folder_of(study.cwd, study.study_id))
    said = {**study.request, "profile": study.profile, "env": unmasked(study.request.get("env", ()), context.env)}
    template, profile = read_job(said, there)
    points = [point for point in study.points if point.run_id not in known]
    return prepare_points(study, template, points, lambda request: prepare_request(request, profile, there)), there


def _look(study: Study, context: Context) -> StudyStatus:
    from hpcrun.actions.first_line import with_first_lines
    from hpcrun.actions.rules import load_rules
    from hpcrun.actions.study import look_at, newest_runs

    return look_at(
        study,
        newest_runs(study, context.store),
        store=context.store,
        schedulers=context.scheduler,
        host=context.host,
        now_s=context.now_s(),
        explained=lambda result: with_first_lines(result, context.store, lambda: load_rules(context.layers.values())),
    )


def _show_status(study: Study, context: Context, *, as_json: bool, check: bool) -> None:
    """Show the runs of a study as they stand.

    Raises:
        JobFailedError: with ``check``: one did not end well.
        SchedulerError: the scheduler is away; what was last known is shown.
    """
    from hpcrun.views.scale import next_lines, study_json, study_lines, study_table

    status = _look(study, context)
    if as_json:
        show_json(study_json(status))
    else:
        show(study_lines(study))
        show_rich(study_table(status))
        show(next_lines(study, [])[1:])
    bad = [item for item in status.runs if item.over and item.state != "COMPLETED"]
    if status.away:
        raise typer.Exit(status.away.exit_code) if as_json else status.away
    if check and bad:
        sys.stdout.flush()
        raise JobFailedError(
            f"{len(bad)} of {len(status.runs)} runs did not complete", hint=f"hpcrun explain {bad[0].run_id}"
        )


def _list(context: Context, *, as_json: bool) -> None:
    from hpcrun.actions.study import all_studies
    from hpcrun.views.scale import studies_json, studies_table

    studies, damaged = all_studies(context.studies)
    if as_json:
        show_json(studies_json(studies))
    elif studies:
        show_rich(studies_table(studies, context.now_s()))
    else:
        tell([f"no studies in {context.studies.runs}"])
    tell(f"hpcrun: {message}" for message in damaged)
