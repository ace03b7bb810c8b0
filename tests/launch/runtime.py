"""A stand-in for apptainer where there is none: ``apptainer exec [--nv] [--bind=FOLDER]...

IMAGE PROGRAM...``.

It isolates nothing. What it has of apptainer 1.4 (seen there) is what matters to signals: it stays
as the program's parent and hands on each signal that it gets, the program starts with an empty mask
and dies with it, finds its own PATH (the image's bin), and is seen by the host's process ids. An
image is a folder with a bin.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run the program behind the image; ends as it does."""
    words = sys.argv[2:]
    while words[0].startswith("--"):
        words = words[1:]
    image, program = words[0], words[1:]
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.environ.update(PATH=f"{image}/bin:/usr/bin:/bin", APPTAINER_CONTAINER=image)
        os.execvp(program[0], program)

    def hand_on(number: int, _: object) -> None:
        # it has just ended: of the same signal, where every process gets it
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
        signal.signal(number, hand_on)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(
            status
        ) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
