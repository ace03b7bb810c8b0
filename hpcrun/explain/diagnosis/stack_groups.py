"""Where the ranks of a running job are, from their Python stacks in groups. Pure.

The stacks are as py-spy and faulthandler print them. The stack of a rank is that of its main
thread: this thread calls the collectives that the other ranks wait for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcrun.explain.diagnosis.traceback import Frame, ThreadStack, read_stack_line
from hpcrun.job.text.units import format_span, joined, rank_text

STOPPED = "T"
TRACED = "t"
BLOCKED = "D"
RUNNING = "R"
"""States of a process by proc(5)."""
_STATES = {
    STOPPED: "stopped by a signal (state T)",
    TRACED: "stopped by a debugger (state t)",
    BLOCKED: "in uninterruptible I/O (state D{})",
}
BUSY = 0.8
"""The share of the time from which a process computes, or polls."""
_COLLECTIVES = (
    "/torch/distributed/distributed_c10d.py",
    "/torch/distributed/_functional_collectives.py",
)
_PLUMBING = re.compile(r"_.*|wrapper|inner|wrapped|decorate_context|<.*>|run|forward_hook")
"""Functions between the user's line and what it called."""
_WORKER = "_worker_loop"
"""The function of a DataLoader's worker: the frames outside of it are those of the rank that it was
forked from.
"""
_MOST_NAMED = 3
_MOST_FRAMES = 10_000
_LONGEST_NAME = 4096
_MOST_LINES = 10**9


@dataclass(frozen=True, slots=True)
class RankStack:
    """What one rank does now.

    Attributes:
        frames: of its main thread, the outermost first; empty if its stack could not be read.
        state: its state by proc(5): R, S, D, T, t, Z.
        waits_in: the kernel's function in which it waits (proc(5), wchan); empty if unknown.
        busy: the share of the time in which its main thread ran, or waited for a CPU; None if
            unknown.
        gpu: it uses a GPU: its thread is as busy while it waits for the GPU as while it computes.
        worker: the frames of a DataLoader worker that the rank waits for, in the worker's own code.
        how: ``py-spy`` or ``faulthandler``; empty without a stack.
        lacks: why there is no stack.
    """

    rank: int
    node: str
    frames: tuple[Frame, ...] = ()
    state: str = ""
    waits_in: str = ""
    busy: float | None = None
    gpu: bool = False
    worker: tuple[Frame, ...] = ()
    how: str = ""
    lacks: str = ""

    @property
    def is_stopped(self) -> bool:
        """Whether a signal or a debugger has stopped it."""
        return self.state in (STOPPED, TRACED)


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank is, in words of the user's code.

    Attributes:
        user: the innermost frame in the user's own code; None if all frames are in libraries, or if
            there are none.
        call: the function of a library that this line has called; empty if there is none.
        waits: the call is a collective: it waits for other ranks.
        state: T, t or D if this says more than the frames, else empty.
        inner: the innermost frame, if no frame is the user's.
    """

    user: Frame | None
    call: str
    waits: bool
    state: str = ""
    inner: Frame | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks at the same place."""

    position: Position
    ranks: tuple[RankStack, ...] = field(default=())


def parse_py_spy(text: str) -> tuple[Frame, ...]:
    """Read ``py-spy dump --json``: return the frames of the main thread, the outermost first.

    Raises:
        ValueError: it is not the output of py-spy.
    """
    try:
        threads = [thread for thread in json.loads(text) if thread["frames"]]
        main = next((thread for thread in threads if thread["thread_name"] == "MainThread"), None)
        chosen = main or (threads[-1] if threads else None)
        frames = chosen["frames"] if chosen else []
        return tuple(
            Frame(_text(each["filename"]), _line(each["line"]), _plain(_text(each["name"])))
            for each in reversed(frames[:_MOST_FRAMES])  # the innermost come first
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not the output of py-spy: {error}") from None


def _text(value: object) -> str:
    """Return a name without what cannot be printed at all.

    Such a thing is half a character, which JSON can express.
    """
    return str(value)[:_LONGEST_NAME].encode("utf-8", "replace").decode()


def _line(value: object) -> int:
    """Return the number of a line; 0 if it is none."""
    if isinstance(value, int) and 0 <= value < _MOST_LINES:
        return value
    return 0


def _plain(name: str) -> str:
    """Return a function's name without its class: since Python 3.11 py-spy prints ``Queue.get``."""
    return name.rpartition(".")[2]


def parse_faulthandler(text: str) -> tuple[Frame, ...]:
    """Read a dump of faulthandler: return the frames of the main thread, the outermost first.

    The main thread is the oldest and comes last. A dump of more than a hundred threads is cut off:
    then it is the thread that received the signal.
    """
    threads: list[ThreadStack] = []
    is_cut = False
    for line in text.splitlines():
        if not read_stack_line(line, threads) and line.strip() == "..." and threads:
            is_cut = is_cut or not threads[-1].frames or (line == "..." and len(threads) >= 100)
    current = next(
        (thread for thread in reversed(threads) if thread.current and thread.frames), None
    )
    if is_cut and current:
        chosen = current
    elif threads:
        chosen = threads[-1]
    else:
        chosen = None
    return tuple(
        replace(frame, function=_plain(frame.function))
        for frame in reversed(chosen.frames if chosen else [])
    )


def own_work(frames: Sequence[Frame]) -> tuple[Frame, ...]:
    """Return the frames of a DataLoader worker inside its loop.

    The tuple is empty for a worker that waits for work.
    """
    place = next((place for place, frame in enumerate(frames) if frame.function == _WORKER), None)
    if place is not None:
        inside = tuple(frames[place + 1 :])
    else:
        inside = tuple(frames)
    if any(frame.in_user_code for frame in inside):
        return inside
    return ()


def waits_for_worker(frames: Sequence[Frame]) -> bool:
    """Whether a rank waits for a worker of its DataLoader."""
    return any("/torch/utils/data/" in frame.file for frame in frames) and not (
        frames and frames[-1].in_user_code
    )


def position_of(stack: RankStack) -> Position:
    """Return where a rank is."""
    state = stack.state if stack.state in _STATES else ""
    place = next(
        (place for place in reversed(range(len(stack.frames))) if stack.frames[place].in_user_code),
        None,
    )
    if place is None:
        return Position(
            None, "", waits=False, state=state, inner=stack.frames[-1] if stack.frames else None
        )
    called = stack.frames[place + 1 :]
    names = [frame.function for frame in called if not _PLUMBING.fullmatch(frame.function)]
    special = [frame.function for frame in called if frame.function in ("__next__", "__iter__")]
    collective = next((frame.function for frame in called if _is_collective(frame)), "")
    call = collective or next(iter(special), "") or next(iter(names), "")
    return Position(stack.frames[place], call, waits=bool(collective), state=state)


def _is_collective(frame: Frame) -> bool:
    return (
        frame.file.endswith(_COLLECTIVES)
        and not frame.function.startswith("_")
        and frame.function != "wrapper"
    )


def grouped(stacks: Sequence[RankStack]) -> list[Group]:
    """Return the ranks by their place: first those that wait for others, then the larger groups.

    Equal is what the user's code does: the frames of libraries below may differ while a rank polls.
    """
    groups: dict[tuple[object, ...], list[RankStack]] = {}
    positions: dict[tuple[object, ...], Position] = {}
    for stack in stacks:
        position = position_of(stack)
        at = position.user or position.inner
        # ranks that compute are in one function, and at any of its lines
        if at and (position.call or position.user is None or not _is_busy(stack)):
            line = at.line
        else:
            line = None
        if at:
            key: tuple[object, ...] = (at.file, at.function, line, position.call, position.state)
        else:
            # of ranks that all sleep, the kernel's function tells apart who waits for whom
            key = (stack.state, _kernel_function(stack))
        groups.setdefault(key, []).append(stack)
        positions.setdefault(key, position)
    made = [Group(positions[key], tuple(ranks)) for key, ranks in groups.items()]
    return sorted(
        made, key=lambda group: (not _waits(group), -len(group.ranks), group.ranks[0].rank)
    )


def _kernel_function(stack: RankStack) -> str:
    """Return the kernel's function in which a rank waits; empty if it runs, or that is unknown."""
    if stack.state == RUNNING or stack.waits_in == "0":
        return ""
    return stack.waits_in


def _waits(group: Group) -> bool:
    return group.position.waits and not group.position.state


def _is_busy(stack: RankStack) -> bool:
    return stack.busy is not None and stack.busy >= BUSY and not stack.gpu


def verdict(
    stacks: Sequence[RankStack],
    *,
    world: int,
    silent_s: float | None,
    code: Mapping[Frame, str] | None = None,
) -> str:
    """Return in one sentence where the ranks are.

    The sentence has the ranks that wait, and the odd ranks by their line of the user's code.

    Args:
        stacks: the stacks of the ranks.
        world: how many ranks the job has.
        silent_s: how long no rank has written, in seconds; None if this is not worth a word.
        code: frame → its line of code, as far as it is known.
    """
    groups = grouped(stacks)
    if not groups:
        return ""
    code = code or {}
    parts = [
        _crowd(groups[0], world, code),
        *(_odd(group, code) for group in groups[1 : 1 + _MOST_NAMED]),
    ]
    left = sum(len(group.ranks) for group in groups[1 + _MOST_NAMED :])
    if left == 1:
        parts.append("1 rank is elsewhere")
    elif left:
        parts.append(f"{left} ranks are elsewhere")
    if silent_s is not None:
        parts[-1] += f", {format_span(silent_s)}"
    return "; ".join(parts)


def odd_ranks(stacks: Sequence[RankStack]) -> list[RankStack]:
    """Return the ranks that the others wait for.

    These are the ranks outside of the group of ranks that wait, or of the largest group.
    """
    groups = grouped(stacks)
    rest = groups[1:]
    if not groups or (
        not _waits(groups[0]) and rest and len(groups[0].ranks) == len(rest[0].ranks)
    ):
        return []
    return [stack for group in rest for stack in group.ranks if not _waits(group)]


def _crowd(group: Group, world: int, code: Mapping[Frame, str]) -> str:
    number = len(group.ranks)
    if world == 1:
        return f"the rank {_doing(group, 1, code)}"
    if number == 1:
        return _odd(group, code)
    if number == world:
        who = f"all {number} ranks"
    else:
        who = f"{number} of {world} ranks"
    return f"{who} {_doing(group, number, code)}"


def _odd(group: Group, code: Mapping[Frame, str]) -> str:
    who = joined([rank_text(each.rank, each.node) for each in group.ranks], _MOST_NAMED)
    return f"{who} {_doing(group, len(group.ranks), code)}"


def _doing(group: Group, number: int, code: Mapping[Frame, str]) -> str:
    """Return what ranks do.

    Examples are ``wait in all_reduce (train.py:88)`` and
    ``is stopped (SIGSTOP) in epoch (train.py:27)``.
    """
    position, first = group.position, group.ranks[0]
    be = "is" if number == 1 else "are"
    busy = all(map(_is_busy, group.ranks)) and not position.call
    at = place_text(position, {} if busy else code)
    waits_in = ""
    if _kernel_function(first):
        waits_in = f", in {_kernel_function(first)}"
    if position.state:
        return f"{be} {_STATES[position.state].format(waits_in)}{at}"
    if position.waits:
        return f"{'waits' if number == 1 else 'wait'}{at}"
    if not at and (_is_busy(first) or first.state == RUNNING):
        return f"{be} computing or polling (state R)"
    if not at:
        return f"{be} waiting (state {first.state or '?'}{waits_in})"
    if busy:
        text = f"{'computes' if number == 1 else 'compute'}{at}"
    else:
        text = f"{be}{at}"
    inner = next((frame for frame in reversed(first.worker) if frame.in_user_code), None)
    if inner:
        return f"{text}, whose DataLoader worker is in {inner.function} ({inner.short})"
    return text


def place_text(position: Position, code: Mapping[Frame, str]) -> str:
    """Return `` in all_reduce (train.py:88)``; empty if the stack is unknown."""
    user = position.user
    if user is None:
        if position.inner:
            return f" in {position.inner.function} ({position.inner.short})"
        return ""
    line = code.get(user, "")
    if position.waits:
        return f" in {position.call} ({user.short})"
    if line:
        return f" in `{line}` ({user.short})"
    if position.call and not position.call.startswith("__"):
        name = position.call
    else:
        name = user.function
    name = "next" if position.call == "__next__" else name
    return f" in {name} ({user.short})"
