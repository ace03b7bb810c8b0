"""The result of each check of a preflight on one node: a cell of the table.

Pure; ``judge.py`` imports it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from .xids import RESET, WORTH_A_WORD, XIDS

CHECKS = ("names", "port", "clock", "shm", "gemm", "within", "across", "errors")
LABELS = {
    "names": "DNS",
    "shm": "/dev/shm",
    "gemm": "GEMM",
    "within": "intra-node all-reduce",
    "across": "inter-node all-reduce",
}
"""The name of a check in messages, if it differs from its key."""
OK = "ok"
SLOW = "slow"
FAILED = "FAILED"
NONE = "-"

OF_PEERS = 0.6
"""A GPU, or a node's links, below this share of the rate of the others is bad."""
OF_CARD = 0.4
OF_LINK = 0.3
"""Below this share of the manufacturer's rate something is slow; or the profile names another card.
"""
CLOCK_SLOW_S = 1.0
CLOCK_FAILED_S = 30.0
HANGS_AFTER_S = 7.0
"""A rank that has been in its step for a shorter time, when the preflight ends, is late and perhaps
well.
"""
GEMM_STEPS = ("import torch", "device", "gemm")
SHM_PER_RANK_MB = 64
SHM_SLOW_MB = 1024
"""NCCL's buffers between the ranks of a node lie in /dev/shm; a container's default is 64 MB for
all.
"""

_YES = ("Yes", "1")
"""How nvidia-smi writes that a memory row is to be remapped, or could not be."""

Cell = dict[str, str]
Reports = Mapping[str, Mapping[str, Any]]
Rates = Mapping[str, float]


def cell(mark: str, text: str = "") -> Cell:
    """Return one entry of the table."""
    return {"mark": mark, "text": text}


def not_ready(hosts: Sequence[str], answered: Reports) -> list[str]:
    """Return the nodes that took no part in the inter-node all-reduce.

    These are the late nodes, and the nodes that have not reported an end.
    """
    missing = []
    for host in hosts:
        report = answered.get(host, {})
        if report.get("late") or "ended" not in report:
            missing.append(host)
    return missing


def check_node(
    host: str, answered: Reports, rates: Rates, missing: Sequence[str]
) -> dict[str, Cell]:
    """Return a node's row of the table: check → cell.

    Args:
        host: the name of the node.
        answered: node → its report.
        rates: the profile's rates of the card and the network: ``bf16-tflops``, ``nvlink-gb-s`` and
            so on.
        missing: the nodes that took no part in the inter-node all-reduce.
    """
    if host not in answered:
        return {check: cell(NONE) for check in CHECKS}
    report = answered[host]
    others = [other for name, other in answered.items() if name != host]
    return {
        "names": _names(report),
        "port": _port(report),
        "clock": _clock(host, answered),
        "shm": _shm(report),
        "gemm": _gemm(report, others, rates),
        "within": _within(report, others, rates),
        "across": _rate_across(report, rates, missing),
        "errors": _errors(report),
    }


def _names(report: Mapping[str, Any]) -> Cell:
    """Return whether the name server knows the nodes, and this node by its address."""
    names = report.get("names")
    if not names:
        return cell(NONE)
    unknown = [name for name, addresses in names.items() if isinstance(addresses, str)]
    if unknown:
        # without other nodes, a node may be called localhost
        return cell(FAILED if len(names) > 1 else SLOW, f"cannot resolve {listed(unknown)}")
    of_node = names.get(report["node"]) or []
    if of_node and all(_is_loopback(address) for address in of_node):
        return cell(SLOW, f"resolves its own name to {of_node[0]}")
    return cell(OK, str(len(names)))


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def _port(report: Mapping[str, Any]) -> Cell:
    """Return whether the node listens on the job's port, and how fast the others answer."""
    if report.get("bind"):
        return cell(FAILED, f"cannot listen on {report['port']}: {report['bind']}")
    if "reach" not in report:
        return cell(NONE)
    times = [answer["ms"] for answer in report["reach"].values() if "ms" in answer]
    return cell(OK, f"{median(times):.1f} ms" if times else "")


def _clock(host: str, answered: Reports) -> Cell:
    """Compare the clock of a node with the others, as the first node sees the clocks.

    The median counts as right; for two nodes, the clock of the first node does.
    """
    first = next(iter(answered))
    seen = {first: 0.0}
    for name, answer in answered[first].get("reach", {}).items():
        if "clock_s" in answer:
            seen[name] = answer["clock_s"]
    if host not in seen or len(seen) < 2:
        return cell(NONE)
    middle = 0.0 if len(seen) < 3 else median(seen.values())
    off = seen[host] - middle
    text = f"{round(off * 1000):+d} ms" if abs(off) < 10 else f"{off:+.0f} s"
    if abs(off) > CLOCK_FAILED_S:
        return cell(FAILED, text)
    return cell(SLOW if abs(off) > CLOCK_SLOW_S else OK, text)


def _shm(report: Mapping[str, Any]) -> Cell:
    """Return whether /dev/shm has space for the buffers of NCCL."""
    shm = report.get("shm")
    if not shm:
        return cell(NONE)
    free = shm["free_mb"]
    text = f"{free / 1024:.0f} GB" if free >= 10240 else f"{free} MB free"
    needed = SHM_PER_RANK_MB * len(report.get("ranks") or [1])
    if free < needed:
        return cell(FAILED, text)
    return cell(SLOW if free < SHM_SLOW_MB else OK, text)


def _gemm(report: Mapping[str, Any], others: Sequence[Mapping[str, Any]], rates: Rates) -> Cell:
    """Return whether every rank multiplies matrices correctly, and how fast its GPU does."""
    ranks = report.get("ranks")
    if not ranks:
        if "failed" not in report:
            return cell(NONE)
        return cell(FAILED, f"its Python ends with status {report['failed']}")
    trouble = _trouble(ranks, GEMM_STEPS)
    if trouble:
        return trouble
    for number, rank in enumerate(ranks):
        if rank.get("expected"):
            return cell(FAILED, rank["no_gpu"])
        if not rank.get("right"):
            return cell(FAILED, f"{_who(rank, number)} computes wrong results")
    if "tflops" in ranks[0]:
        return _gemm_rate(ranks, others, rates)
    # GPUs that exist only in Slurm's configuration, as in a cluster for tests
    if ranks[0].get("asked"):
        return cell(SLOW, f"on the CPU: {ranks[0]['no_gpu']}")
    return cell(OK, "correct, on the CPU")


def _gemm_rate(
    ranks: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], rates: Rates
) -> Cell:
    """Compare the speed of a node's GPUs with other GPUs, and with the card's own rate."""
    speeds = [rank.get("tflops", 0.0) for rank in ranks]
    elsewhere = []
    for other in others:
        elsewhere += [rank["tflops"] for rank in other.get("ranks") or [] if "tflops" in rank]
    for number, tflops in enumerate(speeds):
        peers = speeds[:number] + speeds[number + 1 :] + elsewhere
        if peers and tflops < OF_PEERS * median(peers):
            text = f"GPU {number}: {tflops:.0f} TFLOPS, the others {median(peers):.0f}"
            return cell(FAILED, text)
    slowest = min(speeds)
    card = rates.get(f"{ranks[0]['dtype']}-tflops")
    text = f"{len(speeds)} × {slowest:.0f} TFLOPS"
    if card and slowest < OF_CARD * card:
        return cell(SLOW, f"{text} of {card:.0f}")
    for number, rank in enumerate(ranks):
        free = rank["free_gb"]
        total = rank["total_gb"]
        if free < 0.9 * total:
            return cell(SLOW, f"GPU {number}: only {free:.0f} of {total:.0f} GB are free")
    return cell(OK, text)


def _trouble(ranks: Sequence[Mapping[str, Any]], stages: tuple[str, ...]) -> Cell | None:
    """Return the errors in some stages of a node's ranks."""
    for number, rank in enumerate(ranks):
        if rank.get("doing", "import torch") not in stages:
            continue
        if "error" in rank:
            return cell(FAILED, f"{_who(rank, number)}: {rank['error']}")
        if rank.get("status"):
            return cell(FAILED, f"{_who(rank, number)} ended with status {rank['status']}")
        if rank.get("doing") == "import torch":
            return cell(SLOW, "import of torch timed out")
        if rank.get("for_s", HANGS_AFTER_S) < HANGS_AFTER_S:
            return cell(SLOW, f"{_who(rank, number)} was not done in time")
        return cell(FAILED, f"{_who(rank, number)} hangs")
    return None


def _who(rank: Mapping[str, Any], number: int) -> str:
    return f"GPU {number}" if "gpu" in rank else f"rank {number}"


def _slowest(report: Mapping[str, Any], stage: str) -> float | None:
    """Return the bandwidth of a node's slowest rank, None if a rank has none."""
    results = [rank.get(stage) for rank in report.get("ranks") or []]
    return min(results) if results and None not in results else None


def _gb_s(rate: float) -> str:
    return f"{rate:.0f} GB/s" if rate >= 10 else f"{rate:.1f} GB/s"


def _within(report: Mapping[str, Any], others: Sequence[Mapping[str, Any]], rates: Rates) -> Cell:
    """Compare the bandwidth between a node's GPUs with other nodes, and with the card's rate."""
    ranks = report.get("ranks") or []
    slowest = _slowest(report, "within")
    if slowest is None:
        # a rank that never came explains the others' waiting for it
        if _trouble(ranks, GEMM_STEPS):
            return cell(NONE)
        return _trouble(ranks, ("within",)) or cell(NONE)
    text = _gb_s(slowest)
    if "gpu" not in ranks[0]:
        return cell(OK, text)
    of_others = [_slowest(other, "within") for other in others]
    elsewhere = [rate for rate in of_others if rate is not None]
    if elsewhere and slowest < OF_PEERS * median(elsewhere):
        return cell(FAILED, f"{text}, the others {median(elsewhere):.0f}")
    link = rates.get("nvlink-gb-s", 0) / 2  # the manufacturer counts both directions
    if slowest < OF_LINK * link:
        return cell(SLOW, f"{text} of {link:.0f}")
    return cell(OK, text)


def _rate_across(report: Mapping[str, Any], rates: Rates, missing: Sequence[str]) -> Cell:
    """Compare the bandwidth between the nodes with the rate of a port of the network."""
    ranks = report.get("ranks") or []
    slowest = _slowest(report, "across")
    if slowest is None:
        if report.get("late") and report.get("reach"):
            return cell(SLOW, "not ready in time")
        if missing and report.get("reach"):
            return cell(NONE, f"no all-reduce: {listed(missing)} not ready")
        return _trouble(ranks, ("across",)) or cell(NONE)
    port = rates.get("fabric-gbit-s", 0) / 8
    if "gpu" in ranks[0] and slowest < OF_LINK * port:
        return cell(SLOW, f"{_gb_s(slowest)}, one port has {port:.0f}")
    return cell(OK, _gb_s(slowest))


def _errors(report: Mapping[str, Any]) -> Cell:
    """Return what the driver and the kernel have recorded: failures first, then warnings."""
    errors = report.get("errors")
    if not errors:
        return cell(NONE)
    ecc = errors.get("ecc")
    xids = errors.get("xids")
    rows = errors.get("rows") or []
    failures = _failures(rows, xids or [])
    warnings = _warnings(rows, xids or [])
    if ecc and sum(ecc):
        warnings.append(f"{sum(ecc)} uncorrected ECC errors")
    texts = ", ".join(dict.fromkeys(failures + warnings))
    if texts:
        return cell(FAILED if failures else SLOW, texts)
    known = []
    if ecc is not None:
        known.append("ECC")
    if xids is not None:
        known.append("Xid")
    if known:
        return cell(OK, f"no {' or '.join(known)}")
    return cell(NONE, "cannot be read")


def _failures(rows: Sequence[Sequence[str]], xids: Sequence[int]) -> list[str]:
    """Return the errors for which a GPU is bad."""
    failures = [_xid(xid) for xid in xids if xid in XIDS and XIDS[xid][0] == RESET]
    if any(row[1] in _YES for row in rows):
        failures.append("a memory row could not be remapped")
    return failures


def _warnings(rows: Sequence[Sequence[str]], xids: Sequence[int]) -> list[str]:
    """Return the errors without which a GPU would be better."""
    warnings = [_xid(xid) for xid in xids if xid in WORTH_A_WORD]
    if any(row[0] in _YES for row in rows):
        warnings.append("a GPU reset is needed to remap a memory row")
    return warnings


def _xid(code: int) -> str:
    return f"Xid {code} ({XIDS[code][1]})"


def listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    text = ", ".join(names[:4])
    if len(names) > 4:
        text += f" and {len(names) - 4} more"
    return text
