"""How fast ``hpcrun top`` is with 1,000 runs and 10,000 elements: its first frame with rows, and
its answer to a key.

A key alone, Esc, takes a tenth of a second longer: a terminal sends other keys as Esc and more, and
textual waits for them. `make cluster`, then `python benchmarks/top.py`. It exits with 1 where a
demand is not met.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pexpect
import pyte
from cluster import NoClusterError, cancel_jobs, cluster_env, cluster_to_oneself
from measure import CommandFailedError, Place
from status import HPCRUN, NAME, held_job, make_runs, run_id, verdict

from hpcrun.runs.elements import save_statuses
from hpcrun.runs.record import LastStatus, Run, run_to_json, status_to_json
from hpcrun.runs.store import RunStore
from hpcrun.schedulers.slurm_text import parse_cluster_name

LIVE, FINISHED, SWEEPS, ELEMENTS = 50, 850, 100, 100
FRAME_WITHIN_S, KEY_WITHIN_S, KEYS_FOR_S = 0.5, 0.05, 0.4
SIZES = ((24, 80), (40, 140))
KEYS = (
    ("down", "j"),
    ("a screen down", "\x1b[6~"),
    ("last row", "G"),
    ("filter, first letter", "/t"),
    ("filter, more letters", "r"),
    ("end of the filter", "\r"),
    ("no filter", "/\x15\r"),
    ("sort by state", "S"),
    ("sort by name", "N"),
    ("group", "b"),
    ("first row", "g"),
    ("mark", " "),
    ("refresh", "R"),
)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=5, metavar="N", help="how often each is timed (default 5)"
    )
    options = parser.parse_args()
    try:
        slurm = cluster_env()
        with cluster_to_oneself(), tempfile.TemporaryDirectory(prefix="hpcrun-bench-") as name:
            place = Place(Path(name), {**os.environ, **slurm})
            try:
                store = RunStore(Path(name) / "runs")
                cluster = parse_cluster_name(Path(place.env["SLURM_CONF"]).read_text("utf-8"))
                make_runs(
                    store,
                    [held_job(place) for _ in range(LIVE)],
                    finished=FINISHED,
                    cluster=cluster,
                )
                make_sweeps(store, cluster)
                env = {**place.env, "HPCRUN_RUNS": str(store.root), "TERM": "xterm-256color"}
                met = [measure(env, size, options.rounds) for size in SIZES]
            finally:
                cancel_jobs(NAME, place)
    except (NoClusterError, CommandFailedError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if all(met) else 1


def make_sweeps(store: RunStore, cluster: str | None) -> None:
    """Write the folders of sweeps that are over."""
    one = Run(
        run_id="",
        name="sweep",
        scheduler="slurm",
        cluster=cluster,
        host=os.uname().nodename,
        created_s=time.time(),
        job_id=None,
        profile="a100",
        nodes=1,
        gpus_per_node=1,
        world_size=1,
        walltime_s=3600,
        request={"sweep": [[["lr", f"{number / 1000}"]] for number in range(ELEMENTS)]},
        plan={"sweep": {"indices": f"0-{ELEMENTS - 1}", "first": 0}},
    )
    over = LastStatus("COMPLETED", time.time(), final=True, elapsed_s=61, exit_status=0)
    for number in range(SWEEPS):
        run = replace(
            one, run_id=run_id(14, number).replace("train", "sweep"), job_id=str(2 * 10**8 + number)
        )
        folder = store.folder(run.run_id)
        folder.mkdir(mode=0o700)
        (folder / "run.json").write_text(run_to_json(run), "utf-8")
        (folder / "status.json").write_text(status_to_json(over), "utf-8")
        save_statuses(folder, dict.fromkeys(range(ELEMENTS), over))


class Watched:
    """A program on a terminal, and the screen as it draws it."""

    def __init__(self, env: dict[str, str], size: tuple[int, int]) -> None:
        self.screen = pyte.Screen(size[1], size[0])
        self._stream = pyte.ByteStream(self.screen)
        self.began = time.perf_counter()
        self.child = pexpect.spawn(HPCRUN, ["top"], env=env, dimensions=size)
        self.child.delaybeforesend = None  # pexpect waits for 50 ms before it types

    def cpu_s(self) -> float:
        """Return the CPU time it has used, proc(5): it tells more than the clock where other
        programs run too.
        """
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def read(
        self, seconds: float, done: Callable[[str], bool] = lambda _: False
    ) -> tuple[list[float], int]:
        """Read for a while, or until the screen shows something; returns when bytes came, and how
        many.
        """
        times, number, end = [], 0, time.perf_counter() + seconds
        while (left := end - time.perf_counter()) > 0:
            try:
                data = self.child.read_nonblocking(65536, timeout=left)
            except pexpect.TIMEOUT:
                break
            times.append(time.perf_counter())
            number += len(data)
            self._stream.feed(data)
            if done("\n".join(self.screen.display)):
                break
        return times, number


def measure(env: dict[str, str], size: tuple[int, int], rounds: int) -> bool:
    """Time the start and the keys on a terminal of a size; returns whether the demands are met."""
    frames: list[float] = []
    cpu: list[float] = []
    answers: dict[str, list[float]] = {name: [] for name, _ in KEYS}
    sent: dict[str, list[int]] = {name: [] for name, _ in KEYS}
    for number in range(rounds + 1):
        top = Watched(env, size)
        times, _ = top.read(30, lambda text: text.count("PENDING") + text.count("COMPLETED") > 10)
        if number:  # the first one warms up
            frames.append(times[-1] - top.began)
            cpu.append(top.cpu_s())
        top.read(4)  # it has asked Slurm, and made all rows
        for name, keys in KEYS:
            before = time.perf_counter()
            top.child.send(keys)
            times, count = top.read(KEYS_FOR_S)
            if not times:
                raise CommandFailedError(f"no answer to {name}:\n" + "\n".join(top.screen.display))
            answers[name].append(times[0] - before)
            sent[name].append(count)
        top.child.send("q")
        top.child.expect(pexpect.EOF, timeout=10)
    runs, elements = LIVE + FINISHED + SWEEPS, SWEEPS * ELEMENTS
    print(f"hpcrun top, {runs:,} runs, {elements:,} elements, terminal {size[1]}×{size[0]}")
    print(f"  CPU time until the first frame {statistics.median(cpu) * 1000:.0f} ms")
    return _say(frames, answers, sent)


def _say(
    frames: Sequence[float], answers: dict[str, list[float]], sent: dict[str, list[int]]
) -> bool:
    frame, worst = statistics.median(frames), max(map(statistics.median, answers.values()))
    print(f"  first frame with rows {frame * 1000:>10.0f} ms, slowest {max(frames) * 1000:.0f}")
    for name, times in answers.items():
        slowest, bytes_ = max(times) * 1000, statistics.median(sent[name])
        print(
            f"  {name:<24}{statistics.median(times) * 1000:>8.0f} ms, slowest {slowest:.0f}; "
            f"{bytes_:.0f} bytes"
        )
    met = frame <= FRAME_WITHIN_S and worst <= KEY_WITHIN_S
    print(
        f"  demanded: {FRAME_WITHIN_S * 1000:.0f} ms, and {KEY_WITHIN_S * 1000:.0f} ms for each "
        f"key, {verdict(met)}"
    )
    return met


if __name__ == "__main__":
    sys.exit(main())
