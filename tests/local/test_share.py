"""hpcrun share: the page of a real run, and a real browser that opens it."""

from __future__ import annotations

import os
import re
import stat
from html import unescape
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from PIL import Image

from dev.pictures.browser import DARK, LIGHT, console, open_page
from hpcrun.features.share.page import share_page
from hpcrun.job.text.hide_secrets import SecretHider
from tests.harness import Hpcrun
from tests.unit.features.share.test_share import HOSTILE, gathered, hostile

TRAIN = """
import os, sys
from hpcrun_runtime import log_metrics
for step in range(5):
    log_metrics(step=step, loss=1 / (step + 1))
print("<b>rank", os.environ["RANK"], "says hf_" + "a1B2" * 8, flush=True)
{}["optimizer"]
"""


def test_a_run_is_shared_as_one_file(hpcrun: Hpcrun, subtests: pytest.Subtests) -> None:
    hpcrun.write("train.py", TRAIN)
    options = "-P local -G 0 --nodes 2 --launcher python --env RANK=0 --wait train.py"
    hpcrun("submit", *options.split())
    said = hpcrun.document("share", "train", check=True)
    file = hpcrun.folder / f"{said['run_id']}.html"
    assert said["file"] == str(file)
    assert said["bytes"] == file.stat().st_size
    assert said["secrets_hidden"] == 1
    page = file.read_text()
    for words in (
        "KeyError: &#39;optimizer&#39;",
        "last 0.2 at step 4",
        "&lt;b&gt;rank 0 says ***",
        "2 nodes, 2 ranks",
        "hpcrun submit --profile local --gpus 0 --nodes 2 --launcher python --env RANK=0 train.py",
        "script that was submitted",
    ):
        with subtests.test(words=words):
            assert words in page, words
    assert "a1B2a1B2" not in page
    again = hpcrun("share", "train")
    assert (again.returncode, again.stderr.splitlines()[0]) == (4, f"hpcrun: {file} exists")
    replaced = hpcrun("share", "train", "--force", "--no-logs", check=True)
    assert replaced.stdout.startswith(f"written  {file.name} (")
    assert "1 secret hidden" not in replaced.stdout
    assert "Ends of the logs" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o644 & ~umask()
    assert hpcrun("share", "train", "-o", "-", check=True).stdout.startswith("<!DOCTYPE html>\n")
    assert hpcrun("share", "train", "-o", "-", "--json").returncode == 2
    assert "is not a file" in hpcrun("share", "train", "-o", ".", "--force").stderr
    assert "cannot write" in hpcrun("share", "train", "-o", "no/such/x.html").stderr
    assert [path.name for path in hpcrun.folder.iterdir() if path.suffix == ".html"] == [file.name]


def test_a_page_is_refused_where_the_value_of_a_declared_secret_is_not_known(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write(
        "train.py", "import os\nprint('it is', os.environ['PLAIN_WORD'], os.environ['OTHER'])\n"
    )
    env = {"PLAIN_WORD": "correct horse", "OTHER": "battery"}
    job = (
        "--secret",
        "PLAIN_WORD",
        "--env",
        "OTHER=battery",
        "--secret",
        "OTHER",
        "--wait",
        "train.py",
    )
    hpcrun("submit", "-P", "local", "--gpus", "0", *job, env=env, check=True)
    for more in ((), ("--json",), ("-o", "-")):
        with subtests.test(more=more):
            refused = hpcrun("share", "train", *more)
            assert refused.returncode == 4
            assert (
                "the value of OTHER, PLAIN_WORD, not set here, which"
                in refused.stdout + refused.stderr
            )
            assert "horse" not in refused.stdout + refused.stderr
    assert "hint: read -rs OTHER && export OTHER" in hpcrun("share", "train").stderr
    assert (
        "the value of OTHER, not set here"
        in hpcrun("share", "train", env={"PLAIN_WORD": "correct horse"}).stderr
    )
    assert not [*hpcrun.folder.glob("*.html")]
    page = hpcrun("share", "train", "-o", "-", env=env, check=True).stdout
    assert "it is *** ***" in page
    published = hpcrun("share", "train", "--publish-unhidden", check=True)
    assert "not hidden, since not set here: OTHER, PLAIN_WORD" in published.stdout


def test_a_page_is_replaced_and_a_secret_published_by_a_flag_each(
    hpcrun: Hpcrun, subtests: pytest.Subtests
) -> None:
    hpcrun.write("train.py", "print('trained')\n")
    env = {"PLAIN_WORD": "correct horse"}
    job = ("-P", "local", "--gpus", "0", "--secret", "PLAIN_WORD", "--wait", "train.py")
    hpcrun("submit", *job, env=env, check=True)
    hpcrun.write("page.html", "an older page")
    share = ("share", "train", "-o", "page.html")
    for flags, reason in (
        (["--force"], "the value of PLAIN_WORD, not set here"),
        (["--publish-unhidden"], "page.html exists"),
    ):
        with subtests.test(flags=flags):
            refused = hpcrun(*share, *flags)
            assert (refused.returncode, reason in refused.stderr) == (4, True)
    hpcrun(*share, "--force", "--publish-unhidden", check=True)


def umask() -> int:
    now = os.umask(0o022)
    os.umask(now)
    return now


def opened(file: Path, folder: Path, scheme: int) -> tuple[str, list[str], object]:
    """Open a page in a browser, and return its document, its console, and the colour of a
    corner.
    """
    picture = folder / "page.png"
    done = open_page(file, picture, scheme=scheme)
    with Image.open(picture) as image:
        return done.stdout, console(done), image.convert("RGB").getpixel((1, 1))


def page_of_a_hostile_run(folder: Path) -> bytes:
    hostile(folder / "runs")
    return share_page(gathered(folder / "runs"), SecretHider({}), "/home/me")


@pytest.mark.needs("chromium")
def test_a_browser_shows_hostile_text_as_text(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_bytes(page_of_a_hostile_run(tmp_path))
    document, messages, corner = opened(file, tmp_path, DARK)
    assert messages == []
    assert corner == (13, 17, 23)
    assert not re.search(r"<(script|img|iframe|link)\b", document)
    assert unescape(document).count(HOSTILE) > 20


@pytest.mark.needs("chromium")
def test_a_browser_would_run_and_load_nothing_even_if_it_were_there(tmp_path: Path) -> None:
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever).start()
        place = f"http://127.0.0.1:{server.server_port}"
        more = f"""<script>document.title = "run"</script><script src="{place}/script"></script>
        <img src="{place}/image">
        <style>body {{ background: red }}</style><link rel="stylesheet" href="{place}/style">\
<p style="color: red">"""
        file = tmp_path / "page.html"
        file.write_bytes(
            page_of_a_hostile_run(tmp_path).replace(b"<main>", f"<main>{more}".encode())
        )
        document, messages, corner = opened(file, tmp_path, LIGHT)
        server.shutdown()
    assert asked == []
    assert corner == (255, 255, 255)
    assert f"{place}/image" in document
    assert "<title>run" not in document
    assert sum("Content Security Policy" in line for line in messages) == 6
