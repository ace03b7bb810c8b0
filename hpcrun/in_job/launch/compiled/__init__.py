"""Compiled files: what compilers make in one job, kept for the next job of the same program."""

from __future__ import annotations

import os

from .. import records
from ..rank_environment import COMPILED, INDUCTOR

TYPE_CHECKING = False  # as typing's, which takes four milliseconds of each rank to import
if TYPE_CHECKING:
    from .node import CompiledFolder


_TEMPORARY = ("TMPDIR", "TEMP", "TMP")
_NAMES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""Where Python looks for a folder of temporary files, and for the name of the user, in this order:
tempfile.gettempdir() and getpass.getuser(), from which torch makes the folder's name
(torch/_inductor/runtime/cache_dir_utils.py).
"""


def use_folder() -> CompiledFolder | None:
    """Return the folder of compiled files of this node, with the variables of compilers set.

    None if the job has none, or if it cannot be used.
    """
    if COMPILED not in os.environ:
        return None
    from .node import use  # slow to import, and most jobs have no such folder

    return use()


def warn_of_foreign_folder() -> None:
    """Say that another user owns the folder of torch.compile on this node: torch does not look.

    It holds programs and pickles, so its owner can run code in this job.
    """
    if INDUCTOR in os.environ:
        return
    place = _first_set(_TEMPORARY) or "/tmp"
    path = os.path.join(place, f"torchinductor_{_first_set(_NAMES)}")
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return
    if owner != os.getuid():
        where = f"{os.environ['HPCRUN_NODE']}: {path} belongs to another user (uid {owner})"
        records.say(f"{where}, who can run code in this job by torch.compile; use --warm")


def _first_set(names: tuple[str, ...]) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")
