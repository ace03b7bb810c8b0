"""The test job that init offers: a few ranks say where they run, and add up their numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hpcrun.actions.jobs.caller import Surroundings
from hpcrun.actions.jobs.prepare import Prepared, prepare
from hpcrun.actions.profiles.detect import Detected
from hpcrun.job.request import read_request
from hpcrun.job.resources import Machine

TRIAL_TIME = "5m"
"""The time limit of the test job: it takes a few seconds, most of them for the import of torch."""
_PROGRAM = "hpcrun_hello"


@dataclass(frozen=True, slots=True)
class TrialJob:
    """The size of the test job: two nodes where there are two, since it is the network that fails most often."""

    nodes: int
    gpus_per_node: int
    gpu_type: str | None = None

    @property
    def words(self) -> str:
        """Return the size as a person reads it."""
        gpus = (
            " ".join(filter(None, (str(self.gpus_per_node), self.gpu_type, "GPU"))) if self.gpus_per_node else "no GPU"
        )
        plural = "s" if self.gpus_per_node > 1 else ""
        return f"{self.nodes} node{'s' if self.nodes > 1 else ''} × {gpus}{plural}"


def trial_size(detected: Detected | None, gpu_type: str | None) -> TrialJob:
    """Return the size of the test job.

    Args:
        gpu_type: the type to test; None for the first.
    """
    if detected is None:
        return TrialJob(2, 0)
    offers = detected.offers
    if not offers:
        return TrialJob(1, 0)
    offer = next((offer for offer in offers if offer.type == gpu_type), offers[0])
    nodes = 2 if offer.nodes > 1 and offer.partition.max_nodes != 1 else 1
    several = len(offers) > 1 or detected.profile.gpu.type is None
    return TrialJob(nodes, 1 if nodes > 1 else min(2, offer.per_node), offer.type if several else None)


def prepare_trial(
    job: TrialJob, name: str, surroundings: Surroundings, machine: Callable[[], Machine], *, has_torch: bool
) -> Prepared:
    """Prepare the test job.

    Args:
        name: the profile.
        has_torch: whether the job's Python has torch; without it, torchrun cannot start the ranks.

    Raises:
        UsageError, ProfileError, PlanError: the profile does not allow it.
    """
    request: dict[str, Any] = {"script": _PROGRAM, "module": True, "name": "hello", "nodes": job.nodes}
    request["walltime_s"] = TRIAL_TIME
    if job.gpus_per_node:
        request["gpus_per_node"] = f"{job.gpu_type}:{job.gpus_per_node}" if job.gpu_type else str(job.gpus_per_node)
    else:
        request["gpus"] = "0"
    if not has_torch:
        request["launcher"] = "srun"
    return prepare(read_request(request), name, surroundings, machine)
