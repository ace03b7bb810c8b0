"""The number of nodes of a job: one, or several of which Slurm chooses one. Pure."""

from __future__ import annotations

import re

from hpcrun.job.request.options import MOST, whole_number
from hpcrun.job.request.parameters import parse_indices

_read_count = whole_number(1, MOST)


class NodeChoice(int):
    """Several numbers of nodes, of which Slurm chooses one; as a number it is the largest.

    The text is as sbatch's ``--nodes`` has it: ``2-4``, or ``2,4,8`` and ``1-15:4`` (Slurm 23.11).
    """

    fewest: int
    text: str

    def __new__(cls, text: str) -> NodeChoice:
        """Read a text.

        Raises:
            ValueError: the text has another form.
        """
        numbers = parse_indices(text)
        choice = super().__new__(cls, numbers[-1])
        choice.fewest = numbers[0]
        choice.text = text
        return choice

    def __str__(self) -> str:
        return self.text


def read_nodes(value: object) -> int:
    """Return a number of nodes, or several from which Slurm chooses.

    Raises:
        ValueError: the text has another form.
    """
    if isinstance(value, NodeChoice):
        return value
    if not isinstance(value, str) or not re.search(r"\d[-,:]", value):
        number: int = _read_count(value)
        return number
    try:
        choice = NodeChoice(value)
    except ValueError:
        raise ValueError(f"{value!r} is not a number of nodes; write 4, 2-4 or 2,4,8") from None
    fewest = _read_count(choice.fewest)
    most = _read_count(int(choice))
    return most if fewest == most else choice


def fewest_of(nodes: int) -> int:
    """Return the smallest number of nodes."""
    return nodes.fewest if isinstance(nodes, NodeChoice) else nodes


def choice_of(nodes: int | None) -> str:
    """Return the numbers of nodes from which Slurm chooses; empty if there is one number."""
    return nodes.text if isinstance(nodes, NodeChoice) else ""
