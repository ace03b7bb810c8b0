"""Nodes that failed: learned from a run's attempts, and left out of the next submission."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcrun.errors import HpcrunError

if TYPE_CHECKING:  # hpcrun status notes nodes, and submit leaves them out: neither needs all of these
    from hpcrun.actions.jobs.caller import Surroundings
    from hpcrun.job.profile import Profile
    from hpcrun.job.request import JobRequest
    from hpcrun.runs.attempt import Attempt
    from hpcrun.runs.failed_nodes import FailedNode
    from hpcrun.runs.record import Run


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The nodes that a submission leaves out because they failed, and what a person is told of it."""

    nodes: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def failures_of(run: Run, attempts: Sequence[Attempt]) -> Iterator[FailedNode]:
    """Yield the nodes that failed by what the attempts of a run say, the newest attempt first.

    An attempt that left no word although another has started was on a node that died with its script.
    """
    if run.scheduler != "slurm":
        return
    from hpcrun.runs.attempt import NODE_FAILURE
    from hpcrun.runs.failed_nodes import FailedNode

    for place, attempt in enumerate(attempts):
        if attempt.exit is None and place:
            yield FailedNode(attempt.host, run.cluster, attempt.alive_s, "stopped responding", run.run_id)
        elif attempt.exit is not None and attempt.exit.reason == NODE_FAILURE:
            for node in attempt.exit.nodes:
                yield FailedNode(node, run.cluster, attempt.exit.ended_s, "down or not responding", run.run_id)


def leave_out(request: JobRequest, profile: Profile, surroundings: Surroundings) -> LeftOut:
    """Return which nodes a job with --exclude-bad-nodes leaves out; none where it names its nodes itself."""
    wanted = request.exclude_bad_nodes and profile.scheduler == "slurm" and request.nodelist is None
    if not wanted or surroundings.failed_nodes is None:
        return LeftOut()
    known = surroundings.failed_nodes()
    if not known:
        return LeftOut()
    cluster: str | None = None
    with suppress(HpcrunError):
        cluster = surroundings.cluster() if surroundings.cluster else None
    nodes = tuple(dict.fromkeys(one.node for one in known if cluster is not None and one.cluster == cluster))
    text = ", ".join(nodes)
    notes = (f"excludes {text}, which failed in the last 24 hours (see hpcrun nodes); undo: hpcrun nodes forget",)
    return LeftOut(nodes, notes) if nodes else LeftOut()
