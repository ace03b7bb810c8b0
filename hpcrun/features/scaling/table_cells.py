"""The cells of published tables: a number with its unit, and a number of GPUs. Pure.

A number may have a scale, an error, a unit and a remark: ``2.5M tok/s``, ``**92.9 %**``,
``4,872 ± 33``, ``7.2x (90 %)``. The whole cell must be understood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = (
    r"(?P<number>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)"
    r"\s*(?P<scale>[kKMGB](?![^\W\d_]))?"
)
_CELL = re.compile(
    rf"""
    [~≈]?\s*{_NUMBER}
    \s*(?:(?:±|\+/-|\+-)\s*[\d.,]+\s*)?     # its error
    (?P<unit>[^\W\d_%×][^\d()]*|[%×])?      # its unit
    \s*(?:\([^()]*\))?                      # a remark in brackets
    """,
    re.VERBOSE,
)
_SCALES = {"k": 3, "K": 3, "M": 6, "G": 9, "B": 9}
_EMPTY = {"", "-", "–", "—", "n/a", "na", "none"}
_NAMED = {"single": 1, "one": 1, "two": 2, "dual": 2, "four": 4, "eight": 8}

_GPU = r"(?:gpus?|devices?|accelerators?)"
_NODE = r"(?:nodes?|servers?|machines?|s|n)"
_CARD = r"(?P<card>[^\W\d][^()]*?)"
_SIZES = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?P<gpus>[\d,]+)(?:\s*[x×]?\s*{_GPU})?",  # 8, 1,024, 4x GPU
        rf"(?P<gpus>[\d,]+)\s*{_GPU}?\s*\((?P<remark>[^()]*)\)",  # 16 (2 nodes)
        rf"(?P<nodes>\d+)\s*{_NODE}?\s*[*×x]\s*(?P<each>\d+)\s*{_GPU}?",  # 4*8
        rf"(?P<nodes>\d+)\s*{_NODE}\s*[-,/+ ]\s*(?P<gpus>\d+)\s*{_GPU}",  # 2S - 8GPU: 8 in all
        rf"(?P<nodes>\d+)\s*{_NODE}\s*\((?P<gpus>\d+)\s*{_GPU}\)",  # 2 nodes (16 GPUs)
        rf"(?P<gpus>\d+)\s*[x×]\s*{_CARD}(?:\((?P<remark>[^()]*)\))?",  # 4x V100
        rf"(?P<gpus>\d+)\s+(?P<card>[a-z]{{1,4}}\d+\w*)(?:\s*{_GPU})?",  # 8 H100
        rf"(?P<label>[^()]+?)\s*\((?P<gpus>\d+)\s*[x×]?\s*{_GPU}\)",  # IMDB (4 GPUs)
        rf"(?P<gpus>\d+)\s*{_GPU}\s+(?P<label>[^\d()]+)",  # 2 GPU DDP
    )
)
"""How people write a size, the plainest first."""
_REMARKED_NODES = re.compile(rf"\D*(\d+)\s*(?:{_NODE}\b.*|[x×*]\s*\d+.*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Number:
    """The number of a cell."""

    text: str  # that ``float`` reads, with its scale
    unit: str


@dataclass(frozen=True, slots=True)
class CellSize:
    """A number of GPUs, with what else the cell says of it."""

    gpus: int
    nodes: int | None = None
    card: str = ""
    label: str = ""
    named: bool = False  # the cell speaks of GPUs, and is not a bare number


def plain_cell(cell: str) -> str:
    """Return a cell without bold type, code and spaces between digits."""
    text = re.sub(r"\*\*|__|`|</?(?:b|strong|sub|sup|br)\s*/?>", "", cell)
    return re.sub(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3})", "", text).strip()


def is_empty(cell: str) -> bool:
    """Whether a cell says that there is no value."""
    return plain_cell(cell).lower() in _EMPTY


def cell_number(cell: str) -> Number | None:
    """Return the number of a cell; None if the cell is more than one number, or none."""
    match = _CELL.fullmatch(plain_cell(cell))
    if match is None or re.match(r"0[\d,]", match["number"]):  # 0,124 may be a decimal comma
        return None
    digits = match["number"].replace(",", "")
    scale = match["scale"]
    if scale:
        if "e" in digits.lower():
            return None
        digits = f"{digits}e{_SCALES[scale]}"
    return Number(digits, (match["unit"] or "").strip())


def cell_size(cell: str) -> CellSize | None:
    """Return the GPUs that a cell names, or None.

    ``4*8`` is 4 nodes of 8 GPUs, ``2S - 8GPU`` 8 GPUs in all, and ``4x V100`` 4 of a type.
    """
    text = re.sub(r"(?i)^(\w+)(?=[\s-]+gpus?\b)", _digits, plain_cell(cell))
    for pattern in _SIZES:
        match = pattern.fullmatch(text)
        if match is not None:
            return _size(match, text)
    return None


def _digits(match: re.Match[str]) -> str:
    """Return the number for ``single``, ``two`` and others."""
    return str(_NAMED.get(match[1].lower(), match[1]))


def _size(match: re.Match[str], text: str) -> CellSize | None:
    parts = {name: value or "" for name, value in match.groupdict().items()}
    nodes = int(parts["nodes"]) if parts.get("nodes") else None
    if "each" in parts:
        gpus = int(parts["each"]) * (nodes or 1)
    else:
        number = parts["gpus"]
        if not re.fullmatch(r"\d{1,3}(?:,\d{3})+|\d+", number):
            return None
        gpus = int(number.replace(",", ""))
    remark = _REMARKED_NODES.fullmatch(parts.get("remark", ""))
    if remark:
        nodes = int(remark[1])
    card = re.sub(rf"(?i)^{_GPU}$|\s+{_GPU}$", "", parts.get("card", "").strip())
    return CellSize(
        gpus, nodes, card, label=parts.get("label", "").strip(), named=not text.isdigit()
    )
