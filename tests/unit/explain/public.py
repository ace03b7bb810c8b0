"""Failures and healthy logs in the wording of public issue threads, and whether explain is right
about each.

Each file of tests/data/explain/public holds one; docs/explain.md says how they were gathered.
``python -m tests.unit.explain.public SET`` prints the scores of a set, and with ``-v`` what was
said of the cases it got wrong.
"""

from __future__ import annotations

import functools
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from hpcrun.explain.diagnosis.launcher_lines import without_lead
from hpcrun.explain.ended import Explanation
from tests.unit.builders import write
from tests.unit.explain.written import explained, of_log, write_records

PUBLIC = Path(__file__).resolve().parents[2] / "data/explain/public"
UNKNOWN = "unknown"
"""The rank of a case whose log does not tell which rank failed: a name would be a guess."""
_SHOWN = 200
"""Characters of a line that are compared: a line of evidence is cut."""


@dataclass(frozen=True)
class Public:
    """A case, as its file says; see docs/explain.md for the keys."""

    name: str
    said: dict[str, Any]

    @property
    def healthy(self) -> bool:
        """Whether nothing failed that its words speak of."""
        return bool(self.said["healthy"])


@dataclass(frozen=True)
class Verdict:
    """What explain said of a case.

    Attributes:
        right: it shows the line that states the cause first, or says its words.
        wrong: it claims another cause: a rule that knows another line, or a line known as a decoy.
        rank: whether it names the right rank; None where the case has none.
        silent: whether it names no rank, where the log does not tell which one failed; None in the
            other cases.
    """

    case: Public
    said: Explanation
    right: bool
    wrong: bool
    rank: bool | None
    silent: bool | None = None

    @property
    def recorded(self) -> bool:
        """Whether the ranks left logs and records of their own, as under hpcrun."""
        return any(name != "batch" for name in self.case.said["logs"])


@functools.cache
def load_public(folder: Path) -> list[Public]:
    """Return the cases of a set, by name."""
    reader = YAML(typ="safe")
    return [
        Public(path.stem, reader.load(path.read_text("utf-8")))
        for path in sorted(folder.glob("*.yaml"))
    ]


def write_public(case: Public, folder: Path) -> None:
    """Write the folder of a case's run, as hpcrun leaves one; of a healthy one, of a run whose
    failure no log names.
    """
    logs, world = case.said["logs"], case.said["world"]
    state = "FAILED" if case.healthy else case.said["state"]
    attempt = write_records(
        folder,
        state,
        nodes=world["nodes"],
        per_node=world["per_node"],
        status=1,
        ended_s=1700.0,
        node="node{}",
    )
    for name, text in {
        "batch": "hpcrun: job 4711 on node1, rendezvous node1:24711\n",
        **logs,
    }.items():
        write(folder / "batch.log" if name == "batch" else attempt / f"rank-{name}", text)
    if any(name != "batch" for name in logs):
        for place, (rank, status) in enumerate(case.said["ended"].items()):
            end = {"rank": rank, "node": f"node{1 + rank // world['per_node']}", "status": status}
            (attempt / f"rank-{rank}.exit").write_text(
                json.dumps({**end, "ended": 1600.0 + 8 * place})
            )


def judge_log(case: Public) -> Verdict:
    """Explain the only log of a case, as ``hpcrun explain --log FILE`` does, and say whether that
    is right.
    """
    return verdict(case, of_log(case.said["logs"]["batch"], f"{case.name}.log"))


def verdict(case: Public, said: Explanation) -> Verdict:
    """Say whether what explain says of a case is right."""
    first = next((item for item in said.evidence if item.lines), None)
    shown = [said.summary, *(first.lines if first else ())]
    right = any(_has(shown, key) for key in case.said["key"])
    decoy = not right and any(_has(shown, line) for line in case.said["not"])
    wrong = (
        said.rule is not None if case.healthy else not right and (said.rule is not None or decoy)
    )
    alone = case.said["world"]["nodes"] * case.said["world"]["per_node"] == 1
    wanted = None if case.healthy or alone else case.said["rank"]
    if wanted == UNKNOWN:
        return Verdict(case, said, right, wrong, None, silent=said.rank is None)
    return Verdict(case, said, right, wrong, None if wanted is None else said.rank == wanted)


def _has(shown: Sequence[str], key: str) -> bool:
    wanted = " ".join(without_lead(key)[0].split())[:_SHOWN]
    return any(
        wanted in " ".join(line.split()) or _cut(wanted, " ".join(line.split())) for line in shown
    )


def _cut(wanted: str, line: str) -> bool:
    """Whether a line was cut within the words that are wanted."""
    head = line.rpartition("…")[0]
    at = head.find(wanted[:40])
    return at >= 0 and wanted.startswith(head[at:])


def judge_set(folder: Path) -> list[Verdict]:
    """Explain every case of a set by the shipped rules, and say whether that is right."""
    verdicts = []
    with tempfile.TemporaryDirectory() as name:
        for case in load_public(folder):
            write_public(case, Path(name, case.name))
            verdicts.append(verdict(case, explained(Path(name, case.name))))
    return verdicts


def scores(verdicts: Sequence[Verdict]) -> dict[str, str]:
    """Return the scores, each as ``90.0 % (270 of 300)``."""
    failures = [one for one in verdicts if not one.case.healthy]
    ranked = [one for one in failures if one.rank is not None]
    counts: dict[str, Sequence[bool | None]] = {
        "cause named first": [one.right for one in failures],
        "a wrong cause claimed": [one.wrong for one in failures],
        "the rank right": [one.rank for one in ranked],
        "the rank right, of those with records": [one.rank for one in ranked if one.recorded],
        "a rank named that cannot be known": [
            not one.silent for one in failures if one.silent is not None
        ],
        "healthy logs with a claim": [one.wrong for one in verdicts if one.case.healthy],
    }
    return {
        name: f"{100 * sum(map(bool, marks)) / max(1, len(marks)):.1f} % ({sum(map(bool, marks))} "
        f"of {len(marks)})"
        for name, marks in counts.items()
    }


def main() -> None:
    """Print the scores of a set."""
    verdicts = judge_set(PUBLIC / sys.argv[1])
    for name, score in scores(verdicts).items():
        print(f"{name:<38} {score}")
    for one in verdicts if "-v" in sys.argv else ():
        if (
            one.wrong
            or not (one.right or one.case.healthy)
            or one.rank is False
            or one.silent is False
        ):
            case = one.case.said
            print(
                f"\n{one.case.name}  [{case['kind']}] rank {case['rank']}, not {one.said.rank}\n   "
                f" key  {case['key']}"
            )
            print(f"    said {one.said.rule}: {one.said.summary}")
            for item in one.said.evidence[:2]:
                print(f"         {item.who} {item.where}: {' | '.join(item.lines)[:300]}")


if __name__ == "__main__":
    main()
