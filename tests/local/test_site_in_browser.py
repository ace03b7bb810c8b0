"""The site in a real browser: on a phone, a tablet and a desk no page scrolls sideways, cuts a line
of code, or lacks a picture.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest

from dev.pictures.browser import DARK, LIGHT, headless
from hpcrun.features.share.page import share_page
from hpcrun.job.text.hide_secrets import SecretHider
from tests.harness import REPO
from tests.unit.features.share.test_share import gathered, hostile

PHONE = 390
WIDTHS = (PHONE, 768, 1280)
"""Of a phone, a tablet and a desk, in pixels."""
LOOK = REPO / "tests" / "data" / "site" / "look.html"
ANSWER_WITHIN_S = 240


class Served(SimpleHTTPRequestHandler):
    """The site, the page that looks at it, and where that page says what it saw."""

    def __init__(self, *args: Any, told: dict[str, Any], answers: Queue[Any], site: Path) -> None:
        self.told = told
        self.answers = answers
        super().__init__(*args, directory=str(site))

    def do_GET(self) -> None:
        if self.path == "/look.html":
            self.send_text(LOOK.read_text("utf-8"), "text/html; charset=utf-8")
        elif self.path == "/pages.json":
            self.send_text(json.dumps(self.told), "application/json")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_text("", "text/plain")
        self.answers.put(json.loads(body))

    def send_text(self, text: str, kind: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: a test's output is that of its failure."""


@contextmanager
def served(site: Path, told: dict[str, Any], answers: Queue[Any]) -> Iterator[str]:
    """Serve a site on this machine; the value is the address of the page that looks at it."""
    handler = partial(Served, told=told, answers=answers, site=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/look.html"
        server.shutdown()


def seen(
    site: Path,
    pages: list[str],
    profile: Path,
    *,
    scheme: int = LIGHT,
    widths: Sequence[int] = WIDTHS,
) -> dict[str, list[str]]:
    """Return what a reader would see wrong in pages of a site, by page and width."""
    answers: Queue[dict[str, list[str]]] = Queue()
    told = {"pages": pages, "widths": widths}
    with served(site, told, answers) as address:
        argv = headless(address, profile, scheme=scheme, width=1400, height=1000)
        browser = subprocess.Popen(
            [*argv, "--remote-debugging-port=0"],  # it stays until it is ended
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return answers.get(timeout=ANSWER_WITHIN_S)
        finally:
            browser.terminate()
            browser.wait()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    argv = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)]
    done = subprocess.run(argv, cwd=REPO, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> list[str]:
    """The pages of the site, without those that show a file of the source."""
    pages = sorted(
        path.relative_to(site).as_posix()
        for path in site.rglob("*.html")
        if not path.is_relative_to(site / "source")
    )
    assert len(pages) > 50
    return pages


@pytest.mark.needs("chromium")
@pytest.mark.needs_package("mkdocs", "material", "mkdocs_glightbox")
@pytest.mark.timeout(2 * ANSWER_WITHIN_S)
def test_pages_can_be_read_at_each_width(site: Path, pages: list[str], tmp_path: Path) -> None:
    assert seen(site, pages, tmp_path / "profile") == {}


@pytest.mark.needs("chromium")
@pytest.mark.needs_package("mkdocs", "material", "mkdocs_glightbox")
@pytest.mark.timeout(2 * ANSWER_WITHIN_S)
def test_pages_with_pictures_can_be_read_in_the_dark(
    site: Path, pages: list[str], tmp_path: Path
) -> None:
    """Of other pages the dark scheme changes the colours alone."""
    shown = [page for page in pages if "<img " in (site / page).read_text("utf-8")]
    assert len(shown) > 20
    assert seen(site, shown, tmp_path / "profile", scheme=DARK, widths=[PHONE]) == {}


@pytest.mark.needs("chromium")
def test_a_shared_page_can_be_read_at_each_width(tmp_path: Path) -> None:
    hostile(tmp_path / "runs")
    page = share_page(gathered(tmp_path / "runs"), SecretHider({}), "/home/me")
    (tmp_path / "run.html").write_bytes(page)
    assert seen(tmp_path, ["run.html"], tmp_path / "profile") == {}


@pytest.mark.needs("chromium")
def test_the_check_sees_each_fault(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "wide.html").write_text(
        '<!doctype html><meta name="viewport" content="width=device-width"><body style="margin: 0">'
        '<div style="width: 800px">wide</div><img src="none.png"><a href="#none">x</a>'
        '<div class="language-sh"><pre style="overflow: hidden; width: 300px">'
        f'<code style="display: block; overflow: auto">{"x" * 400}</code></pre></div>'
    )
    found = seen(site, ["wide.html"], tmp_path / "profile")
    assert "scrolls by 410 pixels" in found["wide.html at 390"]
    kinds = [fault.split(":")[0] for fault in found["wide.html at 1280"]]
    assert kinds == ["language-sh", "no picture none.png", "no place #none"]
