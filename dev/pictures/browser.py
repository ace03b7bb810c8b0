"""Opens a page in Chromium without a window, for a picture of it and for tests."""

from __future__ import annotations

import subprocess
from pathlib import Path

DARK, LIGHT = 0, 1
"""The colours that the reader prefers, as Blink's setting preferredColorScheme counts them."""


def open_page(
    page: Path, picture: Path, *, scheme: int = LIGHT, width: int = 800, height: int = 600
) -> subprocess.CompletedProcess[str]:
    """Open a page, and save a picture of its upper part.

    Returns:
        stdout is the document as the browser understood it; stderr has the lines of its console,
        among others.
    """
    profile = picture.with_suffix(".profile")
    argv = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={profile}",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--window-size={width},{height}",
        f"--screenshot={picture}",
        "--enable-logging=stderr",
        "--dump-dom",
        page.as_uri(),
    ]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)


def console(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return what the browser's console says: errors of the page, and what its policy refused."""
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]
