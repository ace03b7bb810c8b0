"""The traffic of a node's network: two readings of its counters, and the rate between them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

# A function for the program that every node runs. port_rcv_data and port_xmit_data count 4 bytes each (Linux:
# Documentation/ABI/stable/sysfs-class-infiniband). The interfaces of /proc/net/dev count only traffic through the
# kernel, without RDMA: they are read if a node has no RDMA ports.
READ_PORTS = r"""
read_ports() {
  local port now rest rdma=
  now=$(date +%s.%N)
  for port in /sys/class/infiniband/*/ports/*; do
    [ -r "$port/counters/port_rcv_data" ] || continue
    rest=${port#/sys/class/infiniband/}
    printf '%s\t%s\t%s\t%s\t%s\n' "$now" "${rest%%/*}/${port##*/}" "$(<"$port/rate")" \
      "$(($(<"$port/counters/port_rcv_data") * 4))" "$(($(<"$port/counters/port_xmit_data") * 4))"
    rdma=1
  done
  [ -n "$rdma" ] || tr : ' ' </proc/net/dev | while read -r port received _ _ _ _ _ _ _ sent _; do
    case $received in *[!0-9]*) continue ;; esac # the headings
    printf '%s\t%s\t\t%s\t%s\n' "$now" "$port" "$received" "$sent"
  done
}
"""


@dataclass(frozen=True, slots=True)
class PortReading:
    """The traffic of one port of a node, in bytes per second.

    Attributes:
        port: ``mlx5_0/1``, or an interface such as ``eth0``.
        link: the speed of the link as reported, "" if it is not.
    """

    port: str
    link: str
    in_per_s: float
    out_per_s: float


def parse_ports(lines: Iterable[str]) -> tuple[PortReading, ...]:
    """Return the rates from the first and the last reading of each port, without interfaces that have no traffic."""
    first: dict[str, tuple[float, int, int]] = {}
    rates: dict[str, PortReading] = {}
    for line in lines:
        parts = line.split("\t")
        try:
            at_s, port, link, received, sent = float(parts[0]), parts[1], parts[2], int(parts[3]), int(parts[4])
        except (ValueError, IndexError):
            continue
        begun_s, had, gave = first.setdefault(port, (at_s, received, sent))
        if at_s > begun_s:
            # if a counter was reset, the traffic is unknown
            into, out = max(0, received - had) / (at_s - begun_s), max(0, sent - gave) / (at_s - begun_s)
            rates[port] = PortReading(port, link, into, out)
    return tuple(
        reading
        for port, reading in sorted(rates.items())
        if reading.link or (port != "lo" and (reading.in_per_s or reading.out_per_s))
    )
