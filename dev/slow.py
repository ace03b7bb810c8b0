"""Where the time of the last `make test` went: the modules and the tests that took longest, from
its record.

A module runs in one worker, so that one that takes long keeps all others waiting at the end.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

RECORD = Path(__file__).resolve().parents[1] / ".pytest_cache" / "last.xml"
MOST = 20


def main() -> int:
    try:
        cases = list(ElementTree.parse(RECORD).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        print(f"there is no record of a whole `make test`: {error}", file=sys.stderr)
        return 1
    tests = Counter(
        {
            f"{case.get('classname')}::{case.get('name')}": float(case.get("time") or 0)
            for case in cases
        }
    )
    modules: Counter[str] = Counter()
    for name, seconds in tests.items():
        modules[name.partition("::")[0]] += seconds
    console = Console()
    for what, times in (("module", modules), ("test", tests)):
        table = Table(
            title=f"{len(times)} {what}s, {sum(times.values()):.0f} s in all workers", box=None
        )
        table.add_column("s", justify="right")
        table.add_column(what, no_wrap=True)
        for name, seconds in times.most_common(MOST):
            table.add_row(f"{seconds:.1f}", name)
        console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
