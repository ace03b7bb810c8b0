"""The GPUs of a job on one node, as a single nvidia-smi reports their use.

This nvidia-smi reports the GPUs again and again into a pipe.

To start nvidia-smi for each sample would cost more than all else, since it loads the driver's
library and opens every GPU each time. In this process that library (NVML) could hang: a call waits
for the driver, and a GPU that has failed does not respond. A process that hangs is only never read,
and killed at the end without being waited for.
"""

from __future__ import annotations

import os
import signal
import time

from .processes import HEARD, send, try_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    Reading = tuple[int, float, int, int, "float | None"]
    """Index, busy share, memory in use and in all in bytes, watts."""

FIELDS = "index,utilization.gpu,memory.used,memory.total,power.draw"
MOST_STARTS = 5
STALE = 3
"""A reading counts for this many periods, since the two clocks are not in step."""
_MOST_TEXT = 1 << 16
_OF_SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE")
"""Variables of which one is set if the job has GPUs."""


def query(period_s: float) -> list[str]:
    """Return the command for the GPUs of this job; empty if it has none."""
    env = os.environ
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if visible is None and not any(env.get(name) for name in _OF_SLURM):
        return []
    if visible in ("", "NoDevFiles"):
        return []
    chosen = []
    if visible and "MIG" not in visible:  # -i does not accept parts of a GPU (MIG-...)
        chosen = ["-i", visible]
    return [
        "nvidia-smi",
        *chosen,
        f"--query-gpu={FIELDS}",
        "--format=csv,noheader,nounits",
        f"--loop-ms={int(period_s * 1000)}",
    ]


class Gpus:
    """The readings of this node's GPUs; none if there is no nvidia-smi."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._command = query(period_s)
        self._pid = 0
        self._pipe = 0
        self._starts = 0
        self._start_at = 0.0
        self._text = b""
        self._last: list[Reading] = []
        self._read_at = float("-inf")
        self._start()

    def read(self) -> list[Reading]:
        """Return the newest reading of each GPU, if it is recent."""
        now = time.monotonic()
        newest = {}
        for line in self._lines():
            reading = parse(line)
            if reading is not None:
                newest[reading[0]] = reading
        if newest:
            self._last = [newest[index] for index in sorted(newest)]
            self._read_at = now
        if self._pid and os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG) is not None:
            self._forget()
        if not self._pid and now >= self._start_at:
            self._start()
        if now - self._read_at < STALE * self._period_s:
            return self._last
        return []

    def end(self) -> None:
        """Kill nvidia-smi; does not wait for it, since it may not even respond to SIGKILL."""
        if self._pid:
            send(self._pid, signal.SIGKILL, group=True)
            os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
            self._forget()
        self._command = []

    def _start(self) -> None:
        """Start it with the signals blocked that Slurm may send to every process of the step."""
        if not self._command or self._starts >= MOST_STARTS:
            return
        self._starts += 1
        self._start_at = time.monotonic() + 6 * self._period_s * self._starts
        self._pipe, end = os.pipe()
        try:
            # the pipe's own name: the descriptor itself is closed when the program starts
            out = f"/proc/self/fd/{end}"
            self._pid, _ = try_start(
                self._command, os.environ, out=out, err=os.devnull, own_group=True, blocked=HEARD
            )
        finally:
            os.close(end)
        os.set_blocking(self._pipe, False)
        if not self._pid:
            os.close(self._pipe)
            self._command = []  # there is none on this node

    def _forget(self) -> None:
        os.close(self._pipe)
        self._pid = 0
        self._text = b""

    def _lines(self) -> list[str]:
        if not self._pid:
            return []
        try:
            self._text += os.read(self._pipe, _MOST_TEXT)
        except BlockingIOError:
            return []
        whole, newline, rest = self._text.rpartition(b"\n")
        self._text = rest if newline or len(rest) < _MOST_TEXT else b""
        return whole.decode("ascii", "replace").splitlines()


def parse(line: str) -> Reading | None:
    """Read one line of nvidia-smi; None for another line.

    The result is None, too, for a GPU that does not report how busy it is (MIG).
    """
    words = [cell.strip() for cell in line.split(",")]
    if len(words) != len(FIELDS.split(",")):
        return None
    index, *numbers = words
    busy, used, total, watts = map(_number, numbers)
    if not index.isdigit() or busy is None:
        return None
    return int(index), min(busy / 100, 1.0), int(used or 0) << 20, int(total or 0) << 20, watts


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # [N/A], [Not Supported], [GPU requires reset]
        return None
    return value if 0 <= value < 1e9 else None
