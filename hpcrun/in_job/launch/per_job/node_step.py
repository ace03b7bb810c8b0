"""A step on the nodes of a job, beside the step of the ranks, whose lines the head node reads.

On the head node, ``NodeStep`` starts a part of this program on each node: by srun, or as one
process if the "nodes" are this machine. A node writes lines ``NODE KIND TEXT`` with ``tell``. Its
first line says that it is ready to work, or has nothing to do; a line of the kind ``DONE`` or
``FAILED`` that it has ended its work. Other kinds are the part's own.

When each node has written a line, the nodes work, at most ``AT_ONCE`` at a time, so that the shared
storage is not flooded: the head node writes a growing number to the stdin of all, and a node works
when the number is above its own (``wait_for_turn``). Then the head node may write one last word for
all nodes (``write_last_word``, ``wait_for_last_word``). It also reaches nodes that still wait for
their turn.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import slurm_requests
from ..processes import launch_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

AT_ONCE = 16
"""The nodes that work at a time: more would only slow each other down at a usual file server."""
DONE = "done"
FAILED = "failed"
"""The kinds of a node's last line."""
HERE = os.environ.get("SLURMD_NODENAME", os.uname().nodename)
"""The name of this node."""

# --- the head node -------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeLine:
    """One line of a node."""

    node: str
    kind: str
    text: str


class NodeStep:
    """The step, from ``with`` to its end.

    Args:
        nodes: the nodes of the step; of one on this machine, ``HERE``.
        arguments: the part of this program that runs on each node, and its arguments. A node that
            fails while the others have to go on ends with status 0: with KillOnBadExit=1 of
            slurm.conf(5), srun would kill the others.

    Attributes:
        done: the number of nodes that have reported ``DONE``.
        is_late: the time of ``end_after`` was over before the step.
    """

    def __init__(self, nodes: list[str], arguments: list[str]) -> None:
        self.done = 0
        self.is_late = False
        self._timer: threading.Timer | None = None
        self._nodes = nodes
        self._ready: set[str] = set()
        self._limit = 0
        argv: list[str] = []
        env = dict(os.environ)
        if not is_local():
            argv, env = slurm_requests.small_step(*nodes)
            argv.append("--kill-on-bad-exit=1")  # the others would wait for a node that is killed
        self._process = subprocess.Popen(
            [*argv, *launch_program(), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
            text=True,
            bufsize=1,
        )

    def __enter__(self) -> NodeStep:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer:
            self._timer.cancel()
        self._process.terminate()
        with suppress(BrokenPipeError), self._process:  # closes its pipes, and waits
            pass

    def end_after(self, seconds: float) -> None:
        """End the step if it still runs after so long."""
        self._timer = threading.Timer(seconds, self._end_late)
        self._timer.start()

    def _end_late(self) -> None:
        self.is_late = True
        self._process.terminate()

    def reports(self) -> Iterator[NodeLine]:
        """Yield what the nodes report, until the step ends, and let the next nodes work."""
        for text in self._process.stdout or ():
            words = text.rstrip("\n").split(" ", 2)
            if len(words) < 3 or words[0] not in self._nodes:
                continue  # of a site's TaskProlog, as slurm.conf(5) has it
            line = NodeLine(*words)
            self._ready.add(line.node)
            if line.kind == DONE:
                self.done += 1
            yield line
            if self.are_all_ready() and AT_ONCE + self.done > self._limit:
                self._limit = AT_ONCE + self.done
                self._write(str(self._limit))

    def are_all_ready(self) -> bool:
        """Whether each node has reported something."""
        return len(self._ready) >= len(self._nodes)

    def write_last_word(self, order: str) -> None:
        """Write a word, which is no number, for all nodes."""
        self._write(order)

    def wait(self) -> int:
        """Return the exit status of the step, when it has ended."""
        return self._process.wait()

    def _write(self, order: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the last nodes have ended
            self._process.stdin.write(f"{order}\n")


# --- each node -----------------------------------------------------------------------------------


def tell(kind: str, text: object) -> None:
    """Write a line for the head node, also if the text has several, or bytes of a file's name."""
    line = " ".join(str(text).splitlines()).encode("utf-8", "replace").decode()
    sys.stdout.write(f"{HERE} {kind} {line}\n")
    sys.stdout.flush()


def tell_failure(error: Exception) -> None:
    """Tell the head node why this node cannot do its work."""
    tell(FAILED, error)


def wait_for_turn() -> str:
    """Wait until this node may work.

    Returns:
        The last word, if it came before the turn of this node; otherwise the empty string.

    Raises:
        SystemExit: the head node has ended.
    """
    number = 0 if is_local() else int(os.environ["SLURM_PROCID"])
    order = _next_order()
    while order.isdecimal():
        if int(order) > number:
            return ""
        order = _next_order()
    return order


def wait_for_last_word() -> str:
    """Return the last word of the head node, after this node has reported its end.

    Raises:
        SystemExit: the head node has ended.
    """
    order = _next_order()
    while order.isdecimal():
        order = _next_order()
    return order


def _next_order() -> str:
    line = sys.stdin.readline()
    if not line:
        sys.exit(1)
    return line.strip()


def is_local() -> bool:
    """Whether the job's "nodes" are this machine."""
    return os.environ["HPCRUN_JOB_ID"].startswith("L")


# --- texts ---------------------------------------------------------------------------------------


def count(number: int, noun: str) -> str:
    """Return a number with its noun, as ``1 node`` or ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def megabytes(size: float) -> str:
    """Return a number of bytes as ``1,234 MB``."""
    return f"{size / 1e6:,.0f} MB"
