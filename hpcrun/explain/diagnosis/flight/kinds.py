"""What ranks call: the kinds of collectives with the sizes and types of their tensors. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from hpcrun.explain.diagnosis.flight.plain_pickle import Texts

LONGEST_CALLED = 200
"""Characters of the name of a collective, and of a type, that are looked at."""
_MOST_NESTED = 16
"""Tensors and dimensions of a collective that are looked at."""
_MOST_KINDS = 10_000
_LARGEST = 1 << 60
"""No tensor has more elements. The hashes of larger numbers may be the same, and a dict of such is slow."""
_KNOWN_AS = {"_all_gather_base": "all_gather_into_tensor", "_reduce_scatter_base": "reduce_scatter_tensor",
             "ALLGATHER_coalesced": "all_gather", "REDUCE_SCATTER_coalesced": "reduce_scatter"}  # fmt: skip
"""What a person calls for what torch writes."""
_EQUAL_INPUTS = frozenset({
    "all_reduce", "allreduce_coalesced", "broadcast", "_broadcast_oop", "reduce", "_reduce_oop", "gather",
    "all_gather_into_tensor", "all_gather_into_tensor_coalesced", "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced", "reduce_scatter",
})  # fmt: skip
"""Collectives whose inputs must have the same number of elements on all ranks."""
_EQUAL_OUTPUTS = frozenset({"all_gather", "scatter"})

Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """What is called.

    Attributes:
        name: ``all_reduce``.
        tensors: the sizes and types, to be shown: ``[1024] Float``.
        must_equal: what must be the same on all ranks of a group.
        states: the dump knows whether it is completed.
        coalesced: several calls are launched together.
    """

    name: str
    tensors: str = ""
    must_equal: tuple[Any, ...] = ()
    states: bool = True
    coalesced: bool = False

    def goes_with(self, other: Kind) -> bool:
        """Whether one rank of a group may call this while another calls the other."""
        if self.coalesced or other.coalesced:
            return True
        return self.name == other.name and (
            self.must_equal == other.must_equal or not (self.must_equal and other.must_equal)
        )


class KindReader:
    """Reads what the entries of dumps call; those that call the same share it."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[Any, ...], Kind] = {}

    def kind(self, entry: dict[str, Any], texts: Texts) -> Kind:
        """Return what an entry calls.

        Raises:
            TypeError, ValueError, LookupError: it has something else than numbers and texts.
        """
        inputs, outputs = _sizes(entry.get("input_sizes")), _sizes(entry.get("output_sizes"))
        types, output_types = _type(entry.get("input_dtypes"), texts), _type(entry.get("output_dtypes"), texts)
        written = texts.of(entry["profiling_name"], LONGEST_CALLED)
        key = (written, inputs, outputs, types, output_types)
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[key] = _make_kind(written, inputs, outputs, types, output_types)
        return kind


def _make_kind(
    written: str,
    inputs: tuple[int, Sizes],
    outputs: tuple[int, Sizes],
    types: tuple[str, ...],
    output_types: tuple[str, ...],
) -> Kind:
    backend, _, called = written.rpartition(":")
    name = _KNOWN_AS.get(called, called)
    must_equal: tuple[Any, ...] = ()
    if name in _EQUAL_INPUTS and inputs[1]:
        must_equal = (_elements(inputs[1]), *types)
    elif name in _EQUAL_OUTPUTS and outputs[1]:
        must_equal = (_elements(outputs[1]), *output_types)
    shown = _shown(*(inputs if inputs[1] else outputs), types or output_types)
    return Kind(name, shown, must_equal, states=backend != "gloo")


def kind_of_several(first: Kind, second: Kind) -> Kind:
    """Return the kind of several collectives that are launched together."""
    if first == second:
        return first
    return Kind(first.name, states=first.states, coalesced=True)


def _sizes(said: Any) -> tuple[int, Sizes]:
    """Return the number of tensors, and the sizes of the first of them: numbers, before a hash of them is computed."""
    if not said:
        return 0, ()
    sizes = tuple(tuple(size[:_MOST_NESTED]) for size in said[:_MOST_NESTED])
    if any(type(number) is not int or not 0 <= number <= _LARGEST for size in sizes for number in size):
        raise ValueError("sizes that are no numbers")
    return len(said), sizes


def _type(said: Any, texts: Texts) -> tuple[str, ...]:
    """Return the type of the first tensor."""
    return tuple(texts.of(one, LONGEST_CALLED) for one in (said or ())[:1])


def _elements(sizes: Sizes) -> int:
    return min(_LARGEST, sum(map(prod, sizes)))


def _shown(count: int, sizes: Sizes, types: tuple[str, ...]) -> str:
    if not sizes:
        return ""
    return " ".join((f"{count} tensors" if count > 1 else str(list(sizes[0])), *types))
