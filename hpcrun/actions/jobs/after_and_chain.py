"""--after and --chain: runs that wait for other runs, and jobs that continue from checkpoints.

--after names the runs that a new run waits for. --chain submits jobs that continue from each
other's checkpoints.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

from hpcrun.actions.jobs.new_run import Lineage
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submission import LineageOfNext, SubmitResult, changed_job
from hpcrun.actions.ports import Ports, Surroundings
from hpcrun.actions.runs.find import FoundRun, find_run
from hpcrun.actions.status.run_status import RunStatus, unconfirmed_text
from hpcrun.actions.status.status_query import get_status
from hpcrun.errors import NotFoundError, PlanError, UsageError
from hpcrun.files.writing import make_folder, write_file
from hpcrun.job import job_states as state
from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.request.after import After, Chain, Dependency, dependency_option, fulfils, link_name
from hpcrun.job.run_paths import RunFolder
from hpcrun.runs.attempt import chain_stop
from hpcrun.runs.record import Run


def check_can_wait(plan: Plan, option: str) -> None:
    """Refuse --after and --chain for a job that cannot wait.

    A job on this machine starts at once. A job with a dependency of --sbatch has its own condition.

    Raises:
        PlanError: the profile's scheduler is not Slurm.
        UsageError: the plan has the directive ``dependency``.
    """
    if plan.scheduler != "slurm":
        raise PlanError(
            f"{option} needs Slurm: a job of profile {plan.profile!r} starts at once",
            hint="--follow or --wait waits until a job ends; --requeue N requeues it",
        )
    if plan.directive("dependency"):
        raise UsageError(
            f"{option} and the directive 'dependency' cannot be combined", hint="use --after alone"
        )


def resolve_after(
    conditions: Sequence[After], ports: Ports
) -> tuple[tuple[Dependency, ...], list[str]]:
    """Return the runs to wait for, and a note for each name that could mean another run.

    Slurm forgets a job soon after its end, so the run's own record tells whether its end fulfils
    the condition.

    Raises:
        PlanError: Slurm cannot wait for a run, since the run is local or on another cluster.
    """
    matches = [run_of(item, ports) for item in conditions]
    cluster = ports.schedulers("slurm").cluster()
    for match in matches:
        _check_awaitable(match.run, cluster)
    ids = [match.run.run_id for match in matches]
    result = get_status(list(dict.fromkeys(ids)), ports)
    if result.away:
        raise result.away
    known = {item.run.run_id: item for item in result.runs}
    after = []
    for run_id, condition in zip(ids, conditions, strict=True):
        after.append(_dependency(known[run_id], condition))
    return tuple(after), [match.note for match in matches if match.note]


def _check_awaitable(run: Run, cluster: str | None) -> None:
    """Refuse to wait for a run that this cluster's Slurm does not know.

    Raises:
        PlanError: the run is local, or on another cluster.
    """
    if run.scheduler != "slurm":
        raise PlanError(
            f"--after {run.run_id}: it is a local run of host {run.host}, which Slurm cannot "
            "wait for"
        )
    if cluster is not None and run.cluster not in (None, cluster):
        raise PlanError(
            f"--after {run.run_id}: it is on cluster {run.cluster}, and this is {cluster}"
        )


def run_of(after: After, ports: Ports) -> FoundRun:
    """Return the run of a condition.

    Raises:
        NotFoundError: hpcrun has no such run; for another job of Slurm, the error has a hint.
    """
    try:
        return find_run(after.run, ports.store)
    except NotFoundError as error:
        if not error.job_id:
            raise
        job = Dependency("", after.run, after.condition)
        error.message = f"--after {after.run}: {error.message}"
        error.if_listed = (
            "hpcrun did not submit this job: --sbatch "
            f"dependency={dependency_option([job])} waits for it"
        )
        raise


def _dependency(item: RunStatus, after: After) -> Dependency:
    """Return the dependency on a run.

    Raises:
        PlanError: the run's end does not fulfil the condition, or nothing tells how the run stands.
    """
    run = item.run
    status = item.status
    if item.unconfirmed:
        raise PlanError(
            f"--after {after.run}: {run.run_id}: {unconfirmed_text(item)}",
            hint="hpcrun status polls again; without --after the job does not wait",
        )
    if status.final:
        if not fulfils(status.state, after.condition):
            raise PlanError(
                f"--after {after.run}:{after.condition}: the job would never start, since "
                f"{run.run_id} has ended: {status.state}",
                hint=f"--after {after.run}:any starts it after any end",
            )
    elif status.state == state.UNKNOWN:
        raise PlanError(
            f"--after {after.run}: the state of {run.run_id} is unknown: {status.reason}",
            hint="hpcrun status polls again; without --after the job does not wait",
        )
    elif run.job_id is None:
        raise PlanError(
            f"--after {after.run}: {run.run_id} has no job id yet: sbatch has not answered",
            hint="run hpcrun status until it has a job id",
        )
    return Dependency(run.run_id, run.job_id, after.condition, over=status.final)


def note_link(result: SubmitResult) -> None:
    """Write down the job of a link for the other links of the chain.

    The other links cancel this job if they get nowhere; see per_job/chain.py.
    """
    element = RunFolder(result.folder).element(0)
    place = result.run.chain or {}
    make_folder(element.checkpoints, 0o700)
    element.chain().mkdir(mode=0o700, exist_ok=True)
    if place["link"] == 1:  # of an earlier chain with the same checkpoints
        for name in os.listdir(element.chain()):
            os.unlink(element.chain(name))
    fields = {"job_id": str(result.run.job_id), "links": place["links"]}
    write_file(element.chain(f"link-{place['link']}"), json.dumps(fields) + "\n")


def chain_links(
    prepared: Prepared, chain: Chain, lineage: Lineage, surroundings: Surroundings
) -> tuple[list[Prepared], LineageOfNext]:
    """Return the links of a chain: the same job under different names.

    Each link has its relations to the links before it. The folder of the first link holds the
    checkpoints, and the snapshot of the code if there is one.

    Args:
        prepared: the job of the first link.
        chain: the number of links, and the condition under which the next link starts.
        lineage: the relations of the first link to earlier runs.
        surroundings: the surroundings in which the user submits the chain.
    """
    links = [prepared]
    for number in range(2, chain.links + 1):
        name = link_name(prepared.plan.name, number)
        given_name = prepared.plan.directive("job-name") or prepared.plan.name
        directives = {"job-name": link_name(given_name, number)}
        links.append(changed_job(prepared, surroundings, directives, name=name))

    def lineage_of_next(done: Sequence[SubmitResult]) -> Lineage:
        if not done:
            return replace(lineage, chain=(1, chain.links))
        first = done[0].folder
        reason = None if chain.anyway else chain_stop(first)
        if reason:
            raise PlanError(
                f"the chain has ended already: {reason}",
                hint="--chain-anyway continues all the same",
            )
        # Slurm cancels the link after a completed one (afternotok). The next link would start,
        # since a cancelled job counts as failed: so each link waits for all links before it.
        before = done if chain.condition == "fail" else done[-1:]
        waits = []
        for item in before:
            waits.append(Dependency(item.run.run_id, item.run.job_id, chain.condition))
        return replace(
            lineage,
            after=(*lineage.after, *waits),  # if the first link never starts, neither does this one
            chain=(len(done) + 1, chain.links),
            checkpoints=first,
            code=first if prepared.plan.snapshot else None,
        )

    return links, lineage_of_next
