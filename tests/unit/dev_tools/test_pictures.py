"""The pictures in the docs: each is shown, none is missing, and they show nothing but hpcrun."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import pytest

from hpcrun.cli.commands import COMMANDS
from tests.harness import REPO

FOLDER = REPO / "docs" / "pictures"
PAGES = [REPO / "README.md", *(REPO / "docs").rglob("*.md")]
SHOWN = re.compile(r"!\[(?P<words>[^\]]*)\]\((?P<path>[^)]+)\)")
SCREENS = sorted(FOLDER.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


def screen(picture: Path) -> list[str]:
    """The lines of the terminal in a picture: the texts of one height, from left to right."""
    lines: dict[float, str] = defaultdict(str)
    for text in ElementTree.parse(picture).iter(f"{SVG}text"):
        if "title" not in text.attrib["class"]:
            lines[float(text.attrib["y"])] += (text.text or "").replace("\xa0", " ")
    return [line for _, line in sorted(lines.items())]


def test_every_picture_is_shown_and_none_is_missing() -> None:
    named = [(page, match) for page in PAGES for match in SHOWN.finditer(page.read_text("utf-8"))]
    assert {(page.parent / match["path"]).resolve() for page, match in named} == set(
        FOLDER.iterdir()
    )
    # for those who do not see it
    assert [match[0] for _, match in named if len(match["words"].split()) < 3] == []


def test_every_command_has_a_picture_of_its_screen() -> None:
    lines = "\n".join(line for picture in SCREENS for line in screen(picture))
    typed = set(re.findall(r"^\$ hpcrun (?:--on \S+ )?(\S+)", lines, re.MULTILINE))
    assert {name.split()[0] for name in COMMANDS} - typed == set()


@pytest.mark.parametrize("picture", SCREENS, ids=lambda path: path.stem)
def test_a_picture_shows_a_reader_s_screen_and_needs_nobody(picture: Path) -> None:
    text = picture.read_text("utf-8")
    assert re.search(r"href|url\(|@import|<script|<image|<foreignObject", text) is None
    shown = "\n".join(screen(picture))
    assert re.search(r"(?<![\w.])/(tmp|work|root|usr)\b|pytest|Traceback", shown) is None
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown) is None
    assert max(map(len, screen(picture))) <= (160 if picture.stem == "compare-wide" else 100)
