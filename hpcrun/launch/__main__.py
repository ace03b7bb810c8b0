"""``python -I -S -B .../launch job|node|rank|check|code|container ...``: see the module of each."""

from __future__ import annotations

import os
import sys

if __package__ is None or __package__ == "":
    sys.path[0] = os.path.dirname(os.path.abspath(sys.path[0]))  # of the folder that holds this package
    __package__ = os.path.basename(os.path.dirname(os.path.abspath(__file__)))

PARTS = ("job", "node", "rank", "check", "code", "container")


def main() -> int:
    """Run the part that the first argument names; returns its exit status."""
    part, arguments = sys.argv[1], sys.argv[2:]
    if part not in PARTS:
        sys.exit(f"hpcrun: launch has no part {part!r}")
    import importlib

    module = importlib.import_module(f".{part}", __package__)
    status: int = module.main(arguments)
    return status


if __name__ == "__main__":
    sys.exit(main())
