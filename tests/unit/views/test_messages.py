"""The text of a message: one line of a log, which may say anything."""

from __future__ import annotations

import pytest

from hpcrun.features.notify.display import clean_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see <http://evil.example|the run>", "see < http://evil.example|the run>"),
        ("see <mailto:a@b.org|ok>", "see < mailto:a@b.org|ok>"),
        ("[click](http://evil.example)", "[click] (http://evil.example)"),
        ("![x](http://evil.example/i.png)", "![x] (http://evil.example/i.png)"),
        ("[click]\u200b(http://evil.example)", "[click] (http://evil.example)"),
        ("<\x1b[0mhttp://evil.example|ok>", "< http://evil.example|ok>"),
        ("@everyone <!channel> <@U1>", "@ everyone < !channel> < @ U1>"),
        ("ValueError in <module>: 1 < 2, x[0] (a)", "ValueError in <module>: 1 < 2, x[0] (a)"),
        ("KeyError: 'a' at https://docs.example/x", "KeyError: 'a' at https://docs.example/x"),
        ("ghp_abcdefghij\u200bklmnopqrstuvwxyz", "***"),
        ("ghp_abcdefghij\x1b[31mklmnopqrstuvwxyz", "***"),
        ("ghp_abcdefghij\u2060\u00adklmnopqrstuvwxyz", "***"),
    ],
)
def test_a_line_of_a_log_mentions_links_and_reveals_nothing(text: str, shown: str) -> None:
    assert clean_line(text) == shown
