"""Compiled files: what compilers make in one job, kept for the next job of the same program."""

from __future__ import annotations

import os

from ..rank_environment import COMPILED

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from .node import CompiledFolder


def use_folder() -> CompiledFolder | None:
    """Return the folder of compiled files of this node, with the variables of compilers set.

    None if the job has none, or if it cannot be used.
    """
    if COMPILED not in os.environ:
        return None
    from .node import use  # slow to import, and most jobs have no such folder

    return use()
