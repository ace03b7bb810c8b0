"""Dumps of NCCL's flight recorder, which need GPUs: the fields of torch 2.13 that count
(FlightRecorderDetail.hpp).

tests/data/flight has dumps that torch itself wrote, of gloo.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TORCH = "/opt/venv/lib/python3.12/site-packages/torch/"
BEGAN_NS = 1_795_365_912_577_899_672


class TorchPickler(pickle._Pickler):
    """Python's own, but that it keeps no pair in the memo, as torch's in C++."""

    def memoize(self, obj: object) -> None:
        if not isinstance(obj, tuple):
            super().memoize(obj)  # type: ignore[misc]


def pickled(value: Any) -> bytes:
    file = io.BytesIO()
    TorchPickler(file, 2).dump(value)
    return file.getvalue()


@dataclass(frozen=True)
class Made:
    """A call to be written into a dump."""

    name: str
    line: int = 88
    group: tuple[str, str] = ("0", "default_pg")
    number: int = 0
    """0: the next of its group."""
    sizes: Sequence[Sequence[int]] = ((1024,),)
    dtype: str = "Float"
    state: str = "completed"
    at_s: float = 0.0
    p2p: int = 0
    file: str = "/home/ann/project/train.py"


def dump(
    calls: Sequence[Made], groups: Mapping[str, tuple[str, Sequence[int]]], *, first_record: int = 0
) -> dict[str, Any]:
    """Return what a rank dumps; ``groups``: the name of a process group, its description and
    ranks.
    """
    library = {
        "name": "all_reduce",
        "filename": f"{TORCH}distributed/distributed_c10d.py",
        "line": 3245,
    }
    own: dict[tuple[str, int], dict[str, Any]] = {}
    numbers: dict[tuple[str, str], int] = {}
    entries = []
    for record, call in enumerate(calls, first_record):
        if not call.p2p:
            numbers[call.group] = call.number or numbers.get(call.group, 0) + 1
        frame = own.setdefault(
            (call.file, call.line), {"name": "step", "filename": call.file, "line": call.line}
        )
        sizes, types = [list(size) for size in call.sizes], [call.dtype] * len(call.sizes)
        entries.append(
            {
                "frames": [library, frame],
                "record_id": record,
                "pg_id": 0,
                "process_group": call.group,
                "collective_seq_id": numbers.get(call.group, 0),
                "p2p_seq_id": call.p2p,
                "is_p2p": call.p2p > 0,
                "profiling_name": f"nccl:{call.name}",
                "time_created_ns": BEGAN_NS + int((call.at_s or record) * 1e9),
                "input_sizes": sizes,
                "input_dtypes": types,
                "output_sizes": sizes,
                "output_dtypes": types,
                "state": call.state,
                "timeout_ms": 600_000,
            }
        )
    config = {
        name: {"name": name, "desc": description, "ranks": json.dumps(list(ranks))}
        for name, (description, ranks) in groups.items()
    }
    return {"version": "2.10", "pg_config": config, "entries": entries}
