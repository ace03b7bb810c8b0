"""Become a container, or report what this node lacks for the container.

``launch container IMAGE -- RUNTIME ...`` is called outside of the container.

``launch container --deaf -- PROGRAM ...`` is called inside a container: a runtime does not pass on
the signal mask, and torchrun's agent must receive no signal (see ``node``).
"""

from __future__ import annotations

import os
import shutil
import signal

from . import rank_environment, records
from .processes import HEARD, become


def main(arguments: list[str]) -> int:
    """Replace this process by the command after ``--``.

    If the command does not exist, the result is the exit status of a shell.
    """
    end = arguments.index("--")
    (what,), command = arguments[:end], arguments[end + 1 :]
    if what == "--deaf":
        signal.pthread_sigmask(signal.SIG_BLOCK, HEARD)
    else:
        node = (
            os.environ.get("HPCRUN_NODE")
            or os.environ.get("SLURMD_NODENAME")
            or os.uname().nodename
        )
        lacks = missing(command[0], what)
        if lacks:
            records.say(f"{node} {lacks}")
            return 127
        os.environ[rank_environment.CONTAINER] = command[0]
    return become(command)


def missing(runtime: str, image: str) -> str:
    """Return what is missing on this node, and what to do.

    The result is the empty string if nothing is missing.
    """
    if shutil.which(runtime) is None:
        return (
            f"has no {runtime} on its PATH; load its module (--load), or leave the node out "
            "(--exclude)"
        )
    if image.startswith("/") and not os.path.exists(image):
        return (
            f"has no image {image}; put it where all nodes see it, or leave the node out "
            "(--exclude)"
        )
    return ""
