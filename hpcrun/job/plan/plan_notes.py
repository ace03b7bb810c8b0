"""Notes on a plan: what a person may not expect of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from hpcrun.job.plan.job_plan import Plan
from hpcrun.job.profile_model import Profile
from hpcrun.job.text.spelling import spell, spell_row

_THREADS = "OMP_NUM_THREADS"
_FIRST_NODE = (
    "a spare node does not help if the job's first node fails, where its script runs: --requeue N "
    "lets Slurm requeue the job then"
)


def threads_of(plan: Plan) -> str | None:
    """Return a rank's OMP_NUM_THREADS, or None if the variable is not set.

    The value is the profile's or that of ``--env``, else the rank's share of the CPUs.
    """
    share = plan.cpus_per_rank
    given = dict(plan.env).get(_THREADS)
    if given or share is None:
        return given or None
    return str(share)


def plan_notes(plan: Plan, profile: Profile, env: Mapping[str, str]) -> Iterator[str]:
    """Return notes on a plan.

    The notes take account of the profile of the plan's GPU type and of the environment of hpcrun's
    caller.
    """
    if plan.preflight == "only":
        return
    if plan.scheduler == "slurm" and profile.gpu.per_node and not plan.shape.gpus:
        yield from _idle_gpus(plan, profile)
    if plan.requeue and plan.requeue.spares and not plan.requeue.times:
        yield spell_row(_FIRST_NODE)
    if _meets_by_c10d(plan):
        yield _c10d_note(plan)
    yield from _threads_notes(plan, env)
    yield from _address_notes(plan)


def _address_notes(plan: Plan) -> Iterator[str]:
    """Return a note on each address of a role that has no braces: tcsh removes them."""
    names = "|".join(re.escape(role.name) for role in plan.roles)
    address = re.compile(rf"(?<![\w{{.-])(?:{names})\.(?:host|port|url)(?![\w}}.-])")
    for role in plan.roles:
        for argument in role.command:
            for plain in address.findall(argument):
                yield (
                    f"role {role.name}: {plain} is plain text; the address is '{{{plain}}}', in "
                    "quotes for tcsh, which removes braces"
                )


def _threads_notes(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Return a note on a number of threads that is ignored."""
    threads = threads_of(plan)
    of_shell = env.get(_THREADS)
    if of_shell and threads and "SLURM_JOB_ID" not in env and of_shell != threads:
        yield (
            f"{_THREADS}={of_shell} of your shell is ignored: the job sets {threads}; "
            f"to keep yours: {spell('env', f'{_THREADS}={of_shell}')}"
        )


def _idle_gpus(plan: Plan, profile: Profile) -> Iterator[str]:
    """Return a note if a job leaves the GPUs of the profile's nodes idle."""
    partition = plan.directive("partition")
    if partition != profile.partition:
        return
    where = f"partition {partition}" if partition else "the default partition"
    yield (
        f"a job without GPUs on {where}, whose nodes have {profile.gpu.per_node} GPUs; choose "
        f"another with {spell('partition')}"
    )


def _meets_by_c10d(plan: Plan) -> bool:
    """Return whether torchrun's agents on several nodes exchange pickled data."""
    if plan.roles:
        sizes = [role.nodes for role in plan.roles if role.launcher == "torchrun"]
    else:
        sizes = [plan.shape.nodes] if plan.shape.launcher == "torchrun" else []
    words = [plan.torchrun_words_on(nodes) for nodes in sizes if nodes > 1]
    return any("--rdzv-backend=c10d" in options for options in words)


def _c10d_note(plan: Plan) -> str:
    """Return what others could do with the store of torch's elastic rendezvous."""
    restarts = dict(plan.torchrun).get("max-restarts") or "0"
    danger = "any user of the nodes' network can make the job run code as you: torch's c10d"
    if restarts == "0":
        return f"{danger} rendezvous unpickles what is sent to its port"
    return (
        f"{danger} rendezvous of --torchrun max-restarts unpickles what is sent to its port; "
        f"safer: {spell('restarts', restarts)} {spell('retry-on-failure')}"
    )
