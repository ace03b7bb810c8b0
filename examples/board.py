"""TensorBoard for the examples: with ``--tensorboard``, the first rank writes the numbers of each
epoch for it.

``hpcrun open --tensorboard RUN`` shows them. Without the option, nothing of TensorBoard is imported
or needed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib.util import find_spec

from hpcrun_runtime import checkpoint_dir  # every job of hpcrun finds it


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--tensorboard``."""
    parser.add_argument(
        "--tensorboard", action="store_true", help="write the numbers of each epoch for TensorBoard"
    )


def open_board(wanted: bool, rank: int = 0) -> Callable[..., None]:
    """Return what writes a step's numbers by their names, into the folder of checkpoints:
    ``write(3, loss=0.5)``.

    Args:
        wanted: whether ``--tensorboard`` is given; without it, and on all ranks but the first,
            nothing is written.

    Raises:
        SystemExit: a package is missing; on all ranks, so that none waits for another.
    """
    missing = [
        package for package in ("tensorboard", "torch") if wanted and find_spec(package) is None
    ]
    if missing:
        raise SystemExit(
            f"--tensorboard needs {missing[0]}: python -m pip install {' '.join(missing)}"
        )
    if not wanted or rank:
        return lambda _, **__: None

    from torch.utils.tensorboard import SummaryWriter

    board = SummaryWriter(checkpoint_dir() / "tensorboard")

    def write(step: int, /, **numbers: float) -> None:
        for name, number in numbers.items():
            board.add_scalar(name, number, step)
        board.flush()  # a job may be killed at any time

    return write
