"""The judge of a preflight, which decides which nodes are bad.

The command is ``judge.py [--RATE=N ...]``, run once on the first node when the others are done.

It reads the nodes' reports, decides which nodes are bad, writes ``verdict.json`` beside the
reports, prints a table to stderr and one line for the exit record to stdout. Exit status 0: no node
is bad. It uses only the standard library and ``grade_checks.py``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, in the run's folder
    sys.path.insert(0, str(Path(__file__).parents[1]))
    __package__ = Path(__file__).parent.name
    sys.dont_write_bytecode = True

from .grade_checks import (
    CHECKS,
    FAILED,
    LABELS,
    SLOW,
    Cell,
    Rates,
    Reports,
    cell,
    check_node,
    listed,
    not_ready,
)

SCHEMA = 1
CANNOT_WRITE = "cannot write in the run's folder"  # node.py says so of its node


@dataclass(frozen=True)
class _Case:
    """What is known of the nodes so far.

    Attributes:
        answered: node → its report, of the nodes that have one.
        table: node → check → cell.
        faults: node → why it is bad.
        problems: what is wrong, and no fault of a single node.
    """

    answered: Reports
    table: dict[str, dict[str, Cell]]
    faults: dict[str, list[str]]
    problems: list[str]


def judge(
    hosts: Sequence[str],
    reports: Reports,
    *,
    rates: Rates | None = None,
    srun_errors: Mapping[str, str] | None = None,
    excluded: str | None = "",
) -> dict[str, Any]:
    """Decide which nodes are bad.

    Args:
        hosts: the nodes of the job.
        reports: node → its report; a node without a report did not respond.
        rates: the profile's rates of the card and the network: ``bf16-tflops``, ``nvlink-gb-s`` and
            so on.
        srun_errors: node → Slurm's message about it. If no node responded, only these nodes are
            bad.
        excluded: the nodes that the job has already excluded; None if nodes cannot be chosen.
    """
    answered = {host: reports[host] for host in hosts if host in reports}
    missing = not_ready(hosts, answered)
    case = _Case(answered, table={}, faults={}, problems=[])
    for host in hosts:
        case.table[host] = check_node(host, answered, rates or {}, missing)
        case.faults[host] = []
    _blame_silent(case, srun_errors or {})
    paths = _blame_paths(case)
    _blame_cells(case)
    case.problems.extend(paths.values())
    bad = {host: "; ".join(reasons) for host, reasons in case.faults.items() if reasons}
    if not bad and not case.problems and len(hosts) > 1:
        case.problems.extend(_across(case, missing))
    return {
        "schema": SCHEMA,
        "ok": not bad and not case.problems,
        "nodes": [_row(host, case) for host in hosts],
        "bad": [{"node": host, "why": why} for host, why in bad.items()],
        "problems": case.problems,
        "slow": _slow(case.table),
        "exclude": _exclude(excluded, [*bad, *paths]),
    }


def _exclude(excluded: str | None, nodes: list[str]) -> str:
    """Return the value of --exclude for the next job; empty if no node is added, or can be."""
    if excluded is None or not nodes:
        return ""
    return ",".join([excluded, *nodes]) if excluded else ",".join(nodes)


def _row(host: str, case: _Case) -> dict[str, Any]:
    return {
        "node": host,
        "answered": host in case.answered,
        "checks": case.table[host],
        "kept": case.answered.get(host, {}).get("kept"),
    }


def message(verdict: Mapping[str, Any]) -> str:
    """Return the verdict in one line."""
    parts = []
    if verdict["bad"]:
        bad = [f"{item['node']} ({item['why']})" for item in verdict["bad"]]
        parts.append(f"bad: {', '.join(bad)}")
    parts += verdict["problems"]
    if not parts and verdict["slow"]:
        slow = [item["node"] for item in verdict["slow"]]
        parts.append(f"no bad node; slow: {listed(slow)}")
    if verdict["exclude"]:
        parts.append(f"add --exclude={verdict['exclude']}")
    if not parts:
        parts.append("all nodes are ok")
    return f"preflight: {'; '.join(parts)}"


def _slow(table: Mapping[str, Mapping[str, Cell]]) -> list[dict[str, str]]:
    """Return the nodes with slow parts; this fails no job."""
    nodes = []
    for host, row in table.items():
        slow = []
        for check, item in row.items():
            if item["mark"] == SLOW:
                slow.append(f"{LABELS.get(check, check)}: {item['text']}")
        if slow:
            nodes.append({"node": host, "why": "; ".join(slow)})
    return nodes


def _blame_silent(case: _Case, srun_errors: Mapping[str, str]) -> None:
    """Blame the nodes that did not respond; where none did, only those that Slurm names.

    Args:
        case: what is known of the nodes.
        srun_errors: node → Slurm's message about it.
    """
    for host in case.table:
        if host in case.answered:
            continue
        fault = "did not respond"
        error = srun_errors.get(host, "")
        if error.startswith(CANNOT_WRITE):
            fault = error
        elif error:
            fault += f": {error}"
        elif not case.answered:
            continue
        case.faults[host].append(fault)
        case.table[host]["port"] = cell(FAILED, "no response")
    if not case.answered and not any(case.faults.values()):
        case.problems.append("no node answered")


def _blame_paths(case: _Case) -> dict[str, str]:
    """Find the nodes that explain the failed connections, each time the node with the most of them.

    Returns:
        node → the message for a path that failed although both its ends reach others; excluding the
        node avoids it.
    """
    failed = _failed_connections(case.answered)
    paths: dict[str, str] = {}
    order = list(case.answered)
    while failed:
        count: Counter[str] = Counter()
        for pair in failed:
            count.update(pair)
        into = Counter(target for _, target in failed)
        # among equals the node that is not reached, and of two the one that is not the first
        host = max(order, key=lambda name: (count[name], into[name], order.index(name)))
        of_host = [pair for pair in failed if host in pair]
        sources = [source for source, target in of_host if target == host]
        targets = [target for _, target in of_host if target != host]
        error = failed[of_host[0]]
        for pair in of_host:
            del failed[pair]
        if len({*sources, *targets}) == 1 and _is_reached(host, case.answered):
            # one path is blocked, in one direction or in both
            paths[host] = f"{sources[0]} does not reach {host} ({error}); other nodes do"
            case.table[sources[0]]["port"] = cell(FAILED, f"does not reach {host}")
        elif len(sources) >= len(targets):
            _blame_unreached(case, host, sources, error)
        else:
            _blame_cut_off(case, host, targets, error)
    return paths


def _blame_unreached(case: _Case, host: str, sources: Sequence[str], error: str) -> None:
    """Blame a node for connections from other nodes that failed."""
    who = "no node reaches"
    if _is_reached(host, case.answered):
        who = f"{listed(sources)} cannot reach"
    port = case.answered[host].get("port")
    case.faults[host].append(f"{who} its port {port} ({error})")
    case.table[host]["port"] = cell(FAILED, f"not reached: {error}")


def _blame_cut_off(case: _Case, host: str, targets: Sequence[str], error: str) -> None:
    """Blame a node for its connections to other nodes that failed."""
    what = "reaches no other node"
    if any("ms" in answer for answer in case.answered[host]["reach"].values()):
        what = f"does not reach {listed(targets)}"
    case.faults[host].append(f"{what} ({error})")
    case.table[host]["port"] = cell(FAILED, f"does not reach {listed(targets)}: {error}")


def _failed_connections(answered: Reports) -> dict[tuple[str, str], str]:
    """Return source and target → the error, of the connections that failed."""
    failed = {}
    for source, report in answered.items():
        for target, answer in report.get("reach", {}).items():
            if "error" not in answer or target not in answered:
                continue
            # a node that does not listen is reason enough
            if "failed" not in answered[target] and "bind" not in answered[target]:
                failed[source, target] = answer["error"]
    return failed


def _is_reached(host: str, answered: Reports) -> bool:
    return any("ms" in report.get("reach", {}).get(host, {}) for report in answered.values())


def _blame_cells(case: _Case) -> None:
    """Blame nodes for failures on these nodes.

    A failure that is the same on all nodes is not the fault of a node.
    """
    for check in CHECKS:
        if check in ("port", "across"):
            continue
        texts = {}
        for host in case.answered:
            item = case.table[host][check]
            if item["mark"] == FAILED:
                texts[host] = item["text"]
        if _is_of_every_node(texts, len(case.answered)):
            problem = f"{LABELS.get(check, check)}: {next(iter(texts.values()))}"
            if len(texts) > 1:
                problem += ", on every node"
            case.problems.append(problem)
            continue
        label = "" if check in ("gemm", "names") else f"{LABELS.get(check, check)}: "
        for host, text in texts.items():
            case.faults[host].append(label + text)
    for host, report in case.answered.items():
        if report.get("bind"):
            case.faults[host].append(case.table[host]["port"]["text"])


def _is_of_every_node(texts: Mapping[str, str], number: int) -> bool:
    """Whether all nodes failed a check in the same way.

    Args:
        texts: node → how it failed the check, of the nodes that did.
        number: the number of nodes that answered.
    """
    if len(texts) != number or len(set(texts.values())) != 1:
        return False
    if number > 1:
        return True
    (text,) = texts.values()
    # a single node has the Python of every other node
    return "No module named" in text or "has no CUDA" in text


def _across(case: _Case, missing: Sequence[str]) -> list[str]:
    """Return why the inter-node all-reduce failed: one message, or none.

    If all else is well, the failure is not the fault of a single node.

    Args:
        case: what is known of the nodes.
        missing: the nodes that took no part in the all-reduce.
    """
    lost = [host for host in missing if not case.answered.get(host, {}).get("late")]
    if lost:
        return [f"{listed(lost)} not ready in time for an all-reduce"]
    if missing:
        return []
    for row in case.table.values():
        if row["across"]["mark"] == FAILED:
            text = row["across"]["text"]
            return [f"the nodes reach each other, but their all-reduce failed: {text}"]
    return []


def table_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Return the table as plain text, for the batch log."""
    rows = [["node", *(LABELS.get(check, check) for check in CHECKS)]]
    for node in verdict["nodes"]:
        row = [node["node"]]
        for check in CHECKS:
            item = node["checks"][check]
            row.append(f"{item['mark']} {item['text']}".strip())
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = []
    for row in rows:
        padded = [text.ljust(width) for text, width in zip(row, widths)]
        lines.append("  ".join(padded).rstrip())
    return lines


def read_reports(folder: Path, hosts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return node → its report in the folder of a preflight.

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
    """Return node → why srun could not start its task there, or its task could not report."""
    refused = re.findall(r"srun: error: Task launch for \S+ failed on node (\S+): (.+)", text)
    refused += re.findall(rf"hpcrun: (\S+) ({CANNOT_WRITE}[^;\n]+)", text)
    return {node: words.strip() for node, words in refused}


def main() -> int:
    """Judge the preflight of this job."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = dict(option.removeprefix("--").split("=", 1) for option in sys.argv[1:])
    attempt = Path(os.environ["HPCRUN_ATTEMPT_DIR"])
    folder = attempt / "preflight"
    hosts = (attempt / "hosts").read_text("ascii").split()
    try:
        log = (folder / "srun.log").read_text("utf-8", errors="replace")
    except OSError:
        log = ""
    excluded: str | None = options.pop("exclude", "")
    if os.environ.get("HPCRUN_NODE_ADDR") == "127.0.0.1":
        excluded = None  # the nodes of a local job are one machine
    rates = {name: float(value) for name, value in options.items()}
    verdict = judge(
        hosts,
        read_reports(folder, hosts),
        rates=rates,
        srun_errors=parse_srun(log),
        excluded=excluded,
    )
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
