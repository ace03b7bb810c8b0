"""``launch guard NODE REQUEUE|OVER``: what a job with --no-kill leaves to nobody: the end of its first node.

Slurm takes a node that failed out of such a job, ends the steps that had it, and goes on, even where that was the node
of the batch script: the job would then idle to its time limit. So one more step, on another node, waits for that. It
asks Slurm only where the node does not answer, or the job gives no sign of life.
"""

from __future__ import annotations

import os
import time

from . import records, slurm
from .decide import NODE_FAILURE, OVER
from .silence import answers

LOOK_S, ASK_S = 10.0, 30.0
SILENT_S = 75.0
"""The job gives a sign of life every 30 s."""


def main(arguments: list[str]) -> int:
    """Watch the job until the node of its script has failed, or its attempt is over."""
    node, how = arguments
    beat, changed_at, ask_at = "", time.monotonic(), 0.0
    while not records.read_text("exit"):
        time.sleep(LOOK_S)
        now, found = time.monotonic(), records.read_text("heartbeat")
        beat, changed_at = found, changed_at if found == beat else now
        if now > ask_at and (now - changed_at > SILENT_S or not answers(node)):
            ask_at = now + ASK_S
            said = slurm.job()
            if said.state == "RUNNING" and said.lost_its_script:
                return _end(said.batch_host, how)
    return 0


def _end(node: str, how: str) -> int:
    fields = {"status": records.TERM_STATUS, "signal": "", "ended": time.time(), "reason": NODE_FAILURE}
    message = "" if how != OVER else "the node of the batch script failed, and --requeue does not allow another attempt"
    more = {"message": message, "again": how != OVER, "how": how, "nodes": [node]}
    records.write("exit", {**fields, **more})
    said = slurm.requeue([node] if "HPCRUN_EXCLUDE_BAD" in os.environ else []) if how != OVER else slurm.cancel()
    if said:
        records.say(said)
    return 0
