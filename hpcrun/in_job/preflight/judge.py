"""The judge of a preflight, which decides which nodes are bad.

The command is ``judge.py [--RATE=N ...]``, run once on the first node when the others are done.

It reads the nodes' reports, decides which nodes are bad, writes ``verdict.json`` beside the
reports, prints a table to stderr and one line for the exit record to stdout. Exit status 0: no node
is bad. It uses only the standard library and ``checks.py``.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, in the run's folder
    sys.path.insert(0, str(Path(__file__).parents[1]))
    __package__ = Path(__file__).parent.name
    sys.dont_write_bytecode = True

from .checks import (
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
    srun_errors = srun_errors or {}
    answered = {host: reports[host] for host in hosts if host in reports}
    missing = not_ready(hosts, answered)
    table = {host: check_node(host, answered, rates or {}, missing) for host in hosts}
    faults: dict[str, list[str]] = {host: [] for host in hosts}
    silent = [host for host in hosts if host not in answered and (answered or host in srun_errors)]
    for host in silent:
        faults[host].append(
            "did not respond" + (f": {srun_errors[host]}" if host in srun_errors else "")
        )
        table[host]["port"] = cell(FAILED, "no response")
    problems = [] if answered or silent else ["no node answered"]
    paths = _blame_paths(answered, faults, table)
    _blame_cells(answered, faults, table, problems)
    problems += paths.values()
    if not any(faults.values()) and not problems and len(hosts) > 1:
        problems += _across(answered, missing, [table[host]["across"] for host in hosts])
    bad = {host: "; ".join(reasons) for host, reasons in faults.items() if reasons}
    if (bad or paths) and excluded is not None:
        exclude = ",".join([*filter(None, [excluded]), *bad, *paths])
    else:
        exclude = ""
    return {
        "schema": SCHEMA,
        "ok": not bad and not problems,
        "nodes": [
            {"node": host, "answered": host in answered, "checks": table[host]} for host in hosts
        ],
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
        parts.append(f"no bad node; slow: {listed([item['node'] for item in verdict['slow']])}")
    if verdict["exclude"]:
        parts.append(f"add --exclude={verdict['exclude']}")
    return "preflight: " + ("; ".join(parts) or "all nodes are ok")


def _slow(table: Mapping[str, Mapping[str, Cell]]) -> list[dict[str, str]]:
    """Return the nodes with slow parts; this fails no job."""
    slow = {
        host: [
            f"{LABELS.get(check, check)}: {item['text']}"
            for check, item in row.items()
            if item["mark"] == SLOW
        ]
        for host, row in table.items()
    }
    return [{"node": host, "why": "; ".join(reasons)} for host, reasons in slow.items() if reasons]


def _blame_paths(
    answered: Reports, faults: dict[str, list[str]], table: dict[str, dict[str, Cell]]
) -> dict[str, str]:
    """Find the nodes that explain the failed connections, each time the node with the most of them.

    Returns:
        node → the message for a path that failed although both its ends reach others; excluding the
        node avoids it.
    """
    failed = {
        (source, target): answer["error"]
        for source, report in answered.items()
        for target, answer in report.get("reach", {}).items()
        # a node that does not listen is reason enough
        if "error" in answer
        and target in answered
        and not {"failed", "bind"} & answered[target].keys()
    }
    paths = {}
    order = list(answered)
    while failed:
        count = Counter(host for pair in failed for host in pair)
        into = Counter(target for _, target in failed)
        # among equals the node that is not reached, and of two the one that is not the first
        host = max(order, key=lambda name: (count[name], into[name], order.index(name)))
        mine = {pair: error for pair, error in failed.items() if host in pair}
        failed = {pair: error for pair, error in failed.items() if host not in pair}
        sources = [source for source, target in mine if target == host]
        targets = [target for _, target in mine if target != host]
        error = next(iter(mine.values()))
        reached = any("ms" in report.get("reach", {}).get(host, {}) for report in answered.values())
        if reached and len({*sources, *targets}) == 1:  # in one direction, or in both
            paths[host] = f"{sources[0]} does not reach {host} ({error}); other nodes do"
            table[sources[0]]["port"] = cell(FAILED, f"does not reach {host}")
        elif len(sources) >= len(targets):
            if reached:
                who = f"{listed(sources)} cannot reach"
            else:
                who = "no node reaches"
            faults[host].append(f"{who} its port {answered[host].get('port')} ({error})")
            table[host]["port"] = cell(FAILED, f"not reached: {error}")
        else:
            reaches = any("ms" in answer for answer in answered[host]["reach"].values())
            faults[host].append(
                f"{'does not reach ' + listed(targets) if reaches else 'reaches no other node'} "
                f"({error})"
            )
            table[host]["port"] = cell(FAILED, f"does not reach {listed(targets)}: {error}")
    return paths


def _blame_cells(
    answered: Reports,
    faults: dict[str, list[str]],
    table: dict[str, dict[str, Cell]],
    problems: list[str],
) -> None:
    """Blame nodes for failures on these nodes.

    A failure that is the same on all nodes is not the fault of a node.
    """
    for check in CHECKS:
        if check in ("port", "across"):
            continue
        texts = {
            host: table[host][check]["text"]
            for host in answered
            if table[host][check]["mark"] == FAILED
        }
        alike = next(iter(texts.values()), "")
        # which is the same on every other node
        of_python = "No module named" in alike or "has no CUDA" in alike
        if (
            set(texts) == set(answered)
            and set(texts.values()) == {alike}
            and (len(texts) > 1 or of_python)
        ):
            problems.append(
                f"{LABELS.get(check, check)}: {alike}"
                + (", on every node" if len(texts) > 1 else "")
            )
            continue
        for host, text in texts.items():
            faults[host].append(
                text if check in ("gemm", "names") else f"{LABELS.get(check, check)}: {text}"
            )
    for host, report in answered.items():
        if report.get("bind"):
            faults[host].append(table[host]["port"]["text"])


def _across(answered: Reports, missing: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """Return why the inter-node all-reduce failed.

    If all else is well, the failure is not the fault of a single node.
    """
    lost = [host for host in missing if not answered.get(host, {}).get("late")]
    if lost:
        return [f"{listed(lost)} not ready in time for an all-reduce"]
    if missing:
        texts = []
    else:
        texts = [item["text"] for item in cells if item["mark"] == FAILED]
    return [
        f"the nodes reach each other, but their all-reduce failed: {text}" for text in texts[:1]
    ]


def table_lines(verdict: Mapping[str, Any]) -> list[str]:
    """Return the table as plain text, for the batch log."""
    rows = [["node", *(LABELS.get(check, check) for check in CHECKS)]]
    for node in verdict["nodes"]:
        cells = (node["checks"][check] for check in CHECKS)
        rows.append([node["node"], *(f"{item['mark']} {item['text']}".strip() for item in cells)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  ".join(f"{text:<{width}}" for text, width in zip(row, widths)).rstrip() for row in rows
    ]


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
    """Return node → why srun could not start its task there."""
    refused = re.findall(r"srun: error: Task launch for \S+ failed on node (\S+): (.+)", text)
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
    # the nodes of a local job are one machine
    if os.environ.get("HPCRUN_NODE_ADDR") == "127.0.0.1":
        excluded = None
    else:
        excluded = options.pop("exclude", "")
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
