"""--chain: several jobs for one training, each starting when the former has ended and going on where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.lineage import ChainLink, Earlier, Lineage, check_can_wait
from hpcrun.actions.jobs.prepare import Prepared
from hpcrun.actions.jobs.submit import SubmitResult
from hpcrun.errors import HpcrunError
from hpcrun.job.after import Chain, Dependency, link_name
from hpcrun.job.script import render_script
from hpcrun.profiles.templates import load_templates

SubmitLink = Callable[[Prepared, Lineage], SubmitResult]


def chain_links(prepared: Prepared, chain: Chain, surroundings: Surroundings) -> list[Prepared]:
    """Return the links of a chain: the same job under names of their own.

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
    return links


def submit_chain(
    links: Sequence[Prepared], chain: Chain, lineage: Lineage, submit_link: SubmitLink
) -> Iterator[SubmitResult]:
    """Submit the links one after the other, and yield each as soon as it is.

    The checkpoints, and the snapshot of the code where there is one, lie in the first link's folder.

    Args:
        lineage: of the first link.

    Raises:
        HpcrunError: a link was refused; those before it stay, and the message says so.
    """
    done: list[SubmitResult] = []
    for number, link in enumerate(links, 1):
        mine = replace(lineage, link=ChainLink(number, len(links)))
        if done:
            first = Earlier(done[0].run.run_id, done[0].folder)
            mine = replace(
                mine,
                after=(*lineage.after, *_after(done, chain)),  # a first link that can never start must not let it start
                link=ChainLink(number, len(links), first.run_id),
                checkpoints=first,
                code=first if link.plan.snapshot else None,
            )
        try:
            result = submit_link(link, mine)
        except HpcrunError as error:
            raise _half_made(error, number, len(links), done) from None
        done.append(result)
        yield result


def _after(done: Sequence[SubmitResult], chain: Chain) -> tuple[Dependency, ...]:
    """Return what the next link waits for.

    After a link that completed, Slurm cancels the next one: afternotok. The one after that must not take the cancelled
    one for a failure, so that each link waits for all before it.
    """
    before = done if chain.condition == "fail" else done[-1:]
    return tuple(Dependency(item.run.run_id, item.run.job_id, chain.condition) for item in before)


def _half_made(error: HpcrunError, number: int, links: int, done: Sequence[SubmitResult]) -> HpcrunError:
    if not done:
        return error
    ids = " ".join(str(item.run.job_id) for item in done)
    stay = f"the {len(done)} jobs before it stay submitted" if len(done) > 1 else "the job before it stays submitted"
    hint = f"hpcrun cancel {ids} cancels the submitted jobs" + (f"; {error.hint}" if error.hint else "")
    return type(error)(f"link {number} of {links} was not submitted; {stay}:\n{error.message}", hint=hint)
