"""Packing: several elements of a sweep run at once as one task of the array, each as one process.

Pure.
"""

from __future__ import annotations

from dataclasses import replace

from hpcrun.errors import PlanError, UsageError
from hpcrun.job.plan.sweep import Sweep
from hpcrun.job.request.job_request import JobRequest, option_of
from hpcrun.job.resources.container import Container
from hpcrun.job.resources.shape import Shape
from hpcrun.job.text.units import count

_FREE = 0.1  # of a GPU's memory: torch's limit does not count the contexts of CUDA
_REFUSED = {
    "preflight": "its checks need whole nodes; check them first: hpcrun preflight",
    "spares": "a pack has one node; leave it out",
    "srun": "a pack starts no srun; leave it out",
    "torchrun": "each element of a pack is one process; leave it out",
    "stage": "its elements would copy and remove the same data; --setup copies it once for all of "
    "them",
    "roles": "an element with roles needs nodes of its own; leave out --pack",
}
"""Fields of a request that do not work with a pack → why, and what to do."""


def as_one_process(request: JobRequest) -> JobRequest:
    """Return the request of a pack, each of whose elements is one process.

    A request without a pack stays unchanged.

    Raises:
        UsageError: an option has no effect with a pack, or an element of the pack is not one
            process.
    """
    if request.pack is None:
        if request.pack_memory:
            raise UsageError(
                "--pack-memory has no effect without --pack",
                hint="add --pack N: N elements at once",
            )
        return request
    refused = [field for field in _REFUSED if getattr(request, field)]
    if refused:
        raise UsageError(
            f"{option_of(refused[0])} and --pack {request.pack}: {_REFUSED[refused[0]]}"
        )
    launcher = request.launcher or "python"
    ranks = request.nproc_per_node or 1
    option = None
    if ranks > 1:
        option = f"--nproc-per-node {ranks}"
    elif launcher not in ("python", "command"):
        option = f"--launcher {launcher}"
    if option:
        raise UsageError(
            f"{option} and --pack {request.pack}: each element of a pack is one process",
            hint="without --pack each element is a job with as many ranks as it needs",
        )
    # no spare nodes of the profile
    return replace(request, launcher=launcher, nproc_per_node=1, spares=0)


def packed(
    sweep: Sweep | None,
    request: JobRequest,
    shape: Shape,
    container: Container | None,
    scheduler: str,
) -> Sweep | None:
    """Return the sweep, with the share of each element in the memory of its GPU.

    Raises:
        PlanError: the pack has more than one node, more GPUs than elements, or a container of
            pyxis.
        UsageError: ``--pack-memory`` is given for a job without a GPU.
    """
    if sweep is None or sweep.pack is None:
        return sweep
    pack = sweep.pack
    if shape.nodes > 1:
        raise PlanError(
            f"--pack {pack}: its elements share one node, and the job has {shape.nodes}",
            hint="leave out --nodes, or --pack",
        )
    if shape.gpus > pack:
        raise PlanError(
            f"--pack {pack}: {count(shape.gpus, 'GPU')}, and each of the elements uses one",
            hint=f"--gpus {pack}, or --pack {shape.gpus}: the elements share the GPUs",
        )
    if container and container.runtime == "pyxis":
        raise PlanError(
            "--pack: pyxis starts containers with srun, which a pack does not use",
            hint="set container.runtime to apptainer or podman in the profile",
        )
    if scheduler == "local":  # there are no tasks: each element is a job of its own
        sweep = replace(sweep, max_parallel=pack * (sweep.max_parallel or 1))
    if not request.pack_memory:
        return sweep
    if not shape.gpus:
        raise UsageError("--pack-memory: this job has no GPU", hint="leave it out, or add --gpus")
    elements_per_gpu = -(-pack // shape.gpus)
    return replace(sweep, memory_share=round((1 - _FREE) / elements_per_gpu, 4))
