"""A curve in a terminal: Braille characters have two by four dots each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

Point = tuple[float, float]
HEIGHT = 10
_LEAST = 8
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a character of Unicode's block at U+2800, by row and column."""


def braille_plot(curves: Sequence[Sequence[Point]], width: int, height: int = HEIGHT) -> list[str]:
    """Return lines that show curves, at most ``width`` columns wide, with the limits of both axes beside them."""
    xs, ys = [x for curve in curves for x, _ in curve], [y for curve in curves for _, y in curve]
    (left, right), (bottom, top) = (min(xs), max(xs)), (min(ys), max(ys))
    labels = [f"{top:.4g}", f"{bottom:.4g}"]
    margin = max(map(len, labels))
    columns = max(_LEAST, min(width, 100) - margin - 2)
    cells = [[0] * columns for _ in range(height)]
    for curve in curves:
        dots = [(_place(x, left, right, 2 * columns), _place(y, bottom, top, 4 * height)) for x, y in curve]
        for column, up in _joined(dots):
            row = 4 * height - 1 - up
            cells[row // 4][column // 2] |= _DOTS[row % 4][column % 2]
    lines = []
    for number, row_of_cells in enumerate(cells):
        label = labels[0] if number == 0 else labels[1] if number == height - 1 else ""
        lines.append(f"{label:>{margin}} ┤" + "".join(chr(0x2800 + cell) for cell in row_of_cells).rstrip("\u2800"))
    first, last = f"{left:.6g}", f"{right:.6g}"
    gap = columns - len(first) - len(last)
    lines.append(" " * (margin + 2) + (first + " " * gap + last if gap > 0 and left != right else first))
    return lines


def _joined(dots: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield dots, and those on the straight lines between them."""
    yield from dots[:1]
    for (x, y), (next_x, next_y) in pairwise(dots):
        steps = max(abs(next_x - x), abs(next_y - y))
        for step in range(1, steps + 1):
            yield x + round((next_x - x) * step / steps), y + round((next_y - y) * step / steps)


def _place(value: float, low: float, high: float, dots: int) -> int:
    if high == low:
        return dots // 2
    return min(dots - 1, round((value / 2 - low / 2) / (high / 2 - low / 2) * (dots - 1)))  # halves cannot overflow
