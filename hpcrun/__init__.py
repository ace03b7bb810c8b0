"""hpcrun takes a PyTorch training script from a laptop to a multi-node Slurm job with one command."""

# The command line imports this before it can answer Ctrl-C: nothing is imported here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hpcrun.api import Executor as Executor

__version__ = "0.1.0"
__all__ = ["Executor", "__version__"]


def __getattr__(name: str) -> "Any":
    if name != "Executor":
        raise AttributeError(f"module 'hpcrun' has no attribute {name!r}")
    import importlib

    # the command line imports this package as well, and has no time for submitit
    return importlib.import_module("hpcrun.api").Executor
