"""A hook of mkdocs: pages that lie outside docs/, and links that lead there.

``make site`` builds the site.

The pages are written for readers of the files, as a forge shows them. Here README.md becomes the
site's first page, and a file of the code that a page links to comes along as it is, below
``source/``.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
DOCS = REPO / "docs"
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""A file of the checkout → the page that it becomes."""
DECISIONS = "decisions/index.md"
_LINK = re.compile(r"(?P<head>\]\()(?P<target>[^)#\s]+)(?P<rest>#[^)\s]*)?\)")
# for tests; superfences takes the second word for a mistake
_FENCE = re.compile(r"^```console slurm$", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and the files that any page links to."""
    from mkdocs.structure.files import File

    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(REPO / name).read_text("utf-8")))
    files.append(File.generated(config, DECISIONS, content=decisions_page()))
    for target in sorted(linked_sources()):
        files.append(File.generated(config, f"source/{target}", abs_src_path=str(REPO / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_more: Any) -> str:
    """Return a page's text with links as they are in the site."""
    return site_text(markdown, page.file.src_uri)


def site_text(text: str, page: str) -> str:
    """Return the text of a page of the site.

    Args:
        page: where it lies in the site.
    """
    written_in = next(
        (REPO / name for name, address in PAGES.items() if address == page), DOCS / page
    ).parent

    def moved(match: re.Match[str]) -> str:
        place = site_place(written_in, match["target"])
        if place is None:
            return match[0]
        link = os.path.relpath(place, os.path.dirname(page) or ".")
        return f"{match['head']}{link}{match['rest'] or ''})"

    return _LINK.sub(moved, _FENCE.sub("```console", text))


def site_place(folder: Path, target: str) -> str | None:
    """Return where a link leads in the site, None where it leads out of it.

    Args:
        folder: of the file with the link.
    """
    if re.match(r"[a-z]+:", target):
        return None
    path = Path(os.path.normpath(folder / target))
    if path == DOCS / "decisions":
        return DECISIONS
    if path.is_relative_to(DOCS):
        return str(path.relative_to(DOCS))
    name = str(path.relative_to(REPO))
    return PAGES.get(name, f"source/{name}")


def linked_sources() -> set[str]:
    """Return the files of the checkout that pages link to, and that are no pages."""
    linked = set()
    for page in [*DOCS.rglob("*.md"), *(REPO / name for name in PAGES)]:
        for match in _LINK.finditer(page.read_text("utf-8")):
            place = site_place(page.parent, match["target"])
            if place and place.startswith("source/"):
                linked.add(place.removeprefix("source/"))
    return linked


def decisions_page() -> str:
    """Return a list of the decisions, each by its title."""
    lines = ["# Decisions", ""]
    for path in sorted((DOCS / "decisions").glob("*.md")):
        title = path.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        lines.append(f"* [{title}]({path.name})")
    return "\n".join([*lines, ""])
