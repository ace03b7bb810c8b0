"""Which variables hold secrets: their values never stand in a script or a record."""

from __future__ import annotations

_WORDS = frozenset("TOKEN KEY SECRET PASSWORD PASSWD PASSPHRASE APIKEY CREDENTIALS PSK".split())

MASK = "***"


def is_secret(name: str) -> bool:
    """Return whether a variable's ``_``-separated words name a secret (TOKENIZERS_PARALLELISM does not)."""
    return not _WORDS.isdisjoint(name.upper().split("_"))
