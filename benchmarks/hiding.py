"""What hiding secrets costs, and how often it is wrong: `python benchmarks/hiding.py [--gigabytes
N]`.

A long log of training, the real logs of tests/data/explain, and the texts that share and messages
really hide. It exits with 1 where a demand is not met: nothing is hidden in the logs, which have no
secrets; a gigabyte takes 30 minutes at most; the largest page of `share` 5 s, and a line of a
message 5 ms.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from hpcrun.job.text.hide_secrets import SecretHider

LOGS = Path(__file__).resolve().parents[1] / "tests/data/explain"
ENV = {"HF_TOKEN": "hf_" + "a1B2" * 8, "WANDB_API_KEY": "0123456789" * 4, "PLAIN": "correct horse"}
GIGABYTE_AT_MOST_S, PAGE_AT_MOST_S, LINE_AT_MOST_S = 1800.0, 5.0, 0.005
PAGE = 2 << 20
"""Bytes of the texts of the largest page: ends of logs, script and diff."""
LINE = (
    "RuntimeError: CUDA error: an illegal memory access was encountered at train.py:112, rank "
    "3 "
    "on node-7"
)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gigabytes",
        type=float,
        default=0.02,
        metavar="N",
        help="size of the long log (default 0.02)",
    )
    options = parser.parse_args()
    steps = "".join(
        f"2026-01-01 00:00:00,{i % 1000:03d} INFO step {i:09d} loss 0.123456 lr 1.0e-03\n"
        for i in range(16000)
    )
    texts = [
        path.read_bytes().decode("utf-8", "replace")
        for path in sorted(LOGS.rglob("*"))
        if path.is_file()
    ]
    real = "\n".join(texts)
    parts = max(1, round(options.gigabytes * 1e9 / len(steps)))
    long_s = seconds(steps, parts) / (parts * len(steps)) * 1e9
    real_s = seconds(real, 1) / len(real) * 1e9
    page_s, line_s = seconds(real[:PAGE].ljust(PAGE), 1), seconds(LINE, 1000) / 1000
    wrong = sum(SecretHider(ENV, ["PLAIN"]).hide(text) != text for text in texts)
    print(f"a log of training, 1 GB   {long_s:8.0f} s")
    print(f"logs of programs, 1 GB    {real_s:8.0f} s")
    print(f"the largest page          {page_s:8.2f} s")
    print(f"a line of a message       {line_s * 1000:8.2f} ms")
    print(f"wrong                     {wrong:8d} of {len(texts)} logs ({len(real) / 1e6:.1f} MB)")
    slow = (
        max(long_s, real_s) > GIGABYTE_AT_MOST_S
        or page_s > PAGE_AT_MOST_S
        or line_s > LINE_AT_MOST_S
    )
    return 1 if wrong or slow else 0


def seconds(text: str, times: int) -> float:
    """Return how long a hider takes that knows three values, after its first text."""
    hider = SecretHider(ENV, ["PLAIN"])
    hider.hide(LINE)
    start = time.process_time()
    for _ in range(times):
        hider.hide(text)
    return time.process_time() - start


if __name__ == "__main__":
    sys.exit(main())
