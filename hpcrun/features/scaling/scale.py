"""scale run: one training at several sizes, each an ordinary run.

The record of the study comes before the first run.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from hpcrun.actions.jobs import submission
from hpcrun.actions.jobs.after_and_chain import check_can_wait
from hpcrun.actions.jobs.check_limits import within_limits
from hpcrun.actions.jobs.job_defaults import settle, with_defaults
from hpcrun.actions.jobs.new_run import Lineage, new_run_id, profile_file, request_record
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.program import with_launcher
from hpcrun.actions.jobs.resubmit import folder_of, same_python, unmasked
from hpcrun.actions.ports import Surroundings
from hpcrun.cli.context import Context
from hpcrun.cli.interrupt import interrupted_as
from hpcrun.cli.misplaced_options import option_names, with_typed
from hpcrun.cli.output import Outcome, Outcomes, TextPart, note, printed, stderr, verbatim
from hpcrun.cli.submit import submit
from hpcrun.cli.submit_flow import prepare_request, read_job
from hpcrun.errors import (
    HpcrunError,
    InterruptedByUser,
    PlanError,
    SubmissionUncertainError,
    UsageError,
)
from hpcrun.features.scaling.sizes import Design, Size, Unit, Workload, in_order, point_name
from hpcrun.features.scaling.studies import (
    Study,
    StudyPoint,
    StudyStore,
    last_open,
    study_status,
    with_run_ids,
)
from hpcrun.features.scaling.study_flow import (
    chosen_study,
    head_json,
    interrupted,
    next_lines,
    point_text,
    show_status,
    study_lines,
    wait_for_study,
)
from hpcrun.job.plan.cost import gpu_hours_text, total_hours
from hpcrun.job.plan.job_plan import Plan, name_of
from hpcrun.job.profile_model import Profile
from hpcrun.job.request.after import Dependency
from hpcrun.job.request.job_request import GpuCount, JobRequest
from hpcrun.job.resources.shape import decide_size, for_gpu_type
from hpcrun.job.run_paths import RunFolder, run_name
from hpcrun.profiles.load import LoadedProfile, load_profile
from hpcrun.views.plan_text import prepared_json, prepared_lines, total_cost
from hpcrun.views.text import count, one_line

StudyJob = tuple[StudyPoint, Prepared]
"""A run of a study that is to be submitted, with its script."""
Submitted = tuple[StudyPoint, submission.SubmitResult | HpcrunError]
"""What became of one submission: an error if no job was submitted, or if this is uncertain."""
_LEFT_OPEN = ("partition", "account", "qos")
"""Fields of a request that a profile may leave open, for the largest size to decide."""


def run_study(
    options: dict[str, Any],
    design: Design,
    context: Context,
    *,
    chain: bool | None,
    dry_run: bool,
    wait: bool,
    as_json: bool,
) -> Outcomes:
    """Submit all runs of a study, or show them.

    Nothing is recorded before everything is decided.

    Args:
        options: those of the job, by the fields of its request, with ``script`` and ``args``.
        design: the sizes, the workload and the repeats of the study.
        context: the folders, profiles and schedulers of this command.
        chain: whether a run waits for the one before; None leaves it to the scheduler.
        dry_run: whether to show the runs, and to submit nothing.
        wait: whether to wait until all runs end.
        as_json: whether to show the state of the study, as ``--json`` asks for it.
    """
    # a script of a study would not have these options: --lr and --batch-size are the script's as
    # well
    context = with_typed(context, options, {**option_names(submit), "--ranks": True})
    request, name = read_job(options, context)
    loaded = load_profile(name, context.surroundings.profile_folders)
    if design.unit == "ranks":  # started by torchrun, unless the program starts them itself
        typed = for_gpu_type(loaded.profile, request)
        request, notes = with_launcher(request, typed, context.surroundings)
        yield note(f"note: {line}" for line in notes)
    request, design = settle_design(request, design, loaded, context.surroundings)
    one_by_one = chain
    if one_by_one is None:
        one_by_one = loaded.profile.scheduler == "local"
    study, template = new_study(
        request,
        design,
        loaded.profile,
        new_id=new_run_id,
        created_s=context.now_s(),
        profile=profile_file(loaded, context.surroundings) or name,
        cwd=str(context.cwd),
        one_by_one=one_by_one,
    )
    jobs = prepare_points(
        study, template, study.points, lambda request: prepare_request(request, name, context)
    )
    _, last = jobs[-1]
    plan = last.plan
    study = replace(study, python=asdict(plan.python))
    if dry_run:
        yield study_plan(study, jobs)
        return
    submission.check_available(plan, context.scheduler(plan.scheduler))
    with _checked(study, jobs, context) as surroundings:
        studies = StudyStore(context.store.root)
        studies.save(study)
        with studies.submitting(study.study_id):
            submitted = yield from _submit_jobs(study, jobs, context, surroundings)
    yield from _finish(study, jobs, submitted, context, wait=wait, shown=as_json)


def resume_study(
    label: str, context: Context, *, dry_run: bool, wait: bool, as_json: bool
) -> Outcomes:
    """Submit what is missing of a study, and show its runs."""
    studies = StudyStore(context.store.root)
    chosen = yield from chosen_study(label, context)
    with studies.submitting(chosen.study_id):
        status = study_status(studies.load(chosen.study_id), context)
        if status.away:
            raise status.away
        study = with_run_ids(status, new_run_id)
        jobs, there = _jobs_again(study, context)
        if dry_run:
            yield study_plan(study, jobs)
            return
        with _checked(study, jobs, there) as surroundings:
            if must_wait_between(study, jobs):
                wait_for_study(status.study, context)
            studies.save(study)
            last = last_open(status) if study.one_by_one else None
            submitted = yield from _submit_jobs(study, jobs, there, surroundings, last)
    yield from _finish(study, jobs, submitted, there, wait=wait, shown=as_json or not jobs)


def _jobs_again(study: Study, context: Context) -> tuple[list[StudyJob], Context]:
    """Return the runs of a study that are to be submitted, and their context.

    The context is as it would be in the study's folder.
    """
    points = [point for point in study.points if not point.submitted]
    if not points:
        return [], context
    env = same_python(study.python, context.env)
    env = {**env, "HPCRUN_RUNS": str(context.store.root)}
    there = Context(env, folder_of(study.cwd, study.study_id))
    request = study.request
    env_again = unmasked(request.get("env", ()), context.env, request.get("secrets", ()))
    template, profile = read_job({**request, "profile": study.profile, "env": env_again}, there)
    jobs = prepare_points(
        study, template, points, lambda request: prepare_request(request, profile, there)
    )
    return jobs, there


@contextmanager
def _checked(study: Study, jobs: Sequence[StudyJob], context: Context) -> Iterator[Surroundings]:
    """Check that all runs are within the limits together, before one of them is submitted.

    If hpcrun lets each run wait for the one before, other processes may submit meanwhile. Then
    each run is checked again, unless a person has allowed all of them.
    """
    with ExitStack() as held:
        prepared = [each for _, each in jobs]
        limited = within_limits(prepared, context.ports, context.surroundings)
        surroundings = held.enter_context(limited)
        if must_wait_between(study, jobs):
            held.close()
            if not surroundings.consent.by_person:
                surroundings = context.surroundings
        yield surroundings


def _submit_jobs(
    study: Study,
    jobs: list[StudyJob],
    context: Context,
    surroundings: Surroundings,
    last: Dependency | None = None,
) -> Generator[Outcome, None, list[Submitted]]:
    """Submit runs of a study, each shown when it is."""
    if jobs:
        _, prepared = jobs[-1]
        yield printed([*prepared_lines(prepared), *study_lines(study), *_cost_lines(jobs)])
    submitted = []

    with interrupted_as(partial(interrupted, study, context)):
        for item in submit_points(study, jobs, context, last, surroundings):
            submitted.append(item)
            yield printed(submitted_lines(study, *item))
    return submitted


def _finish(
    study: Study,
    jobs: list[StudyJob],
    submitted: list[Submitted],
    context: Context,
    *,
    wait: bool,
    shown: bool,
) -> Outcomes:
    """Wait where that was requested, and show how to go on, or what became of the runs.

    The states of the runs are shown if ``shown`` is set or the runs were waited for.
    """
    study = StudyStore(context.store.root).load(study.study_id)
    waited = wait or must_wait_between(study, jobs)
    if wait:
        wait_for_study(study, context)
    job_ids = []
    errors = []
    for point, result in submitted:
        if not isinstance(result, HpcrunError):
            job_ids.append(str(result.run.job_id))
        elif not point.submitted:
            errors.append(result)
    if waited or shown:
        yield from show_status(study, context, check=waited)
    else:
        yield printed(next_lines(study, job_ids))
    if errors:
        message = f"{len(errors)} of {count(len(jobs), 'run')} could not be submitted"
        hint = f"hpcrun scale run --resume {study.study_id} submits them again"
        raise type(errors[0])(message, hint=hint)


def study_plan(study: Study, jobs: Sequence[StudyJob]) -> Outcome:
    """Return what would be submitted, as text or as one document.

    The text has all runs and a plan on stderr, and one script on stdout.
    """

    def line(point: StudyPoint, prepared: Prepared) -> str:
        command = prepared.plan.command
        program = shlex.join(command[command.index(prepared.request.script) :])
        return one_line(f"{run_name(point.run_id)}  {point_text(study, point)}: {program}")

    def text() -> Iterator[TextPart]:
        yield stderr([*study_lines(study), *starmap(line, jobs), *_cost_lines(jobs), ""])
        if jobs:
            _, prepared = jobs[0]
            yield stderr([*prepared_lines(prepared), ""])
            yield verbatim(prepared.script)

    def document() -> dict[str, Any]:
        points = [{**asdict(point), **prepared_json(prepared)} for point, prepared in jobs]
        return {
            "kind": "study_plan",
            **head_json(study),
            **total_cost(points),
            "points": points,
        }

    return Outcome(text, document)


def _cost_lines(jobs: Sequence[StudyJob]) -> list[str]:
    """Return the GPU-hours of all runs at most; no line if those of one are not known."""
    hours = total_hours(prepared.cost().gpu_hours_with_requeues for _, prepared in jobs)
    return [f"cost       at most {gpu_hours_text(hours)} in all"] if hours else []


def submitted_lines(
    study: Study, point: StudyPoint, result: submission.SubmitResult | HpcrunError
) -> list[str]:
    """Return the result of the submission of one run."""
    name = run_name(point.run_id)
    size = point_text(study, point)
    if isinstance(result, HpcrunError):
        label = "uncertain" if point.submitted else "refused"
        message = " ".join(result.message.split())
        return [one_line(f"{label:<10} {name}  {size}: {message}")]
    lines = [f"submitted  {name}  {size}, job {result.run.job_id}"]
    lines += [f"           {line}" for line in result.remarks.splitlines()]
    return [one_line(line) for line in lines]


def new_study(
    template: JobRequest,
    design: Design,
    cluster: Profile,
    *,
    new_id: Callable[[str], str],
    **fields: Any,
) -> tuple[Study, JobRequest]:
    """Return a study of which nothing is submitted, and the request of all its runs.

    The request has places for the values of the runs. ``new_id`` makes an id of a name; the other
    fields of the study are given.
    """
    unit = design.unit
    name = name_of(template)
    if unit == "ranks":
        template = _on_ranks(template, cluster)
    sizes = _placed(template, design, cluster)
    times = Counter(size.gpus for size in sizes)
    study_id = new_id(name)
    points = []
    for size, number in in_order(sizes, design.repeat):
        with_nodes = times[size.gpus] > 1
        run_id = new_id(point_name(name, size, number, unit, with_nodes=with_nodes))
        batch_size = design.workload.global_batch(size.gpus)
        points.append(StudyPoint(size.gpus, size.nodes or 1, number, run_id, batch_size))
    study = Study(
        study_id=study_id,
        name=name,
        unit=unit,
        gpu_type=design.gpu_type,
        warmup=design.warmup,
        request=request_record(template, cluster.secrets),
        points=tuple(points),
        **asdict(design.workload),
        **fields,
    )
    return study, template


def _on_ranks(template: JobRequest, profile: Profile) -> JobRequest:
    """Return the request of a study of CPU ranks.

    The request has no GPUs, and torchrun starts the ranks where nothing else is set.
    """
    launcher = template.launcher or profile.launcher or "torchrun"
    return replace(template, gpus=GpuCount(count=0), launcher=launcher)


def _placed(template: JobRequest, design: Design, profile: Profile) -> list[Size]:
    """Return the sizes, each with its number of nodes.

    Raises:
        PlanError: the profile's nodes have no GPUs, and the study is one of GPUs.
        UsageError: a size is given twice.
    """
    has_gpus = profile.scheduler != "slurm" or profile.gpu.per_node != 0 or profile.gpu.types
    if design.unit == "GPUs" and not has_gpus:
        raise PlanError(
            f"the nodes of profile {profile.name!r} have no GPUs",
            hint="--ranks 1,2,4 is a study of CPU ranks, or choose a profile with GPUs: hpcrun "
            "profile list",
        )
    sizes = []
    for size in design.sizes:
        request = _sized(template, size, design.unit, design.gpu_type)
        decided = decide_size(request, for_gpu_type(profile, request))
        sizes.append(Size(size.gpus, decided.nodes))
    for size in sizes:
        if sizes.count(size) > 1:
            raise UsageError(
                f"{size.gpus} {design.unit} are given twice",
                hint="--repeat N runs each size N times",
            )
    return sizes


def _sized(template: JobRequest, size: Size, unit: Unit, gpu_type: str | None) -> JobRequest:
    """Return the request of a study for one size.

    Raises:
        UsageError: the ranks of the size do not divide by its nodes.
    """
    if unit == "GPUs":
        gpus = GpuCount(count=size.gpus, type=gpu_type)
        return replace(template, gpus=gpus, nodes=size.nodes)
    is_python = template.launcher == "python"  # it starts one rank on each node
    nodes = size.nodes or (size.gpus if is_python else 1)
    if size.gpus % nodes:
        raise UsageError(
            f"{size.gpus} ranks do not divide by {nodes} nodes",
            hint="say --nodes for each size: 1,2,2",
        )
    ranks_per_node: int | None = size.gpus // nodes
    if is_python and ranks_per_node == 1:
        ranks_per_node = None
    return replace(template, nodes=nodes, nproc_per_node=ranks_per_node)


def settle_design(
    template: JobRequest, design: Design, loaded: LoadedProfile, surroundings: Surroundings
) -> tuple[JobRequest, Design]:
    """Return a study with the GPU type, partition and account that its profile leaves open.

    The largest size of the study decides them.
    """
    if loaded.profile.scheduler != "slurm":
        return template, design
    largest = max(design.sizes, key=lambda size: size.gpus)
    of_unit = template
    if design.unit != "GPUs":
        of_unit = _on_ranks(template, loaded.profile)
    sized = _sized(of_unit, largest, design.unit, design.gpu_type)
    before, _ = with_defaults(sized, loaded.profile, surroundings)
    sizes = ",".join(str(size.gpus) for size in design.sizes)
    after = settle(sized, loaded, surroundings, sizes=sizes).request
    chosen = {}
    for name in _LEFT_OPEN:
        value = getattr(after, name)
        if value != getattr(before, name):
            chosen[name] = value
    gpu_type = after.gpus.type if after.gpus else design.gpu_type
    return replace(template, **chosen), replace(design, gpu_type=gpu_type)


def prepare_points(
    study: Study,
    template: JobRequest,
    points: Iterable[StudyPoint],
    prepare: Callable[[JobRequest], Prepared],
) -> list[StudyJob]:
    """Decide everything about some runs of a study.

    Raises:
        UsageError: the script is a batch script that starts the ranks itself.
    """
    workload = Workload(study.scaling, study.batch_size, study.lr, study.dataset)
    jobs = []
    for point in points:
        args = workload.arguments(template.args, point.gpus, point.nodes, point.repeat)
        sized = _sized(template, Size(point.gpus, point.nodes), study.unit, study.gpu_type)
        named = replace(sized, name=run_name(point.run_id), args=args)
        jobs.append((point, prepare(named)))
    if jobs:
        _, prepared = jobs[0]
        _check_program(prepared.plan, one_by_one=study.one_by_one)
    return jobs


def _check_program(plan: Plan, *, one_by_one: bool) -> None:
    """Check that a study can run the program of one of its runs.

    Raises:
        UsageError: the script is a batch script that starts the ranks itself.
    """
    if plan.batch:
        raise UsageError(
            f"scale cannot change the ranks of {plan.batch.name}, which starts them itself",
            hint="give scale the program that the script starts, with its arguments",
        )
    if one_by_one and plan.scheduler == "slurm":
        check_can_wait(plan, "--chain")


def must_wait_between(study: Study, jobs: Sequence[StudyJob]) -> bool:
    """Whether hpcrun itself lets each run wait for the one before: nothing else would."""
    return study.one_by_one and any(prepared.plan.scheduler == "local" for _, prepared in jobs)


def submit_points(
    study: Study,
    jobs: Sequence[StudyJob],
    context: Context,
    last: Dependency | None = None,
    surroundings: Surroundings | None = None,
) -> Iterator[Submitted]:
    """Submit runs of a study, note each in its record at once, and yield what became of it.

    A run that is refused is noted with the reason, and the next is submitted all the same. One that
    was made and not noted, by a process that was killed, is noted now.

    On Ctrl-C the record says what was submitted. The first one waits for ``last``.

    Raises:
        KeyboardInterrupt: the user presses Ctrl-C.
    """
    folder = context.store.folder
    surroundings = surroundings or context.surroundings
    waits = must_wait_between(study, jobs)
    studies = StudyStore(context.store.root)
    for planned, prepared in jobs:
        point = planned
        if folder(point.run_id).exists():
            study = _noted(study, replace(point, submitted=True), studies)
            continue
        lineage = Lineage(after=(last,) if last else (), code=_shared_code(study, folder))
        item: submission.SubmitResult | HpcrunError
        try:
            item = submission.submit(
                prepared, context.ports, surroundings, point.run_id, lineage=lineage
            )
            point = replace(point, run_id=item.run.run_id, submitted=True, problem="")
        except InterruptedByUser:  # it speaks of one run, and there are several
            raise KeyboardInterrupt from None
        except SubmissionUncertainError as error:
            item = error
            point = replace(point, submitted=True, problem="")
        except HpcrunError as error:
            item = error
            point = replace(point, problem=" ".join(error.message.split()))
        study = _noted(study, point, studies)
        yield point, item
        if isinstance(item, HpcrunError):
            continue
        if waits:
            context.waiter(item.run.run_id).wait()
        elif study.one_by_one:
            last = Dependency(item.run.run_id, item.run.job_id, "any")


def _noted(study: Study, point: StudyPoint, studies: StudyStore) -> Study:
    """Record what is known of one run now; its id may be new."""
    points = []
    for item in study.points:
        is_same = _place(item) == _place(point)
        points.append(point if is_same else item)
    study = replace(study, points=tuple(points))
    studies.save(study)
    return study


def _place(point: StudyPoint) -> tuple[int, int, int]:
    """Return what tells a run from the others of its study, whatever its id."""
    return point.gpus, point.nodes, point.repeat


def _shared_code(study: Study, folder: Callable[[str], Path]) -> Path | None:
    """Return the run whose snapshot of the code the others use: all measure the same."""
    if not study.request.get("snapshot"):
        return None
    for point in study.points:
        place = folder(point.run_id)
        if point.submitted and RunFolder(place).code.is_dir():
            return place
    return None
