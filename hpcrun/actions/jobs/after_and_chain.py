"""--after and --chain: the runs that a new one waits for, and jobs that continue from each other's checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcrun.actions.jobs.new_run import ChainLink, Earlier, Lineage
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submit import JobSeries, SubmitResult
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.actions.runs.find import FoundRun, find_run
from hpcrun.actions.status.run_status import RunStatus
from hpcrun.actions.status.status import get_status
from hpcrun.errors import NotFoundError, PlanError, UsageError
from hpcrun.job import state
from hpcrun.job.after import After, Chain, Dependency, dependency_option, fulfils, link_name
from hpcrun.job.plan import Plan
from hpcrun.job.script import render_script
from hpcrun.profiles.folder import load_templates


def resolve_after(conditions: Sequence[After], ports: Ports) -> tuple[tuple[Dependency, ...], list[str]]:
    """Find the runs to wait for.

    Slurm forgets a job soon after its end: whether a run that is over is what was waited for, its own record says.

    Returns:
        the runs, and notes where a word could have meant another.

    Raises:
        NotFoundError, UsageError: no such run, or several.
        PlanError: it cannot be waited for, or has ended otherwise.
        SchedulerError: the scheduler is away.
    """
    if not conditions:
        return (), []
    runs = [_run_of(item, ports) for item in conditions]
    cluster = ports.schedulers("slurm").cluster()
    for item in runs:
        run = item.run
        if run.scheduler != "slurm":
            raise PlanError(f"--after {run.run_id}: it is a local run of host {run.host}, which Slurm cannot wait for")
        if cluster is not None and run.cluster not in (None, cluster):
            raise PlanError(f"--after {run.run_id}: it is on cluster {run.cluster}, and this is {cluster}")
    ids = list(dict.fromkeys(item.run.run_id for item in runs))
    result = get_status(ids, ports)
    if result.away:
        raise result.away
    known = {item.run.run_id: item for item in result.runs}
    after = tuple(
        _dependency(known[item.run.run_id], condition) for item, condition in zip(runs, conditions, strict=True)
    )
    return after, [item.note for item in runs if item.note]


def _run_of(after: After, ports: Ports) -> FoundRun:
    try:
        return find_run(after.run, ports.store)
    except NotFoundError as error:
        if not error.job_id:
            raise
        job = Dependency("", after.run, after.condition)
        error.message = f"--after {after.run}: {error.message}"
        error.if_listed = f"hpcrun did not submit this job: --sbatch dependency={dependency_option([job])} waits for it"
        raise


def _dependency(item: RunStatus, after: After) -> Dependency:
    run, status = item.run, item.status
    dependency = Dependency(run.run_id, run.job_id, after.condition, over=status.final)
    if status.final and not fulfils(status.state, after.condition):
        raise PlanError(
            f"--after {after.run}:{after.condition}: the job would never start, since {run.run_id} has ended: "
            f"{status.state}",
            hint=f"--after {after.run}:any starts it after any end",
        )
    if not status.final and status.state == state.UNKNOWN:
        raise PlanError(f"--after {after.run}: the state of {run.run_id} is unknown: {status.reason}",
                        hint="hpcrun status polls again; without --after the job does not wait")  # fmt: skip
    if not status.final and run.job_id is None:
        raise PlanError(f"--after {after.run}: {run.run_id} has no job id yet: sbatch has not answered",
                        hint="run hpcrun status until it has a job id")  # fmt: skip
    return dependency


def chain_links(prepared: Prepared, chain: Chain, lineage: Lineage, surroundings: Surroundings) -> JobSeries:
    """Return the links of a chain: the same job under names of their own.

    The checkpoints, and the snapshot of the code where there is one, lie in the first link's folder.

    Args:
        lineage: of the first link.

    Raises:
        PlanError: the scheduler starts every job at once.
    """
    check_can_wait(prepared.plan, "--chain")
    templates = load_templates(surroundings.template_folders)
    links = [prepared]
    for number in range(2, chain.links + 1):
        name = link_name(prepared.plan.name, number)
        directives = {**dict(prepared.plan.directives), "job-name": name}
        plan = replace(prepared.plan, name=name, directives=tuple(directives.items()))
        links.append(replace(prepared, plan=plan, script=render_script(plan, templates)))

    def lineage_of_next(done: Sequence[SubmitResult]) -> Lineage:
        if not done:
            return replace(lineage, link=ChainLink(1, chain.links))
        first = Earlier(done[0].run.run_id, done[0].folder)
        return replace(
            lineage,
            after=(*lineage.after, *_after(done, chain)),  # a first link that can never start must not let it start
            link=ChainLink(len(done) + 1, chain.links, first.run_id),
            checkpoints=first,
            code=first if prepared.plan.snapshot else None,
        )

    return JobSeries("link", links, lineage_of_next)


def _after(done: Sequence[SubmitResult], chain: Chain) -> tuple[Dependency, ...]:
    """Return what the next link waits for.

    After a link that completed, Slurm cancels the next one: afternotok. The one after that must not take the cancelled
    one for a failure, so that each link waits for all before it.
    """
    before = done if chain.condition == "fail" else done[-1:]
    return tuple(Dependency(item.run.run_id, item.run.job_id, chain.condition) for item in before)


def check_can_wait(plan: Plan, option: str) -> None:
    """Refuse to let a job wait that cannot.

    Raises:
        PlanError: this machine starts jobs at once.
        UsageError: --sbatch sets a dependency of its own, which would be overridden.
    """
    if plan.scheduler != "slurm":
        raise PlanError(
            f"{option} needs Slurm: a job of profile {plan.profile!r} starts at once",
            hint="--follow or --wait waits until a job ends; --requeue N requeues it",
        )
    if plan.directive("dependency"):
        raise UsageError(f"{option} and the directive 'dependency' cannot be combined", hint="use --after alone")
