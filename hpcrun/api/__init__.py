"""Python functions as jobs: beside ``cli`` the other place that reads the environment and builds adapters."""

from hpcrun.api.executor import Executor
from hpcrun.api.job import FunctionJob

__all__ = ["Executor", "FunctionJob"]
