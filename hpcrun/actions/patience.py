"""Asking a question that may take long, with something to show for it meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def ask_patiently(ask: Callable[[], T], after_s: float, meanwhile: Callable[[], None]) -> tuple[T, bool]:
    """Return the answer to a question, and whether it was late: after so many seconds ``meanwhile`` is called once.

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
    late = asking.is_alive()
    if late:
        meanwhile()
        asking.join()
    if errors:
        raise errors[0]
    return answers[0], late
