"""``python -I -S -B .../launch/__main__.py PART ...``: see the module of each part.

Every rank is one more start of Python. So the script names this file, since running a folder
imports runpy, and
``rank`` imports only modules that load fast. Otherwise it would take four times as long as the
start of an empty Python.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

if not __package__:
    _folder = os.path.dirname(os.path.abspath(__file__))
    # Not by sys.path: each import of the standard library would ask the run's file system first,
    # or another package of this name would be found.
    __package__ = os.path.basename(_folder)
    _package = type(sys)(__package__)
    _package.__path__ = [_folder]
    sys.modules[__package__] = _package
    # the job compiles for all ranks of this version, but only in the copy that runs share
    _copy = os.path.join(os.environ.get("HPCRUN_RUN_DIR", ""), "programs")
    sys.dont_write_bytecode = sys.argv[1:2] not in (["job"], ["pack"]) or _copy != os.path.dirname(
        _folder
    )

PARTS = {
    "ask": "batch.ask",
    "check": "rank_environment",  # one node of a preflight: see main
    "code": "per_job.code",
    "container": "become_container",
    "guard": "per_job.guard",
    "job": "per_job.job",
    "node": "start_ranks",
    "pack": "per_job.pack",
    "rank": "rank",
    "ray": "ray",
    "role": "start_roles",
    "stage": "per_job.stage",
    "warm": "per_job.unpack_compiled",
}
"""The part, as a script names it → its module; those that ranks use lie on top of this package."""


def main() -> int:
    """Run the part that the first argument names; return its exit status."""
    part = sys.argv[1]
    arguments = sys.argv[2:]
    if part not in PARTS:
        sys.exit(f"hpcrun: launch has no part {part!r}")
    _forget_locale()
    processes = _load("processes")
    processes.write_for_oneself()
    if part in ("node", "rank"):
        processes.ignore_signals()
    arguments = processes.show_colons(arguments)
    # before anything slow: a signal that comes earlier ends the job without a record
    if part in ("job", "pack"):
        processes.block_signals()
    if part == "check":
        _load(PARTS[part]).be_node()
        sys.exit(processes.become(arguments[1:]))
    for needed in () if sys.dont_write_bytecode else ("node", "rank"):
        _load(PARTS[needed])
    status: int = _load(PARTS[part]).main(arguments)
    return status


def _forget_locale() -> None:
    """Remove LC_CTYPE if Python itself has set it, as in the C locale: PEP 538."""
    if "LC_CTYPE" in os.environ:
        with open("/proc/self/environ", "rb") as file:
            if b"\0LC_CTYPE=" not in b"\0" + file.read():
                del os.environ["LC_CTYPE"]


def _load(module: str) -> Any:
    # importlib would take a millisecond
    return __import__(f"{__package__}.{module}", fromlist=["main"])


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # no clean-up is needed, and hundreds of ranks may end at once
