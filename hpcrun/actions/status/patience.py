"""Asking a question that may take long, with something to show for it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


def ask_patiently(ask: Callable[[], T], after_s: float) -> Iterator[T | None]:
    """Yield the answer to a question; where it is late, after so many seconds, None comes before it.

    Raises:
        BaseException: what the question itself raises.
    """
    answers: list[T] = []
    errors: list[BaseException] = []

    def answer() -> None:
        try:
            answers.append(ask())
        except BaseException as error:
            errors.append(error)

    # a daemon: Ctrl-C ends the program without waiting for an answer
    asking = threading.Thread(target=answer, daemon=True)
    asking.start()
    asking.join(after_s)
    if asking.is_alive():
        yield None
        asking.join()
    if errors:
        raise errors[0]
    yield answers[0]
