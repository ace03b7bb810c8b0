"""A question that is asked aside, so that one that never comes back holds nothing up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Asked(Generic[Answer]):
    """A call in a thread of its own. A thread pool would wait at its end for a file system that hangs."""

    def __init__(self, ask: Callable[[], Answer]) -> None:
        self._ask = ask
        self._answer: Answer | None = None
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._answer = self._ask()
        except BaseException as error:
            self._failure = error

    def answer(self, within_s: float) -> Answer | None:
        """Return the answer, None where it does not come within that many seconds.

        Raises:
            BaseException: what the call raised.
        """
        self._thread.join(max(0.0, within_s))
        if self._failure is not None:
            raise self._failure
        return self._answer
