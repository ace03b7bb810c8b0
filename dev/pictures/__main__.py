"""Take the pictures of the docs: ``python -m dev.pictures [NAME...]``, as root; all of them where
none is named.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from dev.pictures.browser import open_page
from dev.pictures.desk import HOME, Desk, desk
from dev.pictures.scenes import SCENES, Picture
from dev.pictures.svg import svg_text
from dev.pictures.terminal import TerminalError
from tests.harness import REPO, Cluster, cluster_error, cluster_sh, only_session_on_cluster

FOLDER = REPO / "docs" / "pictures"


def main(names: Sequence[str]) -> None:
    known = [scene.name for scene in SCENES if isinstance(scene, Picture)]
    if unknown := set(names) - set(known):
        sys.exit(f"no such picture: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if os.geteuid() != 0:
        sys.exit(f"the development cluster and {HOME} want root")
    if shutil.which("chromium") is None and any(
        isinstance(scene, Picture) and scene.page and (not names or scene.name in names)
        for scene in SCENES
    ):
        sys.exit("the picture of a page needs a browser: apt-get install chromium")
    # where it is ignored, no program hears Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as at_end:
        at_end.enter_context(only_session_on_cluster())
        if cluster_error("status"):
            cluster_sh("up")
            at_end.callback(cluster_sh, "down")
        cluster = Cluster.running()
        at_end.callback(cluster.restore, keep=cluster.jobs())
        if failures := play(at_end.enter_context(desk(cluster)), set(names or known)):
            sys.exit("\n\n".join(failures))


def play(at: Desk, wanted: set[str]) -> list[str]:
    """Play all scenes in their order up to the last picture that is wanted; return what went wrong
    with any.

    Earlier pictures are taken too, and not kept: later ones may build on them.
    """
    failures = []
    last = max(
        number
        for number, scene in enumerate(SCENES)
        if isinstance(scene, Picture) and scene.name in wanted
    )
    for scene in SCENES[: last + 1]:
        if not isinstance(scene, Picture):
            scene(at)
            continue
        try:
            take(scene, at, keep=scene.name in wanted)
        except TerminalError as error:
            failures.append(f"{scene.name}: {error}")
    return failures


def take(picture: Picture, at: Desk, *, keep: bool) -> None:
    """Type what the picture shows, which later ones may build on, and keep the screen where it is
    wanted.

    Raises:
        TerminalError: a command does not end, or the screen shows what is this machine's alone.
    """
    with at.terminal(picture.columns, picture.host) as terminal:
        for step in picture.steps:
            terminal.type(step) if isinstance(step, str) else step(terminal)
        lines = terminal.lines()
    text = "\n".join(line.plain for line in lines)
    if private := re.search(rf"/(work|root|tmp)\b|{re.escape(os.uname().nodename)}", text):
        raise TerminalError(f"the screen shows {private[0]}, which is this machine's:\n{text}")
    if not keep:
        return
    if picture.drawn:
        shutil.copyfile(at.project / picture.drawn, FOLDER / Path(picture.drawn).name)
    if picture.page:
        photograph(at.project / picture.page, FOLDER / f"{picture.name}.png")
    svg = svg_text(lines, name=picture.name, title="hpcrun", columns=picture.columns)
    (FOLDER / f"{picture.name}.svg").write_text(svg, "utf-8")
    print(f"{picture.name}: {len(lines)} lines", flush=True)


def photograph(page: Path, picture: Path) -> None:
    """Keep the upper part of a page as a picture, with another name for this machine."""
    text = re.sub(rf"\b{re.escape(os.uname().nodename)}\b", "login1", page.read_text("utf-8"))
    with TemporaryDirectory() as folder:
        copy, shot = Path(folder, page.name), Path(folder, picture.name)
        copy.write_text(text, "utf-8")
        open_page(copy, shot, width=960, height=1700)
        shutil.copyfile(shot, picture)


if __name__ == "__main__":
    main(sys.argv[1:])
