"""What no terminal and no browser shows: escape sequences, control characters, and more."""

from __future__ import annotations

import re

UNSEEN = re.compile(
    "\x1b(?:\\[[0-?]*[ -/]*[@-~]|[\\]PX^_].*?(?:\x07|\x1b\\\\|$)|.?)|\x9b[0-?]*[ -/]*[@-~]"
    "|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f"
    "\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff0-\ufffb\U000e0000-\U000e0fff]",
    re.DOTALL | re.MULTILINE,
)
"""Sequences of ESC, control characters, and characters without a width.

Inside a token they would make a secret unknown, and the difference would be invisible.
"""
