"""Dumps of NCCL's flight recorder, which need GPUs: written as torch 2.13 writes them (FlightRecorderDetail.hpp)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TORCH = "/opt/venv/lib/python3.12/site-packages/torch/"
BEGAN_NS = 1_795_365_912_577_899_672
TIMEOUT_MS = 600_000


class TorchPickler:
    """Writes plain data with the opcodes of torch's C++ pickler: texts and frames are kept in the memo, lists not."""

    def __init__(self) -> None:
        self.data = bytearray(b"\x80\x02")
        self.memo: dict[object, int] = {}

    def _keep(self, key: object) -> None:
        number = self.memo[key] = len(self.memo)
        self.data += b"q" + bytes([number]) if number < 256 else b"r" + number.to_bytes(4, "little")

    def _kept(self, key: object) -> bool:
        number = self.memo.get(key)
        if number is not None:
            self.data += b"h" + bytes([number]) if number < 256 else b"j" + number.to_bytes(4, "little")
        return number is not None

    def _number(self, value: int) -> None:
        if 0 <= value < 1 << 8:
            self.data += b"K" + value.to_bytes(1, "little")
        elif 0 <= value < 1 << 16:
            self.data += b"M" + value.to_bytes(2, "little")
        elif -(1 << 31) <= value < 1 << 31:
            self.data += b"J" + value.to_bytes(4, "little", signed=True)
        else:
            self.data += b"\x8a\x08" + value.to_bytes(8, "little", signed=True)

    def _text(self, value: str) -> None:
        if not self._kept(value):
            encoded = value.encode("utf-8", "surrogatepass")
            self.data += b"X" + len(encoded).to_bytes(4, "little") + encoded
            self._keep(value)

    def write(self, value: Any) -> None:
        """Write a value with all that is in it."""
        if value is None or isinstance(value, bool):
            self.data += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif isinstance(value, int):
            self._number(value)
        elif isinstance(value, str):
            self._text(value)
        elif isinstance(value, tuple):
            for item in value:
                self.write(item)
            self.data += b"\x86"
        else:
            self._container(value)

    def _container(self, value: list[Any] | dict[str, Any]) -> None:
        if isinstance(value, list):
            self.data += b"]("
            for item in value:
                self.write(item)
            self.data += b"e"
        elif not self._kept(id(value)):
            self.data += b"}("
            for name, item in value.items():
                self.write(name)
                self.write(item)
            self.data += b"u"
            if "filename" in value:
                self._keep(id(value))


def pickled(value: Any) -> bytes:
    pickler = TorchPickler()
    pickler.write(value)
    return bytes(pickler.data) + b"."


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
    calls: Sequence[Made],
    groups: Mapping[str, tuple[str, Sequence[int]]],
    *,
    first_record: int = 0,
    version: str = "2.10",
) -> dict[str, Any]:
    """Return what a rank dumps.

    Args:
        groups: the name of a process group, its description and ranks.
    """
    library = [
        {"name": "all_reduce", "filename": f"{TORCH}distributed/distributed_c10d.py", "line": 3245},
        {"name": "wrapper", "filename": f"{TORCH}distributed/c10d_logger.py", "line": 83},
    ]
    own: dict[tuple[str, int], dict[str, Any]] = {}
    numbers: dict[tuple[str, str], int] = {}
    entries = []
    for record, call in enumerate(calls, first_record):
        if not call.p2p:
            numbers[call.group] = call.number or numbers.get(call.group, 0) + 1
        frame = own.setdefault((call.file, call.line), {"name": "step", "filename": call.file, "line": call.line})
        sizes = [list(size) for size in call.sizes]
        created = BEGAN_NS + int((call.at_s or record) * 1e9)
        entries.append(
            {
                "frames": [*library, frame],
                "record_id": record,
                "pg_id": 0,
                "process_group": call.group,
                "thread_name": "python",
                "thread_id": "139704092885696",
                "collective_seq_id": numbers.get(call.group, 0),
                "p2p_seq_id": call.p2p,
                "op_id": record + 1,
                "profiling_name": f"nccl:{call.name}",
                "time_created_ns": created,
                "input_sizes": sizes,
                "input_dtypes": [call.dtype] * len(sizes),
                "output_sizes": sizes,
                "output_dtypes": [call.dtype] * len(sizes),
                "state": call.state,
                "time_discovered_started_ns": created if call.state != "scheduled" else None,
                "time_discovered_completed_ns": created if call.state == "completed" else None,
                "retired": call.state == "completed",
                "timeout_ms": TIMEOUT_MS,
                "is_p2p": call.p2p > 0,
            }
        )
    config = {
        name: {"name": name, "desc": description, "ranks": json.dumps(list(ranks))}
        for name, (description, ranks) in groups.items()
    }
    return {"version": version, "pg_config": config, "comm_lib_version": "2.27.7", "pg_status": {}, "entries": entries}
