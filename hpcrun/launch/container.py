"""``launch container IMAGE -- RUNTIME ...``: becomes a container, or says what this node lacks for it.

``launch container --deaf -- PROGRAM ...``, inside of one: a runtime hands no signal mask on, and torchrun's agent is
to hear nothing (see ``node``).
"""

from __future__ import annotations

import os
import shutil
import signal

from . import environment, records
from .processes import HEARD


def main(arguments: list[str]) -> int:
    """Become the command behind ``--``; returns a shell's status where there is none."""
    end = arguments.index("--")
    (what,), command = arguments[:end], arguments[end + 1 :]
    if what == "--deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    else:
        node = os.environ.get("HPCRUN_NODE") or os.environ.get("SLURMD_NODENAME") or os.uname().nodename
        if lacks := missing(command[0], what):
            records.say(f"{node} {lacks}")
            return 127
        os.environ[environment.CONTAINER] = command[0]
    try:
        os.execvp(command[0], command)
    except OSError as error:
        records.say(f"cannot start {command[0]}: {error.strerror}")
        return 126


def missing(runtime: str, image: str) -> str:
    """Return what is not on this node, and what to do; the empty string where all is there."""
    if shutil.which(runtime) is None:
        return f"has no {runtime} on its PATH; load its module (--load), or leave the node out (--exclude)"
    if image.startswith("/") and not os.path.exists(image):
        return f"has no image {image}; put it where all nodes see it, or leave the node out (--exclude)"
    return ""
