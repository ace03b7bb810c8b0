"""--chain: several jobs for one training, each starting when the former has ended and going on where it stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.lineage import ChainLink, Earlier, Lineage, check_can_wait
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submit import SubmitResult
from hpcrun.actions.jobs.submit_many import JobSeries
from hpcrun.job.after import Chain, Dependency, link_name
from hpcrun.job.script import render_script
from hpcrun.profiles.templates import load_templates


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
