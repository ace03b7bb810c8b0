"""docs/top.md has the keys of the screens of hpcrun top, all of them, as the screens have them."""

from __future__ import annotations

from textual.dom import DOMNode

from hpcrun.features.top.log_page import LogPage
from hpcrun.features.top.queue import JobsScreen
from hpcrun.features.top.run_page import RunPage
from hpcrun.features.top.runs_screen import RunsScreen
from hpcrun.features.top.screen import bindings_of, key_names
from hpcrun.features.top.table import VirtualTable
from tests.harness import REPO

SCREENS: dict[str, tuple[type[DOMNode], ...]] = {
    "The table of runs": (RunsScreen, VirtualTable),
    "The page of a run": (RunPage,),
    "A log": (LogPage,),
    "Other jobs, and the queue": (JobsScreen, VirtualTable),
}


def table(classes: tuple[type[DOMNode], ...]) -> str:
    """The table of the keys of a screen, as the page has it."""
    bindings = [item for cls in classes for item in bindings_of(cls)]
    rows = [f"| `{key_names(item, '` `')}` | {item.tooltip or item.description} |" for item in bindings]
    return "\n".join(["| key | |", "|---|---|", *rows])


def test_the_page_has_the_keys_of_each_screen() -> None:
    page = (REPO / "docs" / "top.md").read_text("utf-8")
    missing = {
        name: table(classes) for name, classes in SCREENS.items() if f"### {name}\n\n{table(classes)}\n" not in page
    }
    assert missing == {}
