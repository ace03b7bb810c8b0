"""The texts of a dump, cut and printable. Pure."""

from __future__ import annotations

from typing import Any


class Texts:
    """The texts of one dump, each converted once: a hostile dump may name one of megabytes in each of its entries.

    It is of use only while the dump is there, as it knows the texts by their id.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], str] = {}

    def of(self, value: Any, longest: int) -> str:
        """Return the beginning of a text, as it can be printed: a pickle can hold half characters.

        Raises:
            ValueError: it is no text.
        """
        if not isinstance(value, str):
            raise ValueError("no text")
        key = id(value), longest
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = value[:longest].encode("utf-8", "replace").decode()
        return found
