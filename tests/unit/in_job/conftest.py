"""Programs of a job handle SIGTERM: a test that calls one leaves no handler to the next."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def sigterm_as_before() -> Iterator[None]:
    """Set back the handler of SIGTERM."""
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)
