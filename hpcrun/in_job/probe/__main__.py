"""Print what each rank of this node is doing.

The command is ``python -I -S -B .../probe/__main__.py FOLDER [PY_SPY]``.

FOLDER is the attempt's. No rank is stopped, and no rank is signalled that has not asked for it: see
``rank_processes``.

Each answer is a JSON object, compressed and printed in lines of ``hpcrun-stacks NODE NUMBER
PART/PARTS TEXT``: srun passes on longer lines in pieces, and lines of a site's own may stand
between them.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import zlib
from itertools import chain

if __package__ is None or __package__ == "":
    _folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(_folder))
    __package__ = os.path.basename(_folder)

from .nccl_ras import address_of, is_theirs, own_address, reports
from .rank_processes import RankReading, find_processes, in_threads, program_of, ranks_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .rank_processes import Process

WITHIN_S = 5.0
"""After this time the program prints what it knows and ends, even if /proc or py-spy does not
respond.
"""
SCAN_S = 1.5
"""The time to find the processes: /proc may not respond for one that hangs in the kernel."""
SAMPLE_S = 0.5
"""The time over which it is measured how busy a rank is."""
RAS_S = 4.0
END_S = 0.2
"""The time before the end in which no py-spy runs any more: none is left behind."""
PART = 700
"""The characters of a part: slurmstepd sends at most 1,024 bytes of a line at once."""
MOST_ANSWER = 8 << 20
MOST_PRINTED = 2 << 20
"""The bytes of an answer, and the characters that a node prints: a stack beyond them is left out.
"""
TOO_LONG = "its stack is too long"


def main(arguments: list[str]) -> int:
    """Print what the ranks of this node are doing; return 0."""
    folder = arguments[0]
    py_spy = arguments[1] if len(arguments) > 1 else ""
    until = time.monotonic() + WITHIN_S
    node = os.environ.get("SLURMD_NODENAME", "")
    processes = find_processes(folder, node, time.monotonic() + SCAN_S)
    answers: list[dict[str, Any]] = [{"node": node}]
    ranks = []
    for rank, of_rank in sorted(processes.items()):
        for number, of_inner in ranks_within(rank, of_rank).items():
            ranks.append(RankReading(number, of_inner, py_spy, until - END_S))
    before = [reading.busy_s() for reading in ranks]
    begun = time.monotonic()
    from_ras: list[str] = []
    calls = [lambda: from_ras.extend(ras_reports(processes, until))]
    calls += [reading.observe for reading in ranks]
    in_threads(calls, until)
    answers[0]["ras"] = list(from_ras)
    time.sleep(max(0.0, min(until, begun + SAMPLE_S) - time.monotonic()))
    elapsed = max(0.05, time.monotonic() - begun)
    for reading, busy_s in zip(ranks, before):
        reading.answer["busy"] = min(1.0, round((reading.busy_s() - busy_s) / elapsed, 2))
        answers.append(dict(reading.answer))
    left = MOST_PRINTED
    for number, answer in enumerate(answers):
        left -= print_answer(node or "-", number, answer, left)
    return 0


def ras_reports(processes: dict[int, list[Process]], until: float) -> list[str]:
    """Return what NCCL's RAS says of the job, on the node of rank 0.

    The report of this node is about all processes.
    """
    if 0 not in processes:
        return []
    address = address_of(program_of(processes[0]).env)
    if address is None:
        return []
    _, port = address
    if not is_theirs(port, [process.pid for process in chain(*processes.values())]):
        return []
    here = own_address(address)
    if here:
        return reports(here, min(RAS_S, until - time.monotonic()))
    return []


def print_answer(node: str, number: int, answer: dict[str, Any], most: int) -> int:
    """Print an answer in short lines, and return the number of its characters.

    The stacks are left out if the answer is too long.
    """
    record = json.dumps(answer).encode()
    text = base64.b64encode(zlib.compress(record)).decode()
    if "stack" in answer and (len(record) > MOST_ANSWER or len(text) > most):
        short = {**answer, "lacks": TOO_LONG}
        for name in ("how", "stack", "workers"):
            short.pop(name, None)
        return print_answer(node, number, short, most)
    parts = [text[start : start + PART] for start in range(0, len(text), PART)]
    for place, part in enumerate(parts):
        sys.stdout.write(f"hpcrun-stacks {node} {number} {place}/{len(parts)} {part}\n")
    sys.stdout.flush()
    return len(text)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)  # a thread may hang
