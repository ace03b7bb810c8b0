"""The port at which the ranks of a job meet."""

from __future__ import annotations

LISTENS = "0A"
FIRST, SPAN = 20000, 8000
"""Below the ephemeral range (32768), clear of NCCL's RAS (28028) and torchrun's defaults (29400, 29500)."""


def free_port(seed: int) -> int:
    """Return a port for this job, on which no program listens at this moment."""
    taken = _listening("/proc/net/tcp") | _listening("/proc/net/tcp6")
    port = FIRST + seed % SPAN
    while port in taken:
        port += 1
    return port


def _listening(path: str) -> set[int]:
    ports = set()
    try:
        with open(path, encoding="ascii") as file:
            next(file, None)
            for line in file:
                words = line.split()
                if len(words) > 3 and words[3] == LISTENS:
                    ports.add(int(words[1].rpartition(":")[2], 16))
    except OSError:
        pass
    return ports
