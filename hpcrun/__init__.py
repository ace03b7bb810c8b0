"""hpcrun: one command takes a PyTorch training script from a laptop to a multi-node Slurm job."""

# The command line imports this before it can answer Ctrl-C: nothing large is imported here.
import sys

from hpcrun.version import NOT_ON_WINDOWS
from hpcrun.version import __version__ as __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hpcrun.api.executor import Executor as Executor
    from hpcrun.api.tables import read_metrics as read_metrics
    from hpcrun.api.tables import read_runs as read_runs
    from hpcrun.api.tables import read_status as read_status

__all__ = ["Executor", "__version__", "read_metrics", "read_runs", "read_status"]
_MODULES = {
    "Executor": "executor",
    "read_metrics": "tables",
    "read_runs": "tables",
    "read_status": "tables",
}


def __getattr__(name: str) -> "Any":
    if name not in _MODULES:
        raise AttributeError(f"module 'hpcrun' has no attribute {name!r}")
    import importlib

    if sys.platform == "win32":
        raise ImportError(NOT_ON_WINDOWS)

    # the command line imports this package as well, and has no time for submitit and pandas
    return getattr(importlib.import_module(f"hpcrun.api.{_MODULES[name]}"), name)
