"""The judge of a preflight: ``judge.py [--RATE=N ...]``, run once on the first node when the others are done.

It reads what the nodes have written, decides which of them are bad, writes ``verdict.json`` beside it, prints a table
to stderr and one line for the exit record to stdout. Exit status 0: nothing is wrong. Standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

SCHEMA = 1
CHECKS = ("names", "port", "clock", "shm", "gemm", "within", "across", "errors")
LABELS = {"names": "DNS", "shm": "/dev/shm", "gemm": "GEMM", "within": "intra-node all-reduce",
          "across": "inter-node all-reduce"}  # fmt: skip
"""What a check is called in messages, where its key is not its name."""
OK, SLOW, FAILED, NONE = "ok", "slow", "FAILED", "-"

OF_PEERS = 0.6
"""A GPU, or a node's links, below this share of what the others reach is bad."""
OF_CARD, OF_LINK = 0.4, 0.3
"""Below this share of the maker's rate something is slow; the profile may also name another card."""
CLOCK_SLOW_S, CLOCK_FAILED_S = 1.0, 30.0
SHM_PER_RANK_MB, SHM_SLOW_MB = 64, 1024
"""NCCL's buffers between the ranks of a node lie in /dev/shm; a container's default is 64 MB for all."""
# Xids after which a GPU needs a reset or more, and those that are worth a word; all others come from programs.
# https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html
XIDS_FAILED = frozenset({46, 48, 62, 64, 74, 79, 95, 119, 120, 136, 140, 143})
XIDS_SLOW = frozenset({63, 92, 94, 109, 154})

Cell = dict[str, str]
Reports = Mapping[str, Mapping[str, Any]]
Rates = Mapping[str, float]


def cell(mark: str, text: str = "") -> Cell:
    """Return one entry of the table."""
    return {"mark": mark, "text": text}


def judge(
    hosts: Sequence[str],
    reports: Reports,
    *,
    rates: Rates | None = None,
    said: Mapping[str, str] | None = None,
    excluded: str | None = "",
) -> dict[str, Any]:
    """Decide which nodes are bad.

    Args:
        hosts: the nodes of the job.
        reports: node → what it wrote; a node without one did not answer.
        rates: what the card and the network can do by the profile: ``bf16-tflops``, ``nvlink-gb-s`` and so on.
        said: node → what Slurm says of it. Where no node answered at all, only these are bad.
        excluded: the nodes that the job excluded already; None where nodes cannot be chosen.
    """
    said = said or {}
    answered = {host: reports[host] for host in hosts if host in reports}
    table = {host: _row(host, answered, rates or {}) for host in hosts}
    faults: dict[str, list[str]] = {host: [] for host in hosts}
    silent = [host for host in hosts if host not in answered and (answered or host in said)]
    for host in silent:
        faults[host].append("did not answer" + (f": {said[host]}" if host in said else ""))
        table[host]["port"] = cell(FAILED, "no answer")
    problems = [] if answered or silent else ["no node answered"]
    paths = _blame_paths(answered, faults, table)
    _blame_cells(answered, faults, table, problems)
    problems += paths.values()
    if not any(faults.values()) and not problems:
        problems += _across(answered, table)
    bad = {host: "; ".join(reasons) for host, reasons in faults.items() if reasons}
    exclude = ",".join([*filter(None, [excluded]), *bad, *paths]) if (bad or paths) and excluded is not None else ""
    return {
        "schema": SCHEMA,
        "ok": not bad and not problems,
        "nodes": [{"node": host, "answered": host in answered, "checks": table[host]} for host in hosts],
        "bad": [{"node": host, "why": why} for host, why in bad.items()],
        "problems": problems,
        "slow": _slow(table),
        "exclude": exclude,
    }


def message(verdict: Mapping[str, Any]) -> str:
    """Return the verdict in one line."""
    bad = [f"{item['node']} ({item['why']})" for item in verdict["bad"]]
    parts = [f"bad: {', '.join(bad)}"] if bad else []
    parts += verdict["problems"]
    if not parts and verdict["slow"]:
        parts.append(f"no bad node; slow: {_list([item['node'] for item in verdict['slow']])}")
    if verdict["exclude"]:
        parts.append(f"add --exclude={verdict['exclude']}")
    return "preflight: " + ("; ".join(parts) or "all nodes are ok")


def _slow(table: Mapping[str, Mapping[str, Cell]]) -> list[dict[str, str]]:
    """Return the nodes of which something is slow, and what; it fails no job."""
    found = {
        host: [f"{LABELS.get(check, check)}: {item['text']}" for check, item in row.items() if item["mark"] == SLOW]
        for host, row in table.items()
    }
    return [{"node": host, "why": "; ".join(reasons)} for host, reasons in found.items() if reasons]


def _row(host: str, answered: Reports, rates: Rates) -> dict[str, Cell]:
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
        "across": _rate_across(report, rates),
        "errors": _errors(report),
    }


def _names(report: Mapping[str, Any]) -> Cell:
    names = report.get("names")
    if not names:
        return cell(NONE)
    unknown = [name for name, found in names.items() if isinstance(found, str)]
    if unknown:
        # alone, a node is called localhost
        return cell(FAILED if len(names) > 1 else SLOW, f"cannot resolve {_list(unknown)}")
    own = names.get(report["node"]) or []
    if own and all(address.startswith("127.") or address == "::1" for address in own):
        return cell(SLOW, f"resolves its own name to {own[0]}")
    return cell(OK, str(len(names)))


def _port(report: Mapping[str, Any]) -> Cell:
    if report.get("bind"):
        return cell(FAILED, f"cannot listen on {report['port']}: {report['bind']}")
    times = [answer["ms"] for answer in report.get("reach", {}).values() if "ms" in answer]
    return cell(OK, f"{median(times):.1f} ms" if times else "") if "reach" in report else cell(NONE)


def _clock(host: str, answered: Reports) -> Cell:
    """Compare clocks as the first node sees them; the one in the middle is taken for right."""
    first = next(iter(answered))
    seen = {name: answer["clock_s"] for name, answer in answered[first].get("reach", {}).items() if "clock_s" in answer}
    seen[first] = 0.0
    if host not in seen or len(seen) < 2:
        return cell(NONE)
    middle = (
        sorted(seen.values(), key=lambda offset: (abs(offset), offset))[0] if len(seen) < 3 else median(seen.values())
    )
    off = seen[host] - middle
    text = f"{round(off * 1000):+d} ms" if abs(off) < 10 else f"{off:+.0f} s"
    return cell(FAILED if abs(off) > CLOCK_FAILED_S else SLOW if abs(off) > CLOCK_SLOW_S else OK, text)


def _shm(report: Mapping[str, Any]) -> Cell:
    shm = report.get("shm")
    if not shm:
        return cell(NONE)
    free = shm["free_mb"]
    text = f"{free / 1024:.0f} GB" if free >= 10240 else f"{free} MB free"
    needed = SHM_PER_RANK_MB * len(report.get("ranks") or [1])
    return cell(FAILED if free < needed else SLOW if free < SHM_SLOW_MB else OK, text)


def _gemm(report: Mapping[str, Any], others: Sequence[Mapping[str, Any]], rates: Rates) -> Cell:
    ranks = report.get("ranks")
    if not ranks:
        return cell(NONE) if "failed" not in report else cell(FAILED, f"its Python ends with status {report['failed']}")
    trouble = _trouble(ranks, ("import torch", "device", "gemm"))
    if trouble:
        return trouble
    for number, rank in enumerate(ranks):
        if rank.get("expected"):
            return cell(FAILED, rank["no_gpu"])
        if not rank.get("right"):
            return cell(FAILED, f"{_who(rank, number)} computes wrong results")
    if "tflops" in ranks[0]:
        return _gemm_rate(ranks, others, rates)
    # GPUs that are only claimed, as in a cluster for tests
    return cell(SLOW, f"on the CPU: {ranks[0]['no_gpu']}") if ranks[0].get("asked") else cell(OK, "correct, on the CPU")


def _gemm_rate(ranks: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]], rates: Rates) -> Cell:
    found = [rank.get("tflops", 0.0) for rank in ranks]
    elsewhere = [rank["tflops"] for other in others for rank in other.get("ranks") or [] if "tflops" in rank]
    for number, tflops in enumerate(found):
        peers = found[:number] + found[number + 1 :] + elsewhere
        if peers and tflops < OF_PEERS * median(peers):
            return cell(FAILED, f"GPU {number}: {tflops:.0f} TFLOPS, the others {median(peers):.0f}")
    slowest, card = min(found), rates.get(f"{ranks[0]['dtype']}-tflops")
    text = f"{len(found)} × {slowest:.0f} TFLOPS"
    if card and slowest < OF_CARD * card:
        return cell(SLOW, f"{text} of {card:.0f}")
    for number, rank in enumerate(ranks):
        if rank["free_gb"] < 0.9 * rank["total_gb"]:
            return cell(SLOW, f"GPU {number}: only {rank['free_gb']:.0f} of {rank['total_gb']:.0f} GB are free")
    return cell(OK, text)


def _trouble(ranks: Sequence[Mapping[str, Any]], stages: tuple[str, ...]) -> Cell | None:
    """Return what went wrong in some stages of a node's ranks."""
    for number, rank in enumerate(ranks):
        if rank.get("doing", "import torch") not in stages:
            continue
        if "error" in rank:
            return cell(FAILED, f"{_who(rank, number)}: {rank['error']}")
        if rank.get("status"):
            return cell(FAILED, f"{_who(rank, number)} ended with status {rank['status']}")
        if rank.get("doing") == "import torch":
            return cell(SLOW, "import of torch timed out")
        return cell(FAILED, f"{_who(rank, number)} hangs")
    return None


def _who(rank: Mapping[str, Any], number: int) -> str:
    return f"GPU {number}" if "gpu" in rank else f"rank {number}"


def _sum(report: Mapping[str, Any], stage: str) -> float | None:
    """Return the bandwidth of a node's slowest rank, None where a rank has none."""
    found = [rank.get(stage) for rank in report.get("ranks") or []]
    return min(found) if found and None not in found else None


def _gb_s(rate: float) -> str:
    return f"{rate:.{0 if rate >= 10 else 1}f} GB/s"


def _within(report: Mapping[str, Any], others: Sequence[Mapping[str, Any]], rates: Rates) -> Cell:
    ranks, found = report.get("ranks") or [], _sum(report, "within")
    if found is None:
        return _trouble(ranks, ("within",)) or cell(NONE)
    elsewhere = [rate for other in others if (rate := _sum(other, "within")) is not None]
    if "gpu" not in ranks[0]:
        return cell(OK, _gb_s(found))
    if elsewhere and found < OF_PEERS * median(elsewhere):
        return cell(FAILED, f"{_gb_s(found)}, the others {median(elsewhere):.0f}")
    link = rates.get("nvlink-gb-s", 0) / 2  # the maker counts both directions
    return cell(SLOW, f"{_gb_s(found)} of {link:.0f}") if found < OF_LINK * link else cell(OK, _gb_s(found))


def _rate_across(report: Mapping[str, Any], rates: Rates) -> Cell:
    ranks, found = report.get("ranks") or [], _sum(report, "across")
    if found is None:
        late = f"no all-reduce: {_list(report['missing'])} not ready" if report.get("missing") else ""
        return _trouble(ranks, ("across",)) or cell(NONE, late)
    port = rates.get("fabric-gbit-s", 0) / 8
    slow = "gpu" in ranks[0] and found < OF_LINK * port
    return cell(SLOW, f"{_gb_s(found)}, one port has {port:.0f}") if slow else cell(OK, _gb_s(found))


def _errors(report: Mapping[str, Any]) -> Cell:
    errors = report.get("errors")
    if not errors:
        return cell(NONE)
    ecc, rows, xids = errors.get("ecc"), errors.get("rows"), errors.get("xids")
    marked = [(FAILED, f"Xid {xid}") for xid in xids or [] if xid in XIDS_FAILED]
    marked += [(FAILED, "a memory row could not be remapped") for row in rows or [] if row[1] in ("Yes", "1")]
    marked += [(SLOW, f"Xid {xid}") for xid in xids or [] if xid in XIDS_SLOW]
    marked += [(SLOW, "a GPU reset is needed to remap a memory row") for row in rows or [] if row[0] in ("Yes", "1")]
    marked += [(SLOW, f"{sum(ecc)} uncorrected ECC errors")] if ecc and sum(ecc) else []
    if marked:
        return cell(marked[0][0], ", ".join(dict.fromkeys(text for _, text in marked)))
    known = [name for name, values in (("ECC", ecc), ("Xid", xids)) if values is not None]
    return cell(OK, f"no {' or '.join(known)}") if known else cell(NONE, "cannot be read")


def _blame_paths(answered: Reports, faults: dict[str, list[str]], table: dict[str, dict[str, Cell]]) -> dict[str, str]:
    """Find the nodes that explain the connections that failed, each time the one with the most of them.

    Returns:
        node → the words for a path that failed though both its ends reach others; leaving that node out avoids it.
    """
    failed = {
        (source, target): answer["error"]
        for source, report in answered.items()
        for target, answer in report.get("reach", {}).items()
        # where nobody listens, that is reason enough
        if "error" in answer and target in answered and not {"failed", "bind"} & answered[target].keys()
    }
    paths, order = {}, list(answered)
    while failed:
        count = Counter(host for pair in failed for host in pair)
        into = Counter(target for _, target in failed)
        # among equals the one that is not reached, and of two the one that is not the first
        host = max(order, key=lambda name: (count[name], into[name], order.index(name)))
        mine = {pair: error for pair, error in failed.items() if host in pair}
        failed = {pair: error for pair, error in failed.items() if host not in pair}
        sources = [source for source, target in mine if target == host]
        targets = [target for _, target in mine if target != host]
        error = next(iter(mine.values()))
        reached = any("ms" in report.get("reach", {}).get(host, {}) for report in answered.values())
        if reached and len(mine) == 1:
            paths[host] = f"{sources[0]} does not reach {host} ({error}); other nodes do"
            table[sources[0]]["port"] = cell(FAILED, f"does not reach {host}")
        elif len(sources) >= len(targets):
            who = f"{_list(sources)} cannot reach" if reached else "no node reaches"
            faults[host].append(f"{who} its port {answered[host].get('port')} ({error})")
            table[host]["port"] = cell(FAILED, f"not reached: {error}")
        else:
            reaches = any("ms" in answer for answer in answered[host]["reach"].values())
            faults[host].append(
                f"{'does not reach ' + _list(targets) if reaches else 'reaches no other node'} ({error})"
            )
            table[host]["port"] = cell(FAILED, f"does not reach {_list(targets)}: {error}")
    return paths


def _blame_cells(
    answered: Reports, faults: dict[str, list[str]], table: dict[str, dict[str, Cell]], problems: list[str]
) -> None:
    """Blame nodes for what failed on them; what failed on all in the same way is no node's fault."""
    nowhere = [] if len(answered) < 2 else [
        name for name in table
        if all(isinstance((report.get("names") or {}).get(name), str) for report in answered.values())
    ]  # fmt: skip
    for name in nowhere:
        faults[name].append("no node can resolve its name")
    for check in CHECKS:
        if check in ("port", "across"):
            continue
        texts = {host: table[host][check]["text"] for host in answered if table[host][check]["mark"] == FAILED}
        if check == "names":
            texts = {host: text for host, text in texts.items() if text != f"cannot resolve {_list(nowhere)}"}
        alike = next(iter(texts.values()), "")
        of_python = "No module named" in alike or "has no CUDA" in alike  # which no other node would put right
        if set(texts) == set(answered) and set(texts.values()) == {alike} and (len(texts) > 1 or of_python):
            problems.append(f"{LABELS.get(check, check)}: {alike}" + (", on every node" if len(texts) > 1 else ""))
            continue
        for host, text in texts.items():
            faults[host].append(text if check in ("gemm", "names") else f"{LABELS.get(check, check)}: {text}")
    for host, report in answered.items():
        if report.get("bind"):
            faults[host].append(table[host]["port"]["text"])


def _across(answered: Reports, table: dict[str, dict[str, Cell]]) -> list[str]:
    """Return why the sum across the nodes failed: where all else is well, it is no single node's fault."""
    if len(answered) < 2:
        return []
    texts = [table[host]["across"]["text"] for host in answered if table[host]["across"]["mark"] == FAILED]
    if texts:
        return [f"the nodes reach each other, but their all-reduce failed: {texts[0]}"]
    late = {name for report in answered.values() for name in report.get("missing") or []}
    slow = any(table[host]["gemm"]["mark"] == SLOW for host in late if host in table)
    return [] if slow or not late else [f"{_list(sorted(late))} not ready in time for an all-reduce"]


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def table_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Return the table as plain text, for the batch log."""
    rows = [["node", *(LABELS.get(check, check) for check in CHECKS)]]
    for node in verdict["nodes"]:
        cells = (node["checks"][check] for check in CHECKS)
        rows.append([node["node"], *(f"{item['mark']} {item['text']}".strip() for item in cells)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def read_reports(folder: Path, hosts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return node → what it wrote into the folder of a preflight.

    By name, not by listing the folder: NFS may show an old list for half a minute.
    """
    reports = {}
    for host in hosts:
        try:
            report = json.loads((folder / f"{host}.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(report, dict):
            reports[host] = {"node": host, **report}
    return reports


def parse_srun(text: str) -> dict[str, str]:
    """Return node → why srun could not start its task there."""
    found = re.findall(r"srun: error: Task launch for \S+ failed on node (\S+): (.+)", text)
    return {node: words.strip() for node, words in found}


def main() -> int:
    """Judge the preflight of this job."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:])
    attempt = Path(os.environ["HPCRUN_ATTEMPT_DIR"])
    folder = attempt / "preflight"
    hosts = (attempt / "hosts").read_text("ascii").split()
    try:
        log = (folder / "srun.log").read_text("utf-8", errors="replace")
    except OSError:
        log = ""
    # the nodes of a local job are one machine
    excluded = None if os.environ.get("HPCRUN_NODE_ADDR") == "127.0.0.1" else options.pop("exclude", "")
    rates = {name: float(value) for name, value in options.items()}
    verdict = judge(hosts, read_reports(folder, hosts), rates=rates, said=parse_srun(log), excluded=excluded)
    if not any(node["answered"] for node in verdict["nodes"]) and log.strip():
        verdict["problems"].append(f"srun said: {log.strip().splitlines()[-1]}")
    aside = folder / ".verdict.json"
    aside.write_text(json.dumps(verdict) + "\n", "utf-8")
    aside.replace(folder / "verdict.json")
    sys.stderr.write("\n".join(table_lines(verdict)) + "\n")
    sys.stdout.write(message(verdict) + "\n")
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
