"""Opens a page in Chromium without a window, for a picture of it and for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

DARK, LIGHT = 0, 1
"""The colours that the reader prefers, as Blink's setting preferredColorScheme counts them."""


def headless(
    address: str, profile: Path, *, scheme: int = LIGHT, width: int = 800, height: int = 600
) -> list[str]:
    """Return the command of a browser without a window that opens a page.

    Args:
        profile: a folder of its own, which it makes.
        width: in pixels, of the window that it pretends to have.
    """
    return [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={profile}",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--window-size={width},{height}",
        address,
    ]


def open_page(
    page: Path, picture: Path, *, scheme: int = LIGHT, width: int = 800, height: int = 600
) -> subprocess.CompletedProcess[str]:
    """Open a page, and save a picture of its upper part.

    Returns:
        stdout is the document as the browser understood it; stderr has the lines of its console,
        among others.
    """
    argv = [
        *headless(
            page.as_uri(),
            picture.with_suffix(".profile"),
            scheme=scheme,
            width=width,
            height=height,
        ),
        f"--screenshot={picture}",
        "--enable-logging=stderr",
        "--dump-dom",
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what the browser's console says: errors of the page, and what its policy refused."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]
