"""Ask NCCL what the communicators of a job are doing, on a node of the job.

This is for ``hpcrun explain --stacks``.

Since NCCL 2.24 each process has a thread (RAS: reliability, availability, serviceability) that
listens on localhost:28028, or at NCCL_RAS_ADDR; all processes of a user on a node share the port,
so that any of them may answer. It speaks lines of text (NCCL's user guide, RAS; src/ras/client.cc
and client_support.cc of NCCL 2.24 to 2.30): ``CLIENT PROTOCOL 2``, ``TIMEOUT n``, ``VERBOSE
STATUS``; the report ends with the connection. RAS collects the state of all processes of the job;
none of them has to stop for it. (From 2.28.7 it can write JSON, which is far longer.)
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Address = tuple[str, int]

PORT = 28028
HANDSHAKE_S = 1.0
"""A process that does not answer the first line in this time is stopped: another one at the port
may answer, as for ncclras."""
GAP_S = 1.0
"""Between two reports: counts that still differ after this time are not those of a job that makes
progress.
"""
LONGEST_LINE = 1024
MOST = 1 << 18
"""Bytes of a report; of a longer one the beginning is kept, with the processes that do not answer.
"""
_MOST_DIGITS = 9
_PRINTABLE = {code: "?" for code in range(256) if code != 10 and not 32 <= code < 127}


def address_of(env: Mapping[bytes, bytes]) -> Address | None:
    """Return where the RAS of a process with this environment listens.

    The result is None if the process has no RAS, or a strange address.
    """
    if env.get(b"NCCL_RAS_ENABLE") == b"0":
        return None
    given = os.fsdecode(env.get(b"NCCL_RAS_ADDR", b"")).strip()
    if not given:
        return "localhost", PORT
    host, _, port = given.rpartition(":")
    host = host.strip("[]")
    number = number_in(os.fsencode(port))
    if host and number is not None and number < 1 << 16:
        return (host, number)
    return None


def number_in(text: bytes) -> int | None:
    """Return a number that is not negative and has few digits; None for anything else."""
    if text.isdigit() and len(text) <= _MOST_DIGITS:
        return int(text)
    return None


def own_address(address: Address) -> Address | None:
    """Return an address as one of this machine, to connect to; None if it is another machine's.

    A socket can be bound to an address of this machine only. The name of a machine is looked up
    once.

    Raises:
        OSError, ValueError: there is no such name.
    """
    host, port = address
    if host == "localhost":
        return address
    for family, _, _, _, local in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as here:
            here.bind((local[0], 0, *local[2:]))
            return str(local[0]), port
    return None


def is_theirs(port: int, pids: Iterable[int]) -> bool:
    """Return whether only these processes listen at a port of this machine.

    At least one of them must listen at the port. Another job at the port, of the same user, could
    answer instead.
    """
    listening = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/self/net/{name}") as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            # proc_pid_net(5): local address, state (0A listens), inode
            if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port:
                listening.add(row[9])
    theirs = set()
    for pid in pids:
        theirs.update(_sockets_of(pid))
    return bool(listening) and listening <= theirs


def _sockets_of(pid: int) -> list[str]:
    """Return the inodes of the sockets that a process has open."""
    targets = []
    with suppress(OSError):  # it has just ended
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it has just been closed
                targets.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return [target[8:-1] for target in targets if target.startswith("socket:[")]


def reports(address: Address, timeout_s: float) -> list[str]:
    """Return the reports of RAS: two reports if there is time.

    One report does not show whether the job makes progress.
    """
    until = time.monotonic() + timeout_s
    addresses = []
    with suppress(OSError):
        addresses.append(ask(address, timeout_s))
        left = until - time.monotonic() - GAP_S
        if left > HANDSHAKE_S:
            time.sleep(GAP_S)
            addresses.append(ask(address, left))
    return addresses


def ask(address: Address, timeout_s: float) -> str:
    """Return the report of RAS at an address, as much of it as comes in time.

    Raises:
        OSError: nothing answers there, or what answers is not NCCL's RAS.
        TimeoutError: nothing answers in time.
    """
    until = time.monotonic() + timeout_s
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no response within {timeout_s:g} s")
        try:
            with socket.create_connection(address, timeout=min(left, HANDSHAKE_S)) as connection:
                greet_until = min(until, time.monotonic() + HANDSHAKE_S)
                _greet(connection, greet_until, max(1, int(left / 2)))
                connection.sendall(b"VERBOSE STATUS\n")
                return _receive(connection, until).decode("latin-1").translate(_PRINTABLE)
        except socket.timeout:  # TimeoutError from Python 3.10 on
            continue


def _greet(connection: socket.socket, until: float, seconds: int) -> None:
    """Agree on the protocol, and on how long RAS waits for a process that does not answer it.

    Raises:
        OSError: if the answer is not from NCCL's RAS.
    """
    answer = _exchange(connection, "CLIENT PROTOCOL 2", until)
    if not answer.upper().startswith("SERVER PROTOCOL "):
        raise OSError(f"not NCCL's RAS: it says {answer[:40]!r}")
    _exchange(connection, f"TIMEOUT {seconds}", until)


def _exchange(connection: socket.socket, line: str, until: float) -> str:
    """Send a line, and return the line that answers it.

    Raises:
        OSError: if the connection was closed.
    """
    connection.sendall(line.encode() + b"\n")
    answer = b""
    while not answer.endswith(b"\n") and len(answer) < LONGEST_LINE:
        connection.settimeout(max(0.01, until - time.monotonic()))
        got = connection.recv(LONGEST_LINE)
        if not got:
            raise OSError("the connection was closed")
        answer += got
    return answer.decode("latin-1")


def _receive(connection: socket.socket, until: float) -> bytes:
    """Return what comes until the connection or the time ends, at most ``MOST`` bytes."""
    received = b""
    while len(received) < MOST and time.monotonic() < until:
        connection.settimeout(max(0.01, until - time.monotonic()))
        try:
            got = connection.recv(65536)
        except socket.timeout:
            break
        if not got:
            break
        received += got
    return received[:MOST]
