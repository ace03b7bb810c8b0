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


def query(period_s: float) -> list[str]:
    """Return the command for the GPUs of this job; empty if it has none."""
    env = os.environ
    visible = env.get("CUDA_VISIBLE_DEVICES", "")
    has_some = any(
        env.get(name) for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE")
    )
    if visible == "NoDevFiles" or not (visible or (has_some and "CUDA_VISIBLE_DEVICES" not in env)):
        return []
    # -i does not accept parts of a GPU (MIG-...)
    chosen = ["-i", visible] if visible and "MIG" not in visible else []
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
        self._pid = self._pipe = self._starts = 0
        self._start_at = 0.0
        self._text = b""
        self._last: list[Reading] = []
        self._read_at = float("-inf")
        self._start()

    def read(self) -> list[Reading]:
        """Return the newest reading of each GPU, if it is recent."""
        now = time.monotonic()
        newest = {
            reading[0]: reading for reading in map(parse, self._lines()) if reading is not None
        }
        if newest:
            self._last, self._read_at = [newest[index] for index in sorted(newest)], now
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
        self._pid, self._text = 0, b""

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
    if len(words) != len(FIELDS.split(",")) or not words[0].isdigit() or _number(words[1]) is None:
        return None
    busy, used, total = (_number(cell) or 0.0 for cell in words[1:4])
    return int(words[0]), min(busy / 100, 1.0), int(used) << 20, int(total) << 20, _number(words[4])


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:  # [N/A], [Not Supported], [GPU requires reset]
        return None
    return value if 0 <= value < 1e9 else None
