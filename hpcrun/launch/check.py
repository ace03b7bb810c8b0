"""``launch check -- PROGRAM ...``: one node of a preflight; that its program could not say anything is written down."""

from __future__ import annotations

import os

from . import environment, records
from .processes import reap, try_start, wait


def main(arguments: list[str]) -> int:
    """Run the program of the preflight; returns its exit status."""
    environment.be_node()
    pid, status = try_start(arguments[arguments.index("--") + 1 :], os.environ)
    if pid:
        found = wait([pid], lambda _: None)
        status = found[1] if found else 137
        reap(pid)
    node, folder = os.environ["HPCRUN_NODE"], os.path.join(records.attempt_dir(), "preflight")
    if not os.path.exists(os.path.join(folder, f"{node}.json")):
        records.write(f"{node}.json", {"node": node, "failed": status}, folder)
    return status
