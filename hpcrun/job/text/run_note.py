"""The note of a run: one line of a person's own words, of which some may be tags: ``#paper``."""

from __future__ import annotations

from hpcrun.job.text.hide_secrets import HIDER

MOST = 200
"""Characters of a note."""


def read_note(text: str) -> str:
    """Return a note as it is kept, without spaces around it.

    Raises:
        ValueError: it is empty, too long, of several lines, or holds a secret.
    """
    note = text.strip()
    if not note:
        raise ValueError("is empty")
    if not note.isprintable():
        raise ValueError("must be one line of text")
    if len(note) > MOST:
        raise ValueError(f"has {len(note)} characters, and at most {MOST} are kept")
    if HIDER.hide(note) != note:
        raise ValueError("holds a secret, which lists of runs would show")
    return note
