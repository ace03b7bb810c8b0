"""What ranks called, by torch's flight recorder. Pure.

The calls belong to process groups; they are collectives with their tensors, and transfers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

from hpcrun.explain.diagnosis.traceback import Frame

LARGEST = (1 << 61) - 2
"""Python's hashes of larger numbers may be those of smaller ones, and a dict of such is slow."""
_DEFAULT = "default_pg"
_KNOWN_AS = {
    "_all_gather_base": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "ALLGATHER_coalesced": "all_gather",
    "REDUCE_SCATTER_coalesced": "reduce_scatter",
}
"""What a person calls for what torch writes."""
_EQUAL_INPUTS = frozenset(
    {
        "all_reduce",
        "allreduce_coalesced",
        "broadcast",
        "_broadcast_oop",
        "reduce",
        "_reduce_oop",
        "gather",
        "all_gather_into_tensor",
        "all_gather_into_tensor_coalesced",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_coalesced",
        "reduce_scatter",
    }
)
"""Collectives whose inputs must have the same number of elements on all ranks."""
_EQUAL_OUTPUTS = frozenset({"all_gather", "scatter"})

_MOST_KINDS = 10_000

Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """A process group.

    Attributes:
        name: torch's; the groups of a mesh may share one.
        description: ``default_pg``, ``mesh_tp`` or empty.
        ranks: its members in the order of the group; empty where the dump does not have them, as
            gloo's.
    """

    name: str
    description: str
    ranks: tuple[int, ...]

    def __hash__(self) -> int:
        """Of up to 200,000 ranks the first few tell groups apart: a group is looked up often."""
        return hash((self.name, self.description, self.ranks[:8]))

    @property
    def default(self) -> bool:
        """Whether it has all ranks."""
        return self.description == _DEFAULT or (self.name == "0" and not self.description)


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
        same = self.must_equal == other.must_equal or not (self.must_equal and other.must_equal)
        return self.name == other.name and same


@dataclass(slots=True)
class CollectiveCall:
    """One call of a collective by one rank.

    Attributes:
        number: its place among the collectives of the group, from 1.
        place: the innermost line of the user's own code; None where the dump has none.
        created_s: when it was called, in seconds since the epoch.
        done: it was completed, as far as the dump knows.
    """

    number: int
    kind: Kind
    place: Frame | None
    created_s: float = 0.0
    timeout_s: float = 0.0
    done: bool = False


class Calls(dict[int, CollectiveCall]):
    """The calls of one rank in one group by their numbers, in their order."""

    @property
    def first(self) -> int:
        """The number of the first call that is kept."""
        return next(iter(self))

    @property
    def last(self) -> int:
        """The number of the last call."""
        return next(reversed(self))

    def add(self, call: CollectiveCall) -> None:
        """Add the next call.

        A group that was destroyed and made anew counts from its new beginning.
        """
        if self and call.number == self.last:  # several are launched together
            before = self[call.number]
            if before.kind != call.kind:
                before.kind = Kind(before.kind.name, states=before.kind.states, coalesced=True)
            before.done |= call.done
            return
        if self and call.number < self.last:
            if self.first < call.number and call.number not in self:
                return  # two threads noted theirs in another order
            self.clear()
        self[call.number] = call


@dataclass(frozen=True, slots=True)
class Transfer:
    """A send or receive that was not completed.

    Attributes:
        what: ``send`` or ``recv``.
        peer: the other rank's place in the group.
    """

    group: ProcessGroup
    what: str
    peer: int
    place: Frame | None


@dataclass(frozen=True, slots=True)
class Dump:
    """The dump of a rank.

    Attributes:
        last: the group and the number of the last collective of all.
        began_s: when the first of the collectives was called that it has, in seconds since the
            epoch.
        whole: that was the first of all.
    """

    groups: Mapping[ProcessGroup, Calls]
    transfers: tuple[Transfer, ...] = ()
    last: tuple[ProcessGroup, int] | None = None
    began_s: float = 0.0
    whole: bool = True


def transfers_of(dump: Dump) -> Iterator[tuple[int, Transfer]]:
    """Yield the open transfers of a dump, with the global rank of the other side.

    Only transfers whose group has known ranks are yielded.
    """
    for transfer in dump.transfers:
        if transfer.peer < len(transfer.group.ranks):
            yield transfer.group.ranks[transfer.peer], transfer


@lru_cache(_MOST_KINDS)
def make_kind(
    written: str,
    inputs: tuple[int, Sizes],
    outputs: tuple[int, Sizes],
    types: tuple[str, ...],
    out_types: tuple[str, ...],
) -> Kind:
    """Return the one kind of calls that a backend writes this way.

    The kind depends on the number of tensors, their sizes and their types.
    """
    backend, _, called = written.rpartition(":")
    name = _KNOWN_AS.get(called, called)
    must_equal: tuple[Any, ...] = ()
    if name in _EQUAL_INPUTS and inputs[1]:
        must_equal = (_elements(inputs[1]), *types)
    elif name in _EQUAL_OUTPUTS and outputs[1]:
        must_equal = (_elements(outputs[1]), *out_types)
    count, sizes = inputs if inputs[1] else outputs
    if sizes:
        shown = [f"{count} tensors" if count > 1 else str(list(sizes[0])), *(types or out_types)]
    else:
        shown = []
    return Kind(name, " ".join(shown), must_equal, states=backend != "gloo")


def _elements(sizes: Sizes) -> int:
    return min(LARGEST, sum(map(prod, sizes)))
