"""The parameters of ``hpcrun.Executor`` that are no options of ``hpcrun submit``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict


class OwnParameters(TypedDict, total=False):
    """The parameters of the Executor alone."""

    array_parallelism: int | None
    """Elements of an array that run at a time. Default: as many as fit; on this machine all, or
    one after the other where they use its GPUs.
    """
    stderr_to_stdout: bool | None
    """Whether each task writes stderr into its log of stdout."""


class SubmititParameters(TypedDict, total=False):
    """The names of submitit and of Hydra's launcher for it."""

    timeout_min: int | None
    """`time`, in minutes."""
    mem_gb: float | None
    """`mem`, in GB."""
    signal_delay_s: int | None
    """`warn`, in seconds."""
    max_num_timeout: int | None
    """`requeue`."""
    srun_args: Sequence[str] | None
    """`srun`, as submitit takes it."""
    comment: str | None
    """The directive of sbatch."""
    exclusive: bool | str | None
    """The directive of sbatch."""
    gres: str | None
    """The directive of sbatch; one of GPUs is `gpus_per_node`."""
    mem_per_cpu: str | None
    """The directive of sbatch."""
    mem_per_gpu: str | None
    """The directive of sbatch."""
    wckey: str | None
    """The directive of sbatch."""
    additional_parameters: Mapping[str, Any] | None
    """`sbatch`, with `_` in place of `-`."""
    gpus_per_task: int | None
    """`gpus_per_node`, times `tasks_per_node`."""
    submitit_folder: str | None
    """No effect: the files of a job are in the folder of its run."""
    use_srun: bool | None
    """No effect: srun starts the tasks."""
    wait_for_completion: bool | None
    """No effect: Hydra waits for the jobs."""


def show_parameters(function: Callable[..., Any], parameters: type) -> None:
    """Give a function a signature with each parameter, for ``help()`` and notebooks.

    Args:
        function: takes ``**values``.
        parameters: a typed dictionary with the keys of ``values``.
    """
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    for name, annotation in parameters.__annotations__.items():
        shown.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None,
                annotation=annotation.__forward_arg__,
            )
        )
    signature = signature.replace(parameters=shown)
    function.__signature__ = signature  # type: ignore[attr-defined]
