"""A blocking call in a daemon thread: one that never returns holds up neither its caller nor the end of the program."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class BackgroundCall(Generic[Answer]):
    """A call in a thread of its own. A thread pool would wait at its end for a file system that hangs."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self._call = call
        self._answer: Answer | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except BaseException as error:
            self._failure = error

    def is_late(self, within_s: float) -> bool:
        """Wait that many seconds at most; returns whether the call has still not returned."""
        self._thread.join(within_s)
        return self._thread.is_alive()

    def answer(self, within_s: float | None = None) -> Answer | None:
        """Return the answer, None where it does not come within that many seconds."""
        self._thread.join(None if within_s is None else max(0.0, within_s))
        if self._failure is not None:
            raise self._failure
        return self._answer


def answers_of(call: Callable[[], Answer], after_s: float) -> Iterator[Answer | None]:
    """Yield the answer of a call; where it is late, None comes before it, after so many seconds.

    Raises:
        BaseException: what the call raised.
    """
    background = BackgroundCall(call)
    if background.is_late(after_s):
        yield None
    yield background.answer()
