"""Whether a rank has connected to a process that it has not started, by its open sockets.

Ranks that torch.distributed unites hold such connections from its start to its end. A look costs
less than a millisecond, and none follows the first one that shows a connection.
"""

from __future__ import annotations

import os

SETTLED = 3
"""The number of looks in a row, one a second, in which a program has loaded no further library:
before, it is still importing, and may connect within the next second.
"""
TORCH = b"/libtorch"
MPI = b"/libmpi"
"""Of MPI: its ranks may meet without sockets."""
WEB = (80, 443)
"""Ports of web services, which a rank uses alone."""
ESTABLISHED = "01"
_FOUR_IN_SIX = "0000000000000000FFFF0000"


class RankLinks:
    """The connections of the program of one rank, and of all that it has started.

    Attributes:
        is_alone: it has loaded torch, and was never seen with a connection.
    """

    def __init__(self, pid: int) -> None:
        self.is_alone = False
        self._pid = pid
        self._is_known = False
        self._libraries: frozenset[bytes] = frozenset()
        self._settled = 0

    def observe(self) -> None:
        """Look once: about every second."""
        if self._is_known:
            return
        try:
            pids = _tree(self._pid)
            may_meet = has_connection(pids) or self._may_meet_by_mpi(pids)
        except OSError:  # a process is about to end, or has other rights
            return
        self._is_known = may_meet
        self.is_alone = not may_meet and self._settled >= SETTLED

    def _may_meet_by_mpi(self, pids: list[int]) -> bool:
        """Return whether it has loaded MPI; count the looks since it has loaded what it needs."""
        if self._settled >= SETTLED:
            return False
        loaded = frozenset().union(*map(_libraries, pids))
        is_settled = loaded == self._libraries and any(TORCH in path for path in loaded)
        self._settled = self._settled + 1 if is_settled else 0
        self._libraries = loaded
        return any(MPI in path for path in loaded)


def _tree(pid: int) -> list[int]:
    """Return a process and all below it.

    Raises:
        OSError: it has ended, or the kernel does not tell its children.
    """
    pids = [pid]
    for each in pids:
        for task in os.listdir(f"/proc/{each}/task"):
            with open(f"/proc/{each}/task/{task}/children", encoding="ascii") as file:
                pids += map(int, file.read().split())
    return pids


def _libraries(pid: int) -> set[bytes]:
    with open(f"/proc/{pid}/maps", "rb") as file:
        return {line.split()[-1] for line in file if b".so" in line}


def has_connection(pids: list[int]) -> bool:
    """Return whether some processes have a connection to any other process, but for the web.

    Raises:
        OSError: a process has ended, or another user's process cannot be read.
    """
    sockets = set()
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            try:
                target = os.readlink(f"{folder}/{name}")
            except FileNotFoundError:  # closed since
                continue
            if target.startswith("socket:["):
                sockets.add(target[len("socket:[") : -1])
    if not sockets:
        return False
    ends = _established(pids[0], sockets)
    return any((there, here) not in ends and _port(there) not in WEB for here, there in ends)


def _established(pid: int, sockets: set[str]) -> set[tuple[str, str]]:
    """Return the two addresses of each established connection over TCP of some sockets."""
    ends = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="ascii") as file:
            for line in file:
                words = line.split()
                if words[3] == ESTABLISHED and words[9] in sockets:
                    ends.add((_address(words[1]), _address(words[2])))
    return ends


def _address(text: str) -> str:
    """Return an address and its port; that of IPv4 also from a socket for both versions."""
    return text.removeprefix(_FOUR_IN_SIX)


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
