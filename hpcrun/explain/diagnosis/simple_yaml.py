"""Reads the simple part of YAML in which the shipped rules are written.

A parser of all of YAML takes 100 ms for them, longer than everything else that ``explain`` does for
a short log.
"""

from __future__ import annotations

import re

Section = dict[str, str | bool | list[str]]

_NAME = re.compile(r"([\w-]+):")
_ENTRY = re.compile(r"  (\w+): (.*)")
_QUOTED = r"'(?:[^']|'')*'|\"[^\"\\]*\""
_ITEM = rf"(?:{_QUOTED}|(?:\w|--\w|/\w)[^\[\]{{}},:#'\"]*)"
_LIST = re.compile(rf"\[{_ITEM}(?:, {_ITEM})*\]")
_ITEMS = re.compile(_ITEM)
_TEXT = re.compile(_QUOTED)
_PLAIN = re.compile(r"(\w(?:[^:#]|:(?=\S)|(?<=\S)#)*?)(?: +#.*)?")
_OTHER_WORDS = re.compile(r"(?i)null|true|false")


def parse_simple(text: str) -> dict[str, Section] | None:
    """Return name → section, if the text has nothing but sections of texts, lists and ``true``.

    Returns:
        None if a line is not of the simple form; a parser of all of YAML then has to read the text.
    """
    sections: dict[str, Section] = {}
    section: Section | None = None
    for line in text.split("\n"):
        if not line or line.startswith("#"):
            continue
        name = _NAME.fullmatch(line)
        if name is not None:
            if name[1] in sections:
                return None
            section = {}
            sections[name[1]] = section
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None or section is None or entry[1] in section:
            return None
        value = _value(entry[2])
        if value is None:
            return None
        section[entry[1]] = value
    return sections


def _value(text: str) -> str | bool | list[str] | None:
    if text == "true":
        return True
    if _LIST.fullmatch(text):
        items = [_unquoted(item) for item in _ITEMS.findall(text)]
        is_other = any(_OTHER_WORDS.fullmatch(item) for item in items)
        return None if is_other else items
    if _TEXT.fullmatch(text):
        return _unquoted(text)
    plain = _PLAIN.fullmatch(text)
    if plain is None or _OTHER_WORDS.fullmatch(plain[1]):
        return None
    return plain[1].rstrip()


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    if text.startswith('"'):
        return text[1:-1]
    return text.rstrip()
