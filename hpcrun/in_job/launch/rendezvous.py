"""Where the ranks of a job meet: its head node and its port, and who listens there."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys
from dataclasses import dataclass

from . import rank_environment, records

FIRST = 20000
SPAN = 8000
"""Ports below the ephemeral range (32768), clear of NCCL's RAS (28028) and torchrun's defaults
(29400, 29500).
"""
PORT_STEP = 1777
LOOPBACK = "127.0.0.1"
CHANCE = "HPCRUN_CHANCE"
"""The variable with a part of names that other users cannot foresee; another one each attempt."""
ANOTHER_USER = "another user listens on this port"
"""That user would get what clients send."""


def choose(hosts: list[str], *, local: bool) -> None:
    """Set and record the nodes of an attempt, its head and its port.

    Every node resolves the name itself.
    """
    env = os.environ
    env["HPCRUN_HEAD"] = hosts[0]
    env["HPCRUN_HEAD_ADDR"] = LOOPBACK if local else rank_environment.address_of(hosts[0])
    seed = os.getpid() if local else int(env["SLURM_JOB_ID"])
    env["HPCRUN_PORT"] = str(free_port(seed + PORT_STEP * int(env["HPCRUN_ATTEMPT"])))
    env[CHANCE] = os.urandom(4).hex()
    records.retry_if_full(lambda: _write_hosts(hosts))
    if local:
        env["HPCRUN_NODE_ADDR"] = LOOPBACK
        return
    place = f"{env['HPCRUN_HEAD_ADDR']}:{env['HPCRUN_PORT']}"
    job = f"job {env['SLURM_JOB_ID']} on {env['SLURM_JOB_NODELIST']}"
    records.announce(f"{job}, rendezvous {place}")


def _write_hosts(hosts: list[str]) -> None:
    with open(os.path.join(records.attempt_dir(), "hosts"), "w", encoding="utf-8") as file:
        file.write("\n".join(hosts) + "\n")


def free_port(seed: int) -> int:
    """Return a port for this job, on which no program listens at this moment.

    It is any port if other programs hold all ports of the job's range.
    """
    for step in range(SPAN):
        port = FIRST + (seed + step) % SPAN
        if _is_free(port):
            return port
    with socket.create_server(("", 0)) as any_port:
        return int(any_port.getsockname()[1])


def _is_free(port: int) -> bool:
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        socket.create_server(("", port), family=family, dualstack_ipv6=both).close()
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class ListeningSocket:
    """A TCP socket of this node that listens."""

    address: str
    user: int

    @property
    def is_wildcard(self) -> bool:
        """Whether it listens at all addresses of the node."""
        return self.address in ("0.0.0.0", "::")

    @property
    def is_loopback(self) -> bool:
        """Whether only programs of the node can connect to it."""
        return ipaddress.ip_address(self.address).is_loopback


def problem_of_listeners(port: int, host: str) -> str | None:
    """Return why clients that connect to a port of this node may not reach this user's program.

    Only sockets that clients could reach count: at the loopback addresses for clients of this node,
    at all others for clients of other nodes, which may resolve the host's name in another way.

    Args:
        port: the port.
        host: the name or address of this node that its clients get.

    Returns:
        The empty string if the user listens on the address and no other user could be reached;
        None if nobody listens on the port.
    """
    listeners = listeners_of(port)
    if not listeners:
        return None
    inside = host == LOOPBACK
    near = [each for each in listeners if each.is_wildcard or each.is_loopback == inside]
    if any(listener.user != os.getuid() for listener in near):
        return ANOTHER_USER
    addresses = _addresses(host)
    # Debian's /etc/hosts gives a node's own name the address 127.0.1.1, which no client gets
    is_unknown = not inside and all(ipaddress.ip_address(each).is_loopback for each in addresses)
    if any(each.is_wildcard or is_unknown or each.address in addresses for each in near):
        return ""
    places = ", ".join(sorted({listener.address for listener in listeners}))
    return f"the program listens on {places}, and its clients connect to {host}"


def listeners_of(port: int) -> list[ListeningSocket]:
    """Return who listens on a TCP port of this node, by proc(5)."""
    listeners = []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/net/{name}", encoding="ascii") as table:
                rows = [line.split() for line in table]
        except OSError:
            continue
        for row in rows:
            # local address, state (0A listens), user
            address, _, number = row[1].rpartition(":")
            if row[3] == "0A" and int(number, 16) == port:
                listeners.append(ListeningSocket(_address_text(address), int(row[7])))
    return listeners


def _address_text(digits: str) -> str:
    """Return an address of /proc/net, whose words of 4 bytes have the order of this machine."""
    parts = [digits[begin : begin + 8] for begin in range(0, len(digits), 8)]
    data = b"".join(int(part, 16).to_bytes(4, sys.byteorder) for part in parts)
    return _plain(ipaddress.ip_address(data))


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """Return an address as text, an IPv4 address also where it is mapped to IPv6."""
    return str(getattr(address, "ipv4_mapped", None) or address)


def _addresses(host: str) -> set[str]:
    """Return the addresses of a host.

    Raises:
        OSError: the host cannot be resolved.
    """
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    texts = [str(answer[4][0]).partition("%")[0] for answer in answers]
    return {_plain(ipaddress.ip_address(text)) for text in texts}
