"""What a job of 2 nodes × 2 ranks asks of shared file systems until its program begins: with
torchrun and with --launcher srun.

`make cluster`, then `python benchmarks/file_requests.py`; `make bench` does it too. Counted by
strace: system calls that name a path in the run's folder (where hpcrun's programs and records are),
and in the folders of Python and its packages. It exits with 1 where hpcrun's own programs ask more
than AT_MOST.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections import Counter
from pathlib import Path

from cluster import REPO, measure_on_cluster
from measure import Place
from traces import AT_MOST, PROGRAM, TORCHRUN, count_requests, trace_tasks

HPCRUN = str(Path(sysconfig.get_path("scripts"), "hpcrun"))
RUN = "run"
PYTHON = "python"


def main() -> int:
    return measure_on_cluster(__doc__, 1, measure)


def measure(place: Place, _: int) -> int:
    """Trace a job of each launcher, and print the most requests of any process of each part.

    Returns:
        The exit status.
    """
    (place.folder / "rank.py").write_text("print('begun')\n", "ascii")
    print(f"{'requests of one process, the most of':<40}{'run folder':>12}{'Python':>10}")
    met = True
    for launcher in ("torchrun", "srun"):
        for part, most in requests(launcher, place).items():
            limit = AT_MOST.get(part)
            is_met = limit is None or most[RUN] <= limit
            met = met and is_met
            demand = ""
            if limit is not None:
                demand = f"  at most {limit}: {'met' if is_met else 'NOT MET'}"
            print(f"  {launcher + ', ' + part:<38}{most[RUN]:>12,}{most[PYTHON]:>10,}{demand}")
    return 0 if met else 1


def requests(launcher: str, place: Place) -> dict[str, Counter[str]]:
    """Return part of the job → the most requests of one process of it, in each group of folders."""
    trace_tasks(launcher, place.folder, place.folder, REPO)
    options = ["-P", "a100", "--gpus", "4", "--nodes", "2", "--launcher", launcher]
    done = place.run([HPCRUN, "submit", *options, "--wait", "--json", "rank.py"])
    job = json.loads(done.stdout)
    folders = {RUN: [job["folder"], f"{Path(job['folder']).parent}/.programs"]}
    folders[PYTHON] = [f"{prefix}/" for prefix in (sys.prefix, sysconfig.get_path("stdlib"))]
    most: dict[str, Counter[str]] = {}
    for trace in sorted(place.folder.glob(f"{job['job_id']}.*")):
        for part, counts in count_requests(trace, folders).items():
            if part in (*AT_MOST, TORCHRUN, PROGRAM):
                for count in counts:
                    most[part] = most.get(part, Counter()) | count
    return most


if __name__ == "__main__":
    sys.exit(main())
