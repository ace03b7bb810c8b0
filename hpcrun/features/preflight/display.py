"""The table of a preflight: one line per node, one column per check; and its JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpcrun.preflight.checks import CHECKS
from hpcrun.views.text import one_line, text_table

if TYPE_CHECKING:
    from rich.table import Table

    from hpcrun.features.preflight.preflight_wait import PreflightResult

_COLOURS = {"ok": "green", "slow": "yellow", "FAILED": "red"}
_HEADINGS = (
    "NODE",
    "DNS",
    "PORT",
    "CLOCK",
    "SHM",
    "GEMM",
    "INTRA-NODE\nALL-REDUCE",
    "INTER-NODE\nALL-REDUCE",
    "ERRORS",
)
_ROOMY, _SHORT = 120, 10
"""From this width on all texts are shown; on a narrower terminal only texts of up to this many characters."""


def preflight_table(result: PreflightResult, width: int) -> Table:
    """Return the table for a terminal; on a narrow one, what is long and wrong is left to the lines below it."""
    from rich.text import Text

    def cell(mark: str, text: str) -> Text:
        if mark in ("slow", "FAILED") and len(text) > _SHORT and width < _ROOMY:
            text = ""
        return Text.assemble((mark, _COLOURS.get(mark, "")), one_line(f" {text}" if text else ""))

    rows = ((node["node"], *(cell(**node["checks"][check]) for check in CHECKS)) for node in result.verdict["nodes"])
    return text_table(_HEADINGS, rows, whole=("NODE",))


def preflight_lines(result: PreflightResult) -> list[str]:
    """Return the verdict as text, with one line for each bad node."""
    verdict = result.verdict
    alike: dict[str, list[str]] = {}
    for item in verdict["slow"]:
        alike.setdefault(item["why"], []).append(item["node"])
    slow = [f"slow: {', '.join(nodes)} ({why})" for why, nodes in alike.items()]
    if verdict["ok"]:
        return [*map(one_line, slow), "no bad node" if slow else "all nodes are ok"]
    lines = [f"bad: {item['node']} ({item['why']})" for item in verdict["bad"]]
    lines += [f"bad: {problem}" for problem in verdict["problems"]]
    return [one_line(line) for line in (*slow, *lines)]


def preflight_json(result: PreflightResult) -> dict[str, Any]:
    """Return the verdict as a JSON document."""
    run = result.item.run
    kept = {key: value for key, value in result.verdict.items() if key != "schema"}
    return {
        "kind": "preflight",
        "run_id": run.run_id,
        "job_id": run.job_id,
        "folder": str(result.item.folder),
        **kept,
    }
