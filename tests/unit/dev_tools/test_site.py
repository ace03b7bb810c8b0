"""The site of the docs: each page is in its menu, and each link of the files leads somewhere.

`make site` builds it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from dev import site
from tests.harness import REPO

DOCS = REPO / "docs"
FILES = sorted([*(REPO / name for name in site.PAGES), *DOCS.rglob("*.md")])


def pages_in(menu: Any) -> list[str]:
    """The pages of a part of the menu, in their order."""
    if isinstance(menu, str):
        return [menu]
    return [
        page
        for part in (menu.values() if isinstance(menu, dict) else menu)
        for page in pages_in(part)
    ]


def test_every_page_is_in_the_menu_of_mkdocs_yml_once() -> None:
    menu = pages_in(YAML(typ="safe").load((REPO / "mkdocs.yml").read_text("utf-8"))["nav"])
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    pages = {
        *site.PAGES.values(),
        *(page for page in written if not page.startswith("decisions/")),
    }
    assert sorted(menu) == sorted(pages)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(REPO).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [
        match["target"]
        for match in site._LINK.finditer(text)
        if not re.match("[a-z]+:", match["target"])
    ]
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_links_as_they_are_in_the_site(subtests: pytest.Subtests) -> None:
    for page, link, becomes in (
        ("index.md", "docs/guides/first-hour.md", "guides/first-hour.md"),
        ("index.md", "CONTRIBUTING.md#layout", "contributing.md#layout"),
        ("index.md", "docs/decisions/", "decisions/index.md"),
        ("guides/1-single-gpu.md", "../detect.md", "../detect.md"),
        (
            "guides/first-hour.md",
            "../../examples/digits_ddp.py",
            "../source/examples/digits_ddp.py",
        ),
        ("examples.md", "../README.md", "index.md"),
        ("examples.md", "https://pytorch.org", "https://pytorch.org"),
    ):
        with subtests.test(page=page):
            assert site.site_text(f"a [b]({link}), c", page) == f"a [b]({becomes}), c"
